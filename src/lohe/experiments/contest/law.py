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
from lohe.experiments.contest.stages import FITTED, HELD_OUT, Chosen, curves
from lohe.experiments.contest.trials import STAGES, Configuration
from lohe.experiments.evidence import Evidence
from lohe.experiments.verdicts import NO_RECORDS, Estimate, of_sample
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
    lacks: str = ""  # why there is no fit
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
        missed = [str(d) for d, x in (self.held_out or {}).items() if x.inside is False]
        if missed:
            return f"no floor can be told: the law fails at d_osc = {' and '.join(missed)}"
        return ""

    @property
    def no_softmax(self) -> str:
        """Why there is none to compare the floor with, or nothing."""
        lacks = wanting(self.softmax)
        return f"softmax: {lacks}" if lacks else ""


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
    """Fit, resample and predict, as far as the runs allow; the fit does not need the softmax."""
    wants = {d: wanting(samples.get(d)) for d in FITTED}
    if any(wants.values()):
        return Law(samples, softmax, _said(wants))
    fitted = {d: samples[d] for d in FITTED}
    line = fit_floored(list(fitted), [fmean(x) for x in fitted.values()])
    alone = Law(samples, softmax, fit=line)
    baseline = [math.nan] if alone.no_softmax else softmax
    spread = resampled_floored(baseline, fitted, np.random.default_rng(0))
    tested = {d: at(spread, d, samples[d]) for d in HELD_OUT if not wanting(samples.get(d))}
    return replace(alone, spread=spread, held_out=tested)


def wanting(sample: Sequence[float] | None) -> str:
    """What a sample lacks: records, seeds, or runs that did not diverge. Empty: nothing."""
    seeds = len(STAGES["law"].seeds)
    if not sample:
        return NO_RECORDS
    if not all(map(math.isfinite, sample)):
        return "diverged"
    return f"{len(sample)} of {seeds} seeds" if len(sample) < seeds else ""


def _said(wants: Mapping[int, str]) -> str:
    """2 of 5 seeds at d_osc = 16; no records at 32; where all lack the same, only that."""
    dimensions: dict[str, list[str]] = {}
    for d, what in wants.items():
        dimensions.setdefault(what, []).append(str(d))
    if len(dimensions) == 1:
        return next(iter(dimensions))
    return "; ".join(f"{x} at d_osc = {', '.join(d)}" for x, d in dimensions.items() if x)


def at(spread: FlooredDraws, d: int, values: Sequence[float]) -> HeldOut:
    """Values at a dimension held out against their prediction, the interval by Student's t.

    Most of the error is that of these few seeds, and 1.96 standard errors are too few for it.
    """
    plain = held_out(spread, d, values, 0.0)
    off = of_sample(values) - Estimate(plain.predicted, plain.sigma)
    low, high = off.interval(0.95)
    half = (high - low) / 2
    return replace(plain, low=plain.predicted - half, high=plain.predicted + half, p=off.p)
