"""Perplexity against d_osc: floor + prefactor · d^(-exponent), tested at two dimensions held out.

On the second half of the validation articles, which no epoch and no configuration was chosen by;
the test articles stay closed.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from lohe.experiments.contest.choose import Chosen
from lohe.experiments.contest.trials import FITTED, HELD_OUT, STAGES, Configuration, curves
from lohe.experiments.evidence import Evidence
from lohe.measure.power_law import (
    Floored,
    FlooredDraws,
    HeldOut,
    fit_floored,
    held_out,
    resampled_floored,
)

LATER = "later.perplexity"


@dataclass(frozen=True)
class Law:
    """One curve: perplexities by d_osc and seed, and what follows where all are there."""

    samples: Mapping[int, Sequence[float]]
    softmax: Sequence[float]
    fit: Floored | None = None
    spread: FlooredDraws | None = None
    held_out: Mapping[int, HeldOut] | None = None

    @property
    def above_softmax(self) -> float:
        """The floor minus the best softmax's perplexity."""
        return self.fit.floor - fmean(self.softmax) if self.fit and self.softmax else math.nan


def perplexities(evidence: Evidence, configuration: Configuration) -> list[float]:
    """Of the law's seeds, in order."""
    runs = STAGES["law"].runs(configuration)
    wanted = {run.seed for run in runs}
    return [r.result[LATER] for r in evidence.records(runs[0]) if r.seed in wanted]


def laws(evidence: Evidence, chosen: Chosen) -> dict[str, Law]:
    """Of both curves."""
    softmax = perplexities(evidence, chosen.best)
    found = {}
    for name, by_dimension in curves(chosen.ours).items():
        samples = {d: perplexities(evidence, c) for d, c in by_dimension.items()}
        found[name] = law(samples, softmax)
    return found


def law(samples: Mapping[int, Sequence[float]], softmax: Sequence[float]) -> Law:
    """Fit, resample and predict, as far as the runs allow."""
    fitted = {d: samples.get(d, ()) for d in FITTED}
    known = [softmax, *fitted.values()]
    if not all(len(x) > 1 and all(map(math.isfinite, x)) for x in known):
        return Law(samples, softmax)
    line = fit_floored(list(fitted), [fmean(x) for x in fitted.values()])
    spread = resampled_floored(softmax, fitted, np.random.default_rng(0))
    tested = {
        d: held_out(spread, d, values, 0.0)
        for d in HELD_OUT
        if (values := samples.get(d)) and all(map(math.isfinite, values))
    }
    return Law(samples, softmax, line, spread, tested)
