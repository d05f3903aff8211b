"""Several things by one number, each with its interval: drawing primitives, arrays in, axes out."""

from collections.abc import Sequence

from matplotlib.axes import Axes


def rows(
    ax: Axes,
    names: Sequence[str],
    means: Sequence[float],
    intervals: Sequence[tuple[float, float]],
    colors: Sequence[str],
    hollow: Sequence[bool],
) -> None:
    """A row each, the first on top: a dot, which may be hollow, and its interval."""
    for y, (mean, ends, color, empty) in enumerate(
        zip(means, intervals, colors, hollow, strict=True)
    ):
        ax.plot(ends, [y, y], color=color, lw=1.6, zorder=2)
        ax.plot(mean, y, "o", ms=6, color=color, mfc="white" if empty else color, zorder=3)
    ax.set_yticks(range(len(names)), names)
    ax.set_ylim(len(names) - 0.4, -0.6)
    ax.grid(visible=False, axis="y")
    ax.tick_params(axis="y", length=0)
