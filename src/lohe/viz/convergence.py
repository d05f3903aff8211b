"""Who has settled, and who is late: drawing primitives, arrays in, axes out."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator, PercentFormatter

from lohe.viz.style import BLACK, BLUE, GREY, ORANGE

PAIR = (BLUE, ORANGE)
HATCHED: Any = {"hatch": "////", "edgecolor": "white"}
SLOT, BAR = 0.46, 0.21  # of a group: what a kind has, and one of its two bars


def fractions(
    ax: Axes,
    horizons: Float[np.ndarray, " horizons"],
    found: Float[np.ndarray, " horizons"],
    expected: Float[np.ndarray, " horizons"],
    *,
    color: str,
    label: str,
) -> None:
    """Converged fractions as dots, what a formula expects of them as a line."""
    ax.semilogx(horizons, expected, color=color, lw=1.3)
    ax.semilogx(horizons, found, "o", color=color, ms=5, label=label)


def sampled(ax: Axes, horizon: float, fraction: float, se: float, *, color: str) -> None:
    """A fraction of a subsample, ± 2 standard errors."""
    ax.errorbar(horizon, fraction, 2 * se, fmt="x", color=color, ms=5, capsize=2, lw=1, zorder=4)


def published_fractions(
    ax: Axes, horizons: Float[np.ndarray, " horizons"], found: Float[np.ndarray, " horizons"]
) -> None:
    """What was published: hollow and grey."""
    ax.semilogx(horizons, found, "D:", color=GREY, mfc="white", ms=5, label="published, RK45")


def finish_fractions(ax: Axes, horizons: Sequence[float], enough: float) -> None:
    """Axes in percent, the level that counts as enough, and a legend."""
    ax.axhline(enough, color=BLACK, ls="--", lw=0.8)
    ax.plot([], [], color=GREY, lw=1.3, label="line: formula, dot: exact flow")
    ax.plot([], [], "x", color=GREY, ms=5, label="RK45 on a subsample, ± 2 SE")
    ax.set_xticks(horizons, [f"{t:g}" for t in horizons])
    ax.minorticks_off()
    ax.set(xlabel="horizon T", ylabel="converged (error < 0.01)")
    ax.set_ylim(min(0.8, ax.get_ylim()[0]), 1.02)
    ax.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 5]))
    ax.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    ax.legend(fontsize=8, loc="lower right")


def bars(
    ax: Axes,
    at: Float[np.ndarray, " groups"],
    values: Float[np.ndarray, "kinds groups"],
    *,
    defined: bool,
) -> None:
    """A bar a group for each kind, with its value in percent above it.

    As published to the left; `defined`: as defined, hatched, to its right.
    """
    side, look = (0.5, HATCHED) if defined else (-0.5, {})
    for x, row, color in zip(_slots(at), values, PAIR, strict=True):
        drawn = ax.bar(x + side * BAR, row, 0.92 * BAR, color=color, lw=0, **look)
        ax.bar_label(drawn, [_percent(v) for v in row], fontsize=7, padding=2)


def published_bars(ax: Axes, values: Float[np.ndarray, "kinds groups"]) -> None:
    """What was published, between the two bars of each kind: hollow."""
    for x, row in zip(_slots(np.arange(values.shape[1], dtype=float)), values, strict=True):
        ax.plot(x, row, "D", color=BLACK, mfc="white", ms=5)


def finish_bars(ax: Axes, d_osc: Sequence[int], labels: Sequence[str], *, published: bool) -> None:
    """Groups by d_osc, in percent of all trajectories, and a legend."""
    ax.set_xticks(range(len(d_osc)), [str(d) for d in d_osc])
    ax.set(xlabel="$d_{osc}$", ylabel="late trajectories", xlim=(-0.6, len(d_osc) - 0.4))
    ax.set_ylim(0, 1.45 * max(0.02, ax.get_ylim()[1]))  # room for the legend
    ax.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    ax.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    ax.grid(visible=False, axis="x")
    handles: list = [
        Patch(color=color, label=label) for color, label in zip(PAIR, labels, strict=True)
    ]
    handles.append(Patch(facecolor=GREY, lw=0, label="solid: as published"))
    handles.append(Patch(facecolor=GREY, lw=0, label="hatched: as defined", **HATCHED))
    if published:
        handles += ax.plot([], [], "D", color=BLACK, mfc="white", ms=5, label="the paper's models")
    ax.legend(handles=handles, fontsize=8, loc="upper right")


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.2g}" if fraction > 0.005 else f"{100 * fraction:.1f}"


def _slots(at: Float[np.ndarray, " groups"]) -> list[Float[np.ndarray, " groups"]]:
    """Middle of the bar of each kind."""
    return [at + (n - 0.5) * SLOT for n in range(len(PAIR))]
