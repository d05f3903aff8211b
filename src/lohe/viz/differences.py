"""How far one thing is from another while both change: drawing primitives, arrays in, axes out."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullLocator, StrMethodFormatter

from lohe.viz.style import GREY


def course(
    ax: Axes,
    reached: Sequence[float],
    difference: Sequence[float],
    *,
    color: str,
    style: str,
    label: str,
) -> None:
    """The way that it takes, with a dot where it ends."""
    ax.plot(reached, difference, ls=style, lw=1.4, color=color, label=label)
    ax.plot(reached[-1:], difference[-1:], "o", ms=4.5, color=color)


def against_zero(ax: Axes, title: str) -> None:
    """The line of no difference; what falls in training runs to the right."""
    ax.axhline(0, color=GREY, lw=1.2, zorder=1)
    ax.set_title(title, fontsize=10)
    ax.set_xscale("log")
    ax.xaxis.set_major_locator(LogLocator(10, subs=(1, 1.5, 2, 3, 5, 7)))
    ax.xaxis.set_major_formatter(StrMethodFormatter("{x:.0f}"))
    ax.xaxis.set_minor_locator(NullLocator())
    if not ax.xaxis_inverted():
        ax.invert_xaxis()
