"""Angles of many seeds: drawing primitives, arrays in, axes out."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from lohe.viz.style import GREY, RED


def angles(
    ax: Axes,
    seeds: Sequence[int],
    start: Float[np.ndarray, "seeds anchors"],
    trained: Float[np.ndarray, "seeds anchors"],
    marked: Bool[np.ndarray, " seeds"],
    color: str,
    label: str = "trained",
) -> None:
    """Angles in degrees, one column a seed: grey at the start, in colour trained.

    Columns that are `marked` have a preferred direction.
    """
    at = np.broadcast_to(np.asarray(seeds)[:, None], start.shape)
    for seed in np.asarray(seeds)[marked]:
        ax.axvspan(seed - 0.5, seed + 0.5, color=RED, alpha=0.12, lw=0)
    ax.plot(at.ravel(), _degrees(start), ".", color=GREY, ms=4, alpha=0.6, label="start")
    ax.plot(at.ravel(), _degrees(trained), ".", color=color, ms=6, label=label)
    if marked.any():
        ax.plot([], [], "s", color=RED, alpha=0.2, label="not uniform by Rayleigh's test")
    ax.set(ylabel="angle of the anchor, °", ylim=(-180, 180), yticks=range(-180, 181, 90))
    ax.set_xlim(min(seeds) - 1, max(seeds) + 1)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))


def _degrees(radians: Float[np.ndarray, "seeds anchors"]) -> Float[np.ndarray, " all"]:
    return np.degrees(radians).ravel()
