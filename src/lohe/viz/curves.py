"""Training and its aftermath: drawing primitives, arrays in, axes out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, MaxNLocator

from lohe.viz.style import BLACK, GREY


def by_epoch(
    ax: Axes, values: Float[np.ndarray, "seeds epochs"], *, color: str, label: str
) -> None:
    """A thin line for each seed, from epoch 1."""
    epochs = np.arange(1, values.shape[1] + 1)
    lines = ax.plot(epochs, values.T, color=color, lw=1.3, alpha=0.75)
    lines[0].set_label(label)
    ax.set_xlabel("epoch")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))


def level(
    ax: Axes,
    value: float,
    text: str,
    *,
    color: str = GREY,
    above: bool = False,
    left: bool = False,
) -> None:
    """A dashed line across at `value`, said in words at its right or `left` end."""
    ax.axhline(value, color=color, ls="--", lw=1)
    ax.annotate(
        text,
        (0.02 if left else 0.98, value),
        xycoords=("axes fraction", "data"),
        xytext=(0, 3 if above else -3),
        textcoords="offset points",
        ha="left" if left else "right",
        va="bottom" if above else "top",
        color=color,
        fontsize=8,
    )


def changes(
    ax: Axes,
    levels: Sequence[float],
    values: Float[np.ndarray, "seeds levels"],
    *,
    color: str,
    label: str,
) -> None:
    """Mean over seeds as a line, each seed as a dot, against a level on a log scale."""
    ax.semilogx(levels, values.mean(axis=0), color=color, label=label)
    for row in values:
        ax.semilogx(levels, row, "o", color=color, ms=4, alpha=0.5, mew=0)
    _ticks(ax, levels)


def reference(ax: Axes, levels: Sequence[float], values: Sequence[float], label: str) -> None:
    """Published values: black crosses."""
    ax.semilogx(levels, values, "x", color=BLACK, ms=6, mew=1.3, label=label, zorder=4)
    _ticks(ax, levels)


def by_rate(
    ax: Axes, points: Mapping[float, float], *, color: str, width: float, label: str
) -> None:
    """Something that is positive, by learning rate."""
    ax.plot(list(points), list(points.values()), "o-", color=color, lw=width, ms=4, label=label)


def rate_axis(ax: Axes, rates: Sequence[float]) -> None:
    """Logarithms of both, a tick at each learning rate."""
    ax.set(xscale="log", yscale="log", xlabel="learning rate")
    ax.set_xticks(rates, [f"{rate:g}" for rate in rates])
    ax.yaxis.set_major_locator(LogLocator(base=10, subs=(1, 1.2, 1.4, 1.6, 2, 3, 4, 5, 6, 8, 9)))
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    ax.minorticks_off()


def _ticks(ax: Axes, levels: Sequence[float]) -> None:
    ax.axhline(0, color=GREY, lw=0.8)
    ax.set_xticks(levels, [f"{x:g}" for x in levels])
    ax.minorticks_off()


def words(
    ax: Axes,
    names: Sequence[str],
    weights: Float[np.ndarray, "series words"],
    *,
    labels: Sequence[str],
    colors: Sequence[str],
) -> None:
    """Attention to each word, one bar a series, words downward."""
    height = 0.8 / len(weights)
    at = np.arange(len(names))
    for n, (row, label, color) in enumerate(zip(weights, labels, colors, strict=True)):
        ax.barh(at + (n - (len(weights) - 1) / 2) * height, row, height, color=color, label=label)
    ax.set_yticks(at, names)
    ax.invert_yaxis()
    ax.grid(visible=False, axis="y")
    ax.set_xlabel("attention weight")


@dataclass(frozen=True)
class Series:
    """Values with their errors at some of the levels; `hollow` for those of others."""

    label: str
    levels: Sequence[float]
    values: Sequence[float]
    errors: Sequence[float]
    color: str
    marker: str = "o"
    hollow: bool = False


def with_errors(ax: Axes, levels: Sequence[float], series: Sequence[Series]) -> None:
    """Points with error bars against a level on a log scale, side by side where they meet."""
    for n, one in enumerate(series):
        aside = 1.06 ** (n - (len(series) - 1) / 2)
        ax.errorbar(
            [aside * x for x in one.levels],
            one.values,
            one.errors,
            fmt=one.marker,
            color=one.color,
            mfc="white" if one.hollow else one.color,
            ms=5,
            lw=0,
            elinewidth=1,
            capsize=2,
            label=one.label,
        )
    if not series:
        ax.text(0.5, 0.5, "no records", transform=ax.transAxes, ha="center", color=GREY)
        ax.set_xlim(levels[0], levels[-1])
    ax.set_xscale("log")
    _ticks(ax, levels)


def cumulative(
    ax: Axes,
    thresholds: Sequence[float],
    fractions: Sequence[float],
    color: str,
    style: str,
    label: str | None,
) -> None:
    """Fraction below each threshold, both on log scales; zero has no place there."""
    there = [(x, y) for x, y in zip(thresholds, fractions, strict=True) if y > 0]
    ax.loglog(
        [x for x, _ in there],
        [y for _, y in there],
        style,
        color=color,
        lw=1.2,
        alpha=0.7,
        label=label,
    )


def band(
    ax: Axes,
    thresholds: Sequence[float],
    fractions: Float[np.ndarray, "models thresholds"],
    color: str,
    style: str,
    label: str,
) -> None:
    """From the least to the greatest of many such fractions, where their lines hid each other."""
    low, high = fractions.min(axis=0), fractions.max(axis=0)
    ax.fill_between(thresholds, low, high, color=color, alpha=0.15, lw=0)
    ax.plot([], [], style, color=color, lw=5, alpha=0.35, label=label)
    for edge in (low, high):
        cumulative(ax, thresholds, edge.tolist(), color, style, None)


def hollow(ax: Axes, x: Sequence[float], y: Sequence[float], *, color: str, label: str) -> None:
    """Published points beside a measured curve."""
    ax.loglog(x, y, "s", ms=7, mfc="white", mec=color, mew=1.5, label=label, zorder=5)
