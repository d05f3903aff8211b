"""Rates and accuracies over a setting that is varied: drawing primitives, arrays in, axes out."""

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes

from lohe.viz.style import DEFINED, GREY, OSCILLATOR, SOFTMAX, without_caps

COLORS = {"softmax": SOFTMAX, "as published": OSCILLATOR, "as defined": DEFINED}


def color(name: str) -> str:
    """Colour of a mechanism by its name; both readings have their own, published ones the first."""
    return next((c for part, c in COLORS.items() if part in name), OSCILLATOR)


def by_threshold(
    ax: Axes,
    thresholds: Float[np.ndarray, " thresholds"],
    values: Float[np.ndarray, " thresholds"],
    name: str,
    label: str = "",
) -> None:
    """A curve over thresholds; what the paper published is thin and dashed."""
    theirs = "paper" in name
    ax.step(
        thresholds,
        values,
        where="mid",
        color=color(name),
        ls="--" if theirs else "-",
        lw=1.1 if theirs else 1.8,
        label=label,
    )


def mark(ax: Axes, at: float, text: str = "", *, left: bool = False) -> None:
    """A dotted line upward at `at`, said in words at its top, to the right or left of it."""
    ax.axvline(at, color=GREY, ls=":", lw=1.1)
    ax.annotate(
        text,
        (at, 0.98),
        xycoords=("data", "axes fraction"),
        xytext=(-3 if left else 3, 0),
        textcoords="offset points",
        ha="right" if left else "left",
        va="top",
        color=GREY,
        fontsize=8,
    )


def significance(ax: Axes, level: float) -> None:
    """p-values on a log scale, with the level below which they count."""
    ax.set_yscale("log")
    ax.axhline(level, color=GREY, ls=":", lw=1.1)
    ax.annotate(
        f"{level:g}",
        (1.0, level),
        xycoords=("axes fraction", "data"),
        xytext=(2, 0),
        textcoords="offset points",
        va="center",
        color=GREY,
        fontsize=8,
    )


def points(
    ax: Axes,
    at: Float[np.ndarray, " points"],
    values: Float[np.ndarray, " points"],
    low: Float[np.ndarray, " points"],
    high: Float[np.ndarray, " points"],
    name: str,
    label: str,
    ceiling: float = np.inf,
) -> None:
    """Values with their intervals, cut at `ceiling`; what the paper published is hollow."""
    reach = np.stack([values - low, np.minimum(high, ceiling) - values]).clip(0)
    drawn = ax.errorbar(
        at,
        values,
        yerr=reach,
        fmt="o",
        ms=6,
        mfc="white" if "paper" in name else color(name),
        color=color(name),
        alpha=0.75 if "paper" in name else 1,
        lw=1.4,
        capsize=3,
        label=label,
    )
    without_caps(drawn, high > ceiling)
