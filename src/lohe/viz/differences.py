"""Differences from a common zero, group beside group: arrays in, axes out."""

from collections.abc import Sequence

from matplotlib.axes import Axes

from lohe.viz.style import BLACK, GREY

SPREAD = 0.3  # of a group's dots, where groups are 1 apart


def strip(
    ax: Axes,
    at: float,
    values: Sequence[float],
    *,
    colors: Sequence[str],
    hollow: Sequence[bool],
    mean: float,
    interval: Sequence[float],
) -> None:
    """A dot a value, side by side; to their right the mean with its interval (NaN: none)."""
    step = SPREAD / max(len(values) - 1, 1)
    for n, (value, color, empty) in enumerate(zip(values, colors, hollow, strict=True)):
        face = "white" if empty else color
        ax.plot([at - SPREAD + n * step], [value], "o", ms=5.5, mfc=face, mec=color, zorder=3)
    low, high = interval
    right = at + SPREAD / 2
    ax.errorbar(
        [right], [mean], yerr=[[mean - low], [high - mean]], fmt="_", color=BLACK, ms=12, capsize=3
    )


def against_zero(ax: Axes, groups: Sequence[str], *, better: str, worse: str) -> None:
    """The line of no difference, the groups below, and what either side of the line means."""
    ax.axhline(0, color=GREY, lw=1.2, zorder=1)
    ax.set_xticks(range(len(groups)), groups, fontsize=8.5)
    ax.set_xlim(-0.6, len(groups) - 0.4)
    ax.grid(visible=False, axis="x")
    for text, y, va in ((worse, 1.0, "top"), (better, 0.0, "bottom")):
        ax.annotate(
            text, (0.0, y), xycoords="axes fraction", xytext=(4, 0), textcoords="offset points",
            va=va, color=GREY, fontsize=8.5,
        )  # fmt: skip
