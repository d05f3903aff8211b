"""Perplexity against d_osc: floor + prefactor · d^(-exponent), tested at two dimensions held out.

On the second half of the validation articles, which no epoch and no configuration was chosen by;
the test articles stay closed.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import numpy as np

from lohe.experiments.contest.divergence import has_diverged
from lohe.experiments.contest.trials import (
    FITTED,
    HELD_OUT,
    STAGES,
    Chosen,
    Configuration,
    curves,
)
from lohe.experiments.evidence import Evidence
from lohe.experiments.verdicts import Estimate, of_sample
from lohe.measure.power_law import (
    EXPONENTS,
    Floored,
    FlooredDraws,
    HeldOut,
    fit_floored,
    held_out,
    resampled_floored,
)

LATER = "later.perplexity"
FEW = 0.025  # of the draws: what one end of a 95 % interval leaves out


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

    @property
    def no_floor(self) -> str:
        """Why no floor can be told, or nothing."""
        if self.fit is None or self.spread is None:
            return ""
        at_edge = np.isin(self.spread.exponents, EXPONENTS[[0, -1]])
        rises = self.spread.prefactors <= 0
        if self.fit.prefactor <= 0:
            return "no floor can be told: perplexity does not fall with d_osc"
        if self.fit.exponent in EXPONENTS[[0, -1]]:
            return "no floor can be told: the exponent is at the edge of what was searched"
        if (share := float(np.mean(at_edge | rises))) > FEW:
            return (
                f"no floor can be told: in {100 * share:.0f} % of the draws the exponent is at the "
                "edge of what was searched, or perplexity does not fall"
            )
        return ""


def perplexities(evidence: Evidence, configuration: Configuration) -> list[float]:
    """Of the law's seeds, in order."""
    there = evidence.of(STAGES["law"].runs(configuration))
    return [math.nan if has_diverged(r) else r.result[LATER] for r in there]


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
        d: at(spread, d, values)
        for d in HELD_OUT
        if len(values := samples.get(d, ())) > 1 and all(map(math.isfinite, values))
    }
    return Law(samples, softmax, line, spread, tested)


def at(spread: FlooredDraws, d: int, values: Sequence[float]) -> HeldOut:
    """Values at a dimension held out against their prediction, the interval by Student's t.

    Most of the error is that of these few seeds, and 1.96 standard errors are too few for it.
    """
    plain = held_out(spread, d, values, 0.0)
    off = of_sample(values) - Estimate(plain.predicted, plain.sigma)
    low, high = off.interval(0.95)
    half = (high - low) / 2
    return replace(plain, low=plain.predicted - half, high=plain.predicted + half, p=off.p)
