"""Grouped bars with whiskers: drawing primitives, arrays in, axes out."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lohe.viz.style import BLACK, GREY

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
    digits: int = 1,
    ceiling: float = np.inf,
) -> None:
    """A bar for each series in each group, its mean above it, whiskers of one deviation.

    The place of a NaN says "no records". Whiskers end at `ceiling`: no accuracy is above 100 %.
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
        ax.errorbar(
            x[here], mean[here], [std[here], up[here]], fmt="none", ecolor=BLACK, lw=1, capsize=2
        )
        for at, value, above in zip(x[here], mean[here], up[here], strict=True):
            ax.annotate(
                f"{value:.{digits}f}",
                (at, value + above),
                xytext=(0, 2),
                textcoords="offset points",
                ha="center",
                va="bottom",
                fontsize=7,
                bbox={"facecolor": "white", "lw": 0, "pad": 0.3, "alpha": 0.85},
                zorder=5,
            )
    ax.set_xticks(range(len(groups)), groups)
    ax.set_xlim(-0.5, len(groups) - 0.5)
    ax.grid(visible=False, axis="x")
    ax.set_axisbelow(True)


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
    label: str = "the paper",
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
    """One legend below all panels, each label once; whiskers come last."""
    nothing = [np.nan]
    figure.axes[0].errorbar(
        nothing, nothing, nothing, fmt="none", ecolor=BLACK, lw=1, capsize=2, label=WHISKERS
    )
    named = {}
    for ax in figure.axes:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            named.setdefault(label, handle)
    figure.legend(list(named.values()), list(named), loc="outside lower center", ncols=ncols)


def places(n: int, series: int, groups: int) -> Float[np.ndarray, " groups"]:
    """Where the bars of series n stand."""
    return np.arange(groups) + (n - (series - 1) / 2) * WIDTH / series
