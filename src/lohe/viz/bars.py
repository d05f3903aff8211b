"""Grouped bars with whiskers: drawing primitives, arrays in, axes out."""

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from lohe.viz.style import BLACK, GREY, legend_below, without_caps

WHISKERS = "± standard deviation over seeds"
WIDTH = 0.84  # of a group, where groups are 1 apart


def grouped(
    ax: Axes,
    groups: Sequence[str],
    means: Float[np.ndarray, "series groups"],
    stds: Float[np.ndarray, "series groups"],
    *,
    labels: Sequence[str],
    colors: Sequence[str],
    ceiling: float = np.inf,
) -> None:
    """A bar for each series in each group, whiskers of one deviation.

    The place of a NaN says "no records". Whiskers are cut at `ceiling`: no accuracy is above 100 %.
    """
    for n, (label, color) in enumerate(zip(labels, colors, strict=True)):
        x, mean, std = places(n, *means.shape), means[n], np.nan_to_num(stds[n])
        up = np.clip(np.minimum(std, ceiling - mean), 0, None)
        here = np.isfinite(mean)
        for at in x[~here]:
            _say_missing(ax, at)
        if not here.any():
            continue
        ax.bar(x[here], mean[here], WIDTH / len(means) * 0.94, color=color, label=label, lw=0)
        drawn = ax.errorbar(
            x[here], mean[here], [std[here], up[here]], fmt="none", ecolor=BLACK, lw=1, capsize=2
        )
        without_caps(drawn, (up < std)[here])
    ax.set_xticks(range(len(groups)), groups)
    ax.set_xlim(-0.5, len(groups) - 0.5)
    ax.grid(visible=False, axis="x")
    ax.set_axisbelow(True)


def numbers(ax: Axes, digits: int = 1) -> None:
    """Heights of the bars at their feet, where no whisker is; the axis must have its limits."""
    for bar in cast(list[Rectangle], ax.patches):
        ax.annotate(
            f"{bar.get_height():.{digits}f}",
            (bar.get_x() + bar.get_width() / 2, max(0, ax.get_ylim()[0])),
            xytext=(0, 3),
            textcoords="offset points",
            ha="center",
            va="bottom",
            fontsize=7,
            bbox={"facecolor": "white", "lw": 0, "pad": 0.6, "alpha": 0.85},
        )


def _say_missing(ax: Axes, x: float) -> None:
    """In small letters, upwards from the axis."""
    ax.text(
        x,
        0.03,
        "no records",
        transform=ax.get_xaxis_transform(),
        rotation=90,
        ha="center",
        va="bottom",
        fontsize=7,
        color=GREY,
    )


def published(
    ax: Axes,
    means: Float[np.ndarray, "series groups"],
    stds: Float[np.ndarray, "series groups"],
    *,
    label: str = f"the paper, {WHISKERS}",
    ceiling: float = np.inf,
) -> None:
    """Published values on their bars, hollow: the same places as `grouped`, NaN where none is."""
    width = WIDTH / len(means)
    for n in range(len(means)):
        x, mean, std = places(n, *means.shape) + width / 4, means[n], np.nan_to_num(stds[n])
        here = np.isfinite(mean)
        up = np.clip(np.minimum(std, ceiling - mean), 0, None)
        ax.errorbar(
            x[here],
            mean[here],
            [std[here], up[here]],
            fmt="D",
            ms=4,
            mfc="white",
            color=GREY,
            mec=BLACK,
            mew=0.9,
            lw=1,
            zorder=4,
            label=label if n == 0 else None,
        )


def legend(figure: Figure, ncols: int) -> None:
    """One legend below all panels; whiskers come last."""
    look: Any = {"fmt": "none", "ecolor": BLACK, "lw": 1, "capsize": 2}
    figure.axes[0].errorbar([np.nan], [np.nan], [np.nan], **look, label=f"ours, {WHISKERS}")
    legend_below(figure, ncols)


def places(n: int, series: int, groups: int) -> Float[np.ndarray, " groups"]:
    """Where the bars of series n stand."""
    return np.arange(groups) + (n - (series - 1) / 2) * WIDTH / series
