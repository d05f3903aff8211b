"""Oscillators on their way: drawing primitives, arrays in, axes out."""

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes

from lohe.viz.style import ANCHOR, BLACK, GREY, OSCILLATOR

START = 0.45  # radius of the ring on which paths start


def circle(
    ax: Axes,
    phases: Float[np.ndarray, "times oscillators"],
    anchors: Float[np.ndarray, " anchors"],
) -> None:
    """Phases over time on the circle: time runs outward, from a start on the inner ring to rest.

    Squares are anchors, dots the settled oscillators, each with its number.
    """
    turn = np.linspace(0, 2 * np.pi, 200)
    for radius, colour in ((START, GREY), (1.0, BLACK)):
        ax.plot(radius * np.cos(turn), radius * np.sin(turn), color=colour, lw=0.8)
    radius = np.linspace(START, 1.0, len(phases))[:, None]
    x, y = radius * np.cos(phases), radius * np.sin(phases)
    ax.plot(x, y, color=OSCILLATOR, alpha=0.6, lw=1.2)
    ax.scatter(x[0], y[0], s=14, facecolor="white", edgecolor=OSCILLATOR, zorder=3)
    ax.scatter(x[-1], y[-1], s=34, color=OSCILLATOR, zorder=4, label="oscillator, settled")
    at = np.stack([np.cos(anchors), np.sin(anchors)])
    ax.scatter(*(1.13 * at), s=34, marker="s", color=ANCHOR, label="anchor, drawn outside")
    for n, (x, y) in enumerate(1.27 * at.T):
        ax.annotate(str(n + 1), (x, y), ha="center", va="center")
    ax.set(aspect="equal", xlim=(-1.45, 1.45), ylim=(-1.45, 1.45))
    ax.axis("off")


def errors(
    ax: Axes,
    times: Float[np.ndarray, " times"],
    exact: Float[np.ndarray, "times oscillators"],
    sampled: Float[np.ndarray, " samples"],
    solver: Float[np.ndarray, "samples oscillators"],
    threshold: float,
) -> None:
    """Distance to the fixed point over time: lines are the exact flow, crosses a solver."""
    lines = ax.semilogy(times, exact, color=OSCILLATOR, alpha=0.7, lw=1.2)
    crosses = ax.semilogy(sampled, solver, "x", color=BLACK, ms=5, mew=1)
    line = ax.axhline(threshold, color=ANCHOR, ls="--", lw=1)
    ax.legend(
        [lines[0], crosses[0], line],
        ["exact flow", "RK45", "converged below this"],
        loc="upper right",
    )
    ax.set(xlabel="time", ylabel="distance to the fixed point", ylim=(1e-6, 3))


def weights(ax: Axes, attention: Float[np.ndarray, "i j"]) -> None:
    """The attention matrix, queries downward, keys to the right."""
    image = ax.imshow(attention, cmap="cividis", vmin=0)
    ax.figure.colorbar(image, ax=ax, shrink=0.8, label="weight")
    ticks = np.arange(len(attention))
    ax.set(xlabel="key token", ylabel="query token")
    ax.set_xticks(ticks, ticks + 1)
    ax.set_yticks(ticks, ticks + 1)
    ax.grid(visible=False)
