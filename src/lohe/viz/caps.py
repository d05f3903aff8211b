"""Spherical caps: drawing primitives, arrays in, axes out."""

import matplotlib as mpl
import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes

from lohe.viz.style import GREY


def color(place: float) -> tuple[float, ...]:
    """A colour of an ordered, colour-blind safe map, `place` from 0 to 1."""
    return mpl.colormaps["viridis"](0.88 * place)


def theory(
    ax: Axes,
    angles: Float[np.ndarray, " angles"],
    probability: Float[np.ndarray, " angles"],
    *,
    samples: int,
    label: str,
    place: float,
) -> None:
    """A line, and two standard errors of a fraction of `samples` around it."""
    error = 2 * np.sqrt(probability * (1 - probability) / samples)
    low = np.maximum(probability - error, 1e-12)
    ax.fill_between(angles, low, probability + error, color=color(place), alpha=0.15, lw=0)
    ax.semilogy(angles, probability, color=color(place), lw=1.4, label=label)


def fractions(
    ax: Axes,
    angles: Float[np.ndarray, " angles"],
    seen: Float[np.ndarray, " angles"],
    *,
    place: float,
) -> None:
    """Markers; where none was seen, there is no place on a log scale."""
    some = seen > 0
    ax.semilogy(angles[some], seen[some], "o", ms=3.5, color=color(place), mew=0, alpha=0.85)


def finish(ax: Axes, *, samples: int, seen: bool) -> None:
    """Axes and legend; one start of all is the least that a sample can show."""
    ax.axhline(1 / samples, color=GREY, ls=":", lw=1)
    ax.annotate("one start", (1.57, 0.82 / samples), color=GREY, fontsize=8, va="top", ha="right")
    ax.set(
        xlabel="angle α to the antipode, radians",
        ylabel="probability of a start within α",
        xlim=(0, np.pi / 2 + 0.02),
        ylim=(0.25 / samples, 1),
    )
    said = "line: Eq. 10\nband: ±2 s.e.\n" + (f"dots: {samples:,} starts" if seen else "no records")
    ax.legend(title=said, loc="upper left", bbox_to_anchor=(1.0, 1.0), alignment="left")
