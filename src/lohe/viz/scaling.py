"""A quantity against the oscillator dimension, with a fit and a point held out of it."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator


def points(
    ax: Axes,
    dimensions: Sequence[float],
    means: Float[np.ndarray, " d"],
    errors: Float[np.ndarray, " d"],
    *,
    label: str,
    color: str,
    marker: str = "o",
    hollow: bool = False,
) -> None:
    """Means with their standard errors."""
    ax.errorbar(
        dimensions, means, yerr=errors, label=label, marker=marker, ls="none", ms=6, capsize=2.5,
        lw=1.2, **_coloured(color, hollow),
    )  # fmt: skip


def curve(
    ax: Axes, span: tuple[float, float], function: Callable[[float], float], *, color: str
) -> None:
    """A fit as a dotted line."""
    d = np.geomspace(*span, 80)
    ax.plot(d, [function(x) for x in d], ls=":", lw=1.5, color=color, zorder=1)


def held_out(
    ax: Axes,
    dimension: float,
    observed: float,
    interval: tuple[float, float],
    *,
    color: str,
    hollow: bool = False,
) -> None:
    """What was observed as a diamond, and a whisker over the interval that was predicted.

    NaN is not drawn.
    """
    ax.vlines(dimension, *interval, color=color, lw=1.2)
    ax.plot([dimension] * 2, interval, ls="none", marker="_", ms=9, color=color)
    ax.plot([dimension], [observed], ls="none", marker="D", ms=6.5, **_coloured(color, hollow))


def dimension_axis(ax: Axes, dimensions: Sequence[int]) -> None:
    """log2, a tick at each dimension."""
    ax.set_xscale("log", base=2)
    ax.set_xlim(min(dimensions) / 1.25, max(dimensions) * 1.3)
    ax.set_xticks(dimensions, [str(d) for d in dimensions])
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xlabel("oscillator dimension d_osc")


def _coloured(color: str, hollow: bool) -> dict[str, Any]:
    return {"color": color, "mfc": "white" if hollow else color, "mec": color, "mew": 1.3}
