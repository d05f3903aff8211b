"""Numbers against a dimension or a rank: drawing primitives, arrays in, axes out."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes

from lohe.viz.style import BLACK, GREY


def series(
    ax: Axes,
    values: Mapping[int, float],
    errors: Mapping[int, float] | None = None,
    *,
    color: str,
    label: str,
    marker: str = "o",
    line: str = "-",
    shift: float = 1.0,
    hollow: bool = False,
) -> None:
    """Values against a dimension, with error bars; `shift` moves them apart by a factor.

    `hollow` tells them from others of their kind without regard to colour.
    """
    if not values:
        return
    x = shift * np.array(list(values), dtype=float)
    bars = [errors[d] for d in values] if errors else None
    ax.errorbar(
        x,
        list(values.values()),
        yerr=bars,
        color=color,
        label=label,
        marker=marker,
        ls=line,
        mfc="white" if hollow else color,
        ms=5,
        lw=1.3,
        capsize=2.5,
        elinewidth=1,
    )


def published(
    ax: Axes,
    values: Mapping[int, float],
    errors: Mapping[int, float] | None = None,
    *,
    label: str,
    marker: str = "o",
    shift: float = 1.0,
) -> None:
    """Published values: hollow, grey, without a line."""
    bars = [errors[d] for d in values] if errors else None
    ax.errorbar(
        shift * np.array(list(values), dtype=float),
        list(values.values()),
        yerr=bars,
        color=GREY,
        mfc="none",
        label=label,
        marker=marker,
        ls="none",
        ms=6.5,
        capsize=2.5,
        elinewidth=1,
        zorder=5,
    )


def ceiling(ax: Axes, dimensions: Sequence[int]) -> None:
    """The line d_osc + 1."""
    d = np.linspace(min(dimensions), max(dimensions), 100)
    ax.plot(d, d + 1, color=BLACK, ls="--", lw=1, label="d_osc + 1")


def dimensions(ax: Axes, ticks: Sequence[int], label: str) -> None:
    """A logarithmic axis with these ticks and no others."""
    ax.set_xscale("log", base=2)
    ax.set_xticks(ticks, [str(d) for d in ticks])
    ax.minorticks_off()
    ax.set_xlabel(label)


def nothing(ax: Axes) -> None:
    """Said instead of an empty picture."""
    ax.set(xticks=[], yticks=[])
    ax.text(0.5, 0.5, "no records", transform=ax.transAxes, ha="center", color=GREY)


def plain_logarithm(ax: Axes) -> None:
    """Numbers as they are on a logarithmic y axis: 10, 20, 50."""
    from matplotlib.ticker import LogLocator, NullLocator, StrMethodFormatter

    ax.yaxis.set_major_locator(LogLocator(subs=(1, 1.5, 2, 3, 5, 7)))
    ax.yaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
