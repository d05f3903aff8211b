"""Distributions side by side: drawing primitives, arrays in, axes out."""

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
from matplotlib.axes import Axes

from lohe.viz.style import BLACK, GREY

Side = Literal["both", "left", "right"]
WIDTH = 0.4  # of a violin, half


def violin(
    ax: Axes,
    at: float,
    histogram: Sequence[float],
    *,
    color: str,
    side: Side = "both",
) -> None:
    """A histogram of equal bins over 0-1, upright; one side or both, its widest bin WIDTH."""
    counts = np.asarray(histogram, dtype=float)
    edges = np.linspace(0, 1, len(counts) + 1)
    middle = (edges[:-1] + edges[1:]) / 2
    width = WIDTH * counts / max(counts.max(), 1.0)
    left = at - width * (side != "right")
    right = at + width * (side != "left")
    ax.fill_betweenx(middle, left, right, color=color, alpha=0.45, lw=0)


def quartiles(
    ax: Axes, at: float, median: float, first: float, third: float, *, hollow: bool = False
) -> None:
    """A dot at the median, a bar between the quartiles; hollow and grey where published."""
    color = GREY if hollow else BLACK
    ax.plot([at, at], [first, third], color=color, lw=1.2 if hollow else 2.4, zorder=3)
    face = "white" if hollow else color
    ax.plot([at], [median], "o", ms=5, mfc=face, mec=color, zorder=4)


def boxes(ax: Axes, groups: Mapping[str, Sequence[float]], colors: Sequence[str | None]) -> None:
    """Median, quartiles and whiskers of each group; points beyond them one by one.

    Published groups have no colour: they are hollow, their points grey.
    """
    drawn = ax.boxplot(
        list(groups.values()),
        tick_labels=list(groups),
        patch_artist=True,
        widths=0.55,
        medianprops={"color": BLACK},
        flierprops={"marker": "o", "ms": 3.5, "mec": "none", "alpha": 0.6},
    )
    for box, points, color in zip(drawn["boxes"], drawn["fliers"], colors, strict=True):
        box.set(facecolor=color or "white", alpha=0.5 if color else 1)
        points.set(markerfacecolor=color or GREY)


def legend(ax: Axes, colors: Mapping[str, str], hollow: str) -> None:
    """Names of the violins by colour, and of what is published."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles = [Patch(color=color, alpha=0.45, lw=0) for color in colors.values()]
    ours = Line2D([], [], color=BLACK, lw=2.4, marker="o", ms=5)
    theirs = Line2D([], [], color=GREY, lw=1.2, marker="o", ms=5, mfc="white")
    names = [*colors, "dot: median, bar: quartiles", hollow]
    ax.legend([*handles, ours, theirs], names, loc="lower right", fontsize=8)
