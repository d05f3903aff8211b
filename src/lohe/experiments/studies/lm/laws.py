"""Power laws of the gap to softmax, of the published seeds and of ours.

The method is the published one (measure/power_law.py). The published laws are recomputed from the
published perplexities of each seed.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import pairwise
from statistics import fmean

import numpy as np

from lohe.experiments.evidence import Evidence
from lohe.experiments.studies.lm.language_modeling import (
    DIMENSIONS,
    by_dimension,
    printed_oscillator,
    printed_softmax,
    softmax,
)
from lohe.experiments.studies.lm.perplexity import READINGS
from lohe.experiments.verdicts import Estimate
from lohe.measure.power_law import HeldOut, PowerLaw, Resampled, fit, held_out, resampled

UNSEEN = 64  # the dimension held out of the fit
PAPER = "paper"


@dataclass(frozen=True)
class Law:
    """Perplexities by seed of one corpus in one reading, and what follows from them."""

    softmax: Sequence[float]
    samples: Mapping[int, Sequence[float]]
    unseen: Sequence[float]
    fit: PowerLaw | None  # None: runs are missing, or a gap is not above 0
    spread: Resampled | None
    held_out: HeldOut | None

    @property
    def base(self) -> float:
        return fmean(self.softmax)

    def gap(self, d_osc: int) -> float:
        return fmean(self.samples[d_osc]) - self.base

    @property
    def exponent(self) -> Estimate | None:
        """With the standard error of the resampling; `own` as if all of it were our seeds'."""
        if self.fit is None or self.spread is None:
            return None
        se, seeds = self.spread.exponent_se, min(len(x) for x in self.samples.values())
        return Estimate(self.fit.exponent, se, None, seeds, se**2)

    @property
    def steps(self) -> list[float]:
        """The part of the gap that each doubling of d_osc takes off: the same, were it a law."""
        gaps = [self.gap(d) for d in sorted(self.samples)]
        return [1 - b / a for a, b in pairwise(gaps)]


def law(
    softmax: Sequence[float],
    samples: Mapping[int, Sequence[float]],
    unseen: Sequence[float],
    rng: np.random.Generator,
) -> Law:
    """Fit, resample and predict, as far as the runs allow."""
    known = [softmax, *samples.values()]
    complete = all(values and all(map(math.isfinite, values)) for values in known)
    if not complete or any(fmean(values) <= fmean(softmax) for values in samples.values()):
        return Law(softmax, samples, unseen, None, None, None)
    base = fmean(softmax)
    line = fit(list(samples), [fmean(values) - base for values in samples.values()])
    spread = resampled(softmax, samples, rng)
    there = bool(unseen) and all(map(math.isfinite, unseen))
    tested = held_out(spread, UNSEEN, unseen, base) if there else None
    return Law(softmax, samples, unseen, line, spread, tested)


@cache
def published_laws() -> dict[str, Law]:
    """Of the published seeds, TinyStories first: one generator serves both."""
    rng = np.random.default_rng(0)
    found = {}
    for corpus in ("tinystories", "wikitext2"):
        samples = {d: printed_oscillator(corpus, d) for d in DIMENSIONS}
        unseen = printed_oscillator(corpus, UNSEEN)
        found[corpus] = law(printed_softmax(corpus), samples, unseen, rng)
    return found


@lru_cache(maxsize=16)
def our_law(evidence: Evidence, corpus: str, reading: str) -> Law:
    """Of our own seeds; each corpus and reading is resampled anew, whatever the others have."""
    samples = by_dimension(evidence, corpus, reading)
    unseen = by_dimension(evidence, corpus, reading, [UNSEEN])[UNSEEN]
    return law(softmax(evidence, corpus), samples, unseen, np.random.default_rng(0))


def laws(evidence: Evidence, corpus: str) -> Iterator[tuple[str, Law]]:
    """Each reading of ours that has runs, then the published one."""
    for reading in READINGS:
        here = our_law(evidence, corpus, reading)
        if here.softmax and (any(here.samples.values()) or here.unseen):
            yield reading, here
    yield PAPER, published_laws()[corpus]
