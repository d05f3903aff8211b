"""A sentence and its oscillators: drawing primitives, arrays in, axes out.

Tokens are numbered: 0 is the beginning of the sentence, 1 its first word.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes

from lohe.viz.style import ANCHOR, BLACK, GREY, OSCILLATOR

ANCHORS = (
    "anchors $r_j$, square by length; drawn outside\nof the circle to be seen, angles are real"
)
START = 0.45  # radius of the ring on which paths start
ROOM = 0.19  # radians between two labels
THICK, THIN = 3.0, 0.5  # points: lines of the strongest coupling, and of those too weak to be seen


def circle(
    ax: Axes,
    *,
    anchors: Float[np.ndarray, " tokens"],
    lengths: Float[np.ndarray, " tokens"],
    states: Float[np.ndarray, " tokens"],
    couplings: Float[np.ndarray, " tokens"],
    paths: Float[np.ndarray, "starts times"],
    e_folds: float,
) -> None:
    """One head: anchors outside the circle, settled states on it, the last token's paths inside.

    Angles are real. An anchor's square grows with its length, a line's width with the coupling
    of the last token to that anchor, from THIN on. Paths go outward in time, from 0 to
    `e_folds` = ‖h‖t.
    """
    turn = np.linspace(0, 2 * np.pi, 200)
    ax.plot(np.cos(turn), np.sin(turn), color=BLACK, lw=0.8)
    ax.plot(START * np.cos(turn), START * np.sin(turn), color=GREY, lw=0.6)
    end = at(states[-1:], 1.0)[0]
    look: Any = {"color": ANCHOR, "alpha": 0.45, "solid_capstyle": "round"}
    widths = f"by width,\nthinnest: less than {100 * THIN / THICK:.0f} % of the head's strongest"
    for square, width in zip(at(anchors, 1.12), couplings / couplings.max(), strict=True):
        line = np.stack([end, square]).T
        ax.plot(*line, **look, lw=max(THIN, THICK * width))
    ax.plot([], [], **look, lw=THICK, label=f"couplings $w_{{ij}}$ of the last token, {widths}")
    radius = np.linspace(START, 1.0, paths.shape[1])
    for n, path in enumerate(paths):
        x, y = radius * np.cos(path), radius * np.sin(path)
        label = (
            "last token on its way from random starts; radius:\n"
            f"time, from ‖h‖t = 0 (inner ring) to {e_folds:g} (circle)"
        )
        ax.plot(x, y, color=OSCILLATOR, lw=1.2, alpha=0.8, label=label if n == 0 else None)
        ax.plot(x[0], y[0], "o", ms=4, mfc="white", mec=OSCILLATOR)
    size = 26 * lengths / lengths.max()
    ax.scatter(*at(anchors, 1.12).T, s=size, marker="s", color=ANCHOR, label=ANCHORS)
    ax.scatter(*at(states, 1.0).T, s=16, color=BLACK, zorder=4, label="settled states $z_i^*$")
    ax.scatter(*end, s=46, color=OSCILLATOR, zorder=5, label="settled state of the last token")
    numbers(ax, anchors, 1.16, 1.33, ANCHOR)
    numbers(ax, states, 0.98, 0.8, BLACK)
    ax.set(aspect="equal", xlim=(-1.45, 1.45), ylim=(-1.45, 1.45))
    ax.axis("off")


def numbers(
    ax: Axes, angles: Float[np.ndarray, " tokens"], marks: float, ring: float, color: str
) -> None:
    """Each token's number on a ring, with a hair to its mark on another."""
    places = apart(angles, ROOM / ring)
    near = ring + (0.06 if marks > ring else -0.06)
    for n, (mark, hair, text) in enumerate(
        zip(at(angles, marks), at(places, near), at(places, ring), strict=True)
    ):
        ax.plot(*np.stack([mark, hair]).T, color=color, lw=0.4)
        ax.text(text[0], text[1], str(n), color=color, fontsize=7.5, ha="center", va="center")


def at(angles: Float[np.ndarray, " n"], radius: float) -> Float[np.ndarray, "n 2"]:
    return radius * np.stack([np.cos(angles), np.sin(angles)], axis=-1)


def apart(angles: Float[np.ndarray, " n"], least: float) -> np.ndarray:
    """The angles pushed along the circle until neighbours are `least` apart: room for labels.

    >>> apart(np.array([0.0, 0.1, 3.0]), 0.3).round(2).tolist()
    [-0.1, 0.2, 3.0]
    """
    if len(angles) < 2:
        return angles
    order = np.argsort(angles, kind="stable")
    placed = angles[order].astype(float)
    least = min(least, 2 * np.pi / len(angles))
    for _ in range(200):
        gap = np.diff(placed, append=placed[0] + 2 * np.pi)
        push = np.clip(least - gap, 0, None) / 2
        if push.max() < 1e-4:
            break
        placed += np.roll(push, 1) - push
    found = np.empty_like(placed)
    found[order] = placed
    return found


def heat(ax: Axes, weights: Float[np.ndarray, "i j"], words: Sequence[str]) -> None:
    """Attention among the words, queries downward; above the diagonal there is none."""
    past = np.tril(np.ones_like(weights, dtype=bool))
    image = ax.imshow(np.where(past, weights, np.nan), cmap="cividis", vmin=0)
    ax.figure.colorbar(image, ax=ax, shrink=0.9, label="weight, mean over heads")
    ticks = np.arange(len(words))
    names = [f"{n + 1} {w}" for n, w in enumerate(words)]
    ax.set_xticks(ticks, names, rotation=60, ha="right")
    ax.set_yticks(ticks, names)
    ax.set(xlabel="key", ylabel="query")
    ax.set_title("attention of the last layer (word 0, the beginning, left out)")
    ax.grid(visible=False)


def bars(ax: Axes, words: Sequence[str], probabilities: Float[np.ndarray, " words"]) -> None:
    """The next word, most probable first."""
    at = np.arange(len(words))
    ax.barh(at, 100 * probabilities, color=OSCILLATOR)
    ax.set_yticks(at, words)
    ax.invert_yaxis()
    for y, p in zip(at, probabilities, strict=True):
        ax.annotate(
            f"{100 * p:.1f}",
            (100 * p, y),
            xytext=(3, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
        )
    ax.grid(visible=False, axis="y")
    ax.set(xlabel="probability, %", title="next word", xlim=(0, 115 * max(probabilities)))
