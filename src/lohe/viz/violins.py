"""Pairs of violins from histograms: drawing primitives, arrays in, axes out."""

import numpy as np
from jaxtyping import Float, Integer
from matplotlib.axes import Axes

from lohe.viz.distributions import violin
from lohe.viz.style import BLACK


def smoothed(
    counts: Integer[np.ndarray, " bins"] | Float[np.ndarray, " bins"], width: float = 1.5
) -> Float[np.ndarray, " bins"]:
    """Counts under a Gaussian of this many bins; what would leak over an end is reflected there.

    >>> smoothed(np.array([0, 0, 8, 0, 0])).round(1).tolist()
    [1.2, 1.8, 2.1, 1.8, 1.2]
    """
    n = len(counts)
    reach = np.arange(n)
    images = np.stack([reach, -1 - reach, 2 * n - 1 - reach])  # (3, bins)
    kernel = np.exp(-0.5 * ((reach[:, None, None] - images) / width) ** 2).sum(axis=1)
    return (kernel / kernel.sum(axis=0)) @ counts


def with_mean(
    ax: Axes,
    at: float,
    counts: Integer[np.ndarray, " bins"] | Float[np.ndarray, " bins"],
    mean: float,
    color: str,
) -> None:
    """A histogram over [0, 1] as a violin at x = `at`; a white dot is its mean."""
    violin(ax, at, smoothed(counts).tolist(), color=color)
    ax.plot(at, mean, "o", ms=7, mfc="white", mec=BLACK, zorder=4)


def bracket(ax: Axes, left: float, right: float, text: str) -> None:
    """A bracket above two violins over [0, 1], with what is between their means."""
    top = 1.06
    ax.plot([left, left, right, right], [top - 0.02, top, top, top - 0.02], color=BLACK, lw=1)
    ax.annotate(text, ((left + right) / 2, top + 0.01), ha="center", va="bottom")
    ax.set(ylim=(-0.02, 1.17), yticks=np.linspace(0, 1, 6))
