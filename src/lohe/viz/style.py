"""One plot style for every picture: colour-blind safe, readable in print and on a phone."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

# Okabe and Ito's palette
BLUE, ORANGE, GREEN, RED = "#0072B2", "#E69F00", "#009E73", "#D55E00"
PURPLE, SKY, BLACK, GREY = "#CC79A7", "#56B4E9", "#000000", "#8A8A8A"
ANCHOR, OSCILLATOR = RED, BLUE  # as in the paper's Figure 1: anchors are squares, oscillators dots
SOFTMAX = ORANGE
DEFINED = SKY  # the oscillator as defined, where the one as published is OSCILLATOR
FORMATS = (".png", ".svg", ".pdf")  # of files

SETTINGS = {
    "figure.dpi": 110,
    "savefig.dpi": 160,
    "savefig.bbox": "tight",
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.prop_cycle": f"cycler('color', {[BLUE, RED, GREEN, ORANGE, PURPLE, SKY, BLACK]})",
    "axes.grid": True,
    "grid.alpha": 0.25,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "svg.hashsalt": "lohe",  # the same picture is the same file
}


@contextmanager
def drawing() -> Iterator[None]:
    """Draw inside this: matplotlib without a screen, in lohe's style, and as it was afterwards."""
    import matplotlib as mpl

    mpl.use("Agg")
    with mpl.rc_context(rc=cast(Any, SETTINGS)):
        yield


def without_caps(bars, cut) -> None:
    """Error bars that are cut where values end (no accuracy is above 100 %) do not end there."""
    upper = bars.lines[1][-1]
    upper.set_ydata([math.nan if c else y for c, y in zip(cut, upper.get_ydata(), strict=True)])


def legend_below(figure, ncols: int) -> None:
    """One legend below all panels, where it covers nothing; each label once."""
    named = {}
    for ax in figure.axes:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            named.setdefault(label, handle)
    figure.legend(list(named.values()), list(named), loc="outside lower center", ncols=ncols)


def check_format(path: Path) -> None:
    """Refuses a file name that no figure can be written to, before anything is made."""
    if path.suffix not in FORMATS:
        raise ValueError(f"--figure {path}: choose a name that ends in {', '.join(FORMATS)}.")


def save(figure, path: Path) -> Path:
    """Write the figure without a date, so that the same picture is the same file."""
    import matplotlib.pyplot as plt

    path.parent.mkdir(parents=True, exist_ok=True)
    undated = {"Software": None} if path.suffix == ".png" else {"Date": None}
    try:
        figure.savefig(path, metadata=undated)
    except OSError as error:
        error.filename = error.filename or str(path)  # a full disk does not say which file
        raise
    finally:
        plt.close(figure)
    return path
