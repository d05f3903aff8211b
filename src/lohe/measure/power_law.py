"""How a gap falls with a dimension: a power law, its spread over seeds, a point held out."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

import numpy as np
from jaxtyping import Float, Shaped

from lohe.measure.significance import widening

DRAWS = 2000  # published
NORMAL_95 = 1.96  # published: two digits
EXPONENTS = np.geomspace(0.05, 5.0, 461)  # of laws with a floor: one per cent apart


@dataclass(frozen=True)
class PowerLaw:
    """gap ≈ prefactor · d^(-exponent); `r2` is that of the straight line in logarithms."""

    prefactor: float
    exponent: float
    r2: float

    def gap(self, d: float) -> float:
        return float(self.prefactor * d**-self.exponent)

    def dimension(self, gap: float) -> float:
        """The design rule d = (C / gap)^(1/α); NaN where a law that does not fall gives none.

        >>> round(PowerLaw(16.0, 0.5, 1.0).dimension(2.0), 6)
        64.0
        """
        if not (self.exponent > 0 and self.prefactor > 0 and gap > 0):
            return math.nan
        log_d = math.log(self.prefactor / gap) / self.exponent
        return math.exp(log_d) if log_d < 700 else math.inf


@dataclass(frozen=True)
class Resampled:
    """Laws refitted to seeds drawn with replacement."""

    prefactors: Float[np.ndarray, " draw"]
    exponents: Float[np.ndarray, " draw"]

    @property
    def exponent_se(self) -> float:
        return float(np.std(self.exponents)) if len(self.exponents) else math.nan

    @property
    def exponent_interval(self) -> tuple[float, float]:
        """95 % percentile interval."""
        if not len(self.exponents):
            return math.nan, math.nan
        low, high = np.percentile(self.exponents, [2.5, 97.5])
        return float(low), float(high)

    def gaps(self, d: float) -> Float[np.ndarray, " draw"]:
        return self.prefactors * d**-self.exponents


@dataclass(frozen=True)
class HeldOut:
    """A gap that no fit has seen, against its prediction and the 95 % interval around that."""

    predicted: float  # median of the resampled laws
    sigma: float  # their deviation
    observed: float
    sem: float
    low: float
    high: float
    z: float
    p: float

    @property
    def inside(self) -> bool | None:
        """None where there is no interval: one seed, or no law."""
        return self.low <= self.observed <= self.high if math.isfinite(self.z) else None


def fit(dimensions: Sequence[float], gaps: Sequence[float]) -> PowerLaw:
    """Least squares of ln(gap) on ln(d), every dimension with the same weight.

    >>> law = fit([2, 4, 8], [8.0, 4.0, 2.0])
    >>> round(law.prefactor, 6), round(law.exponent, 6), round(law.r2, 6)
    (16.0, 1.0, 1.0)
    """
    if len(set(dimensions)) < 2 or not all(gap > 0 for gap in gaps):
        raise ValueError(
            f"A power law needs gaps above 0 at two dimensions at least, got {list(gaps)} at "
            f"{list(dimensions)}."
        )
    y = np.log(np.asarray(gaps, dtype=float))
    prefactor, exponent = _lines(np.asarray(dimensions, dtype=float), y[None])
    rest = y - np.log(prefactor) + exponent * np.log(dimensions)
    total = float(np.square(y - y.mean()).sum())
    r2 = 1 - float(np.square(rest).sum()) / total if total > 0 else math.nan
    return PowerLaw(prefactor.item(), exponent.item(), r2)


def resampled(
    baseline: Sequence[float],
    samples: Mapping[int, Sequence[float]],
    rng: np.random.Generator,
    draws: int = DRAWS,
) -> Resampled:
    """The law of mean(samples[d]) - mean(baseline), with the seeds of each drawn anew.

    In each draw the baseline comes first, then the dimensions upward, all from `rng`; a draw in
    which a gap is not above 0 is left out. With the published values and generator this gives the
    published laws.
    """
    dimensions = sorted(samples)
    groups = [np.asarray(x, dtype=float) for x in (baseline, *(samples[d] for d in dimensions))]
    if not all(len(x) and np.isfinite(x).all() for x in groups):
        raise ValueError(
            f"Seeds are drawn from finite values, of the baseline and at each dimension, got "
            f"{list(baseline)} and {dict(samples)}. A draw without its NaN would be another law."
        )
    chosen = [[rng.integers(0, len(x), len(x)) for x in groups] for _ in range(draws)]
    means = [x[[draw[n] for draw in chosen]].mean(axis=1) for n, x in enumerate(groups)]
    gaps = np.stack(means[1:], axis=1) - means[0][:, None]
    gaps = gaps[(gaps > 0).all(axis=1)]
    return Resampled(*_lines(np.asarray(dimensions, dtype=float), np.log(gaps)))


def held_out(spread: Resampled, d: float, values: Sequence[float], baseline: float) -> HeldOut:
    """The mean of `values` at dimension d against the resampled laws.

    The interval is median ± 1.96 sqrt(sem² + sigma²). As published it takes the baseline of the
    observed gap as exact: its error enters only through the laws.
    """
    from scipy import stats

    gaps = spread.gaps(d)
    predicted = float(np.median(gaps)) if len(gaps) else math.nan
    sigma = float(np.std(gaps)) if len(gaps) else math.nan
    sem = stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    observed = fmean(values) - baseline
    reach = math.hypot(sem, sigma)
    z = (observed - predicted) / reach if reach > 0 else math.nan
    half = NORMAL_95 * reach
    p = float(2 * stats.norm.sf(abs(z)))
    return HeldOut(predicted, sigma, observed, sem, predicted - half, predicted + half, z, p)


def _lines(
    dimensions: Float[np.ndarray, " d"], logs: Float[np.ndarray, "draw d"]
) -> tuple[Shaped[np.ndarray, " draw"], Shaped[np.ndarray, " draw"]]:
    """Prefactor and exponent of each row's least-squares line through (ln d, ln gap)."""
    x = np.log(dimensions)
    slope = logs @ (x - x.mean()) / np.square(x - x.mean()).sum()
    return np.exp(logs.mean(axis=1) - slope * x.mean()), -slope


@dataclass(frozen=True)
class Floored:
    """y ≈ floor + prefactor · d^(-exponent): where does it end?"""

    floor: float
    prefactor: float
    exponent: float

    def value(self, d: float) -> float:
        return float(self.floor + self.prefactor * d**-self.exponent)


@dataclass(frozen=True)
class FlooredDraws(Resampled):
    """Floored laws refitted to seeds drawn with replacement; `baselines` are drawn with them."""

    floors: Float[np.ndarray, " draw"]
    baselines: Float[np.ndarray, " draw"]

    def gaps(self, d: float) -> Float[np.ndarray, " draw"]:
        """The values themselves: their gap to 0."""
        return self.floors + super().gaps(d)

    @property
    def above_baseline(self) -> tuple[float, float]:
        """95 % percentile interval of the floor minus the mean of the baseline."""
        if not len(self.floors):
            return math.nan, math.nan
        low, high = np.percentile(self.floors - self.baselines, [2.5, 97.5])
        return float(low), float(high)


def fit_floored(dimensions: Sequence[float], values: Sequence[float]) -> Floored:
    """Least squares of the values themselves, every dimension with the same weight.

    For a given exponent the law is a straight line in d^(-exponent); of the exponents in
    `EXPONENTS` the best is taken. A best one at either end says that the data do not bend enough to
    tell a floor.

    >>> law = fit_floored([2, 4, 8, 16], [18.0, 14.0, 12.0, 11.0])
    >>> round(law.floor, 1), round(law.exponent, 2)
    (10.0, 1.0)
    """
    if len(set(dimensions)) < 3 or not all(map(math.isfinite, values)):
        raise ValueError(
            f"A law with a floor needs finite values at three dimensions at least, got "
            f"{list(values)} at {list(dimensions)}."
        )
    floor, prefactor, exponent = _floored(
        np.asarray(dimensions, dtype=float), np.asarray(values, dtype=float)[None]
    )
    return Floored(floor.item(), prefactor.item(), exponent.item())


def resampled_floored(
    baseline: Sequence[float],
    samples: Mapping[int, Sequence[float]],
    rng: np.random.Generator,
    draws: int = DRAWS,
) -> FlooredDraws:
    """The floored law of mean(samples[d]), with the seeds of each, and the baseline's, redrawn.

    Their deviations are widened for the small number of seeds (`widening`), which those of
    `resampled`, as published, are not.
    """
    dimensions = sorted(samples)
    groups = [np.asarray(x, dtype=float) for x in (baseline, *(samples[d] for d in dimensions))]
    wider = widening([len(x) for x in groups])
    means = [_redrawn(x, rng, draws, by) for x, by in zip(groups, wider, strict=True)]
    law = _floored(np.asarray(dimensions, dtype=float), np.stack(means[1:], axis=1))
    floors, prefactors, exponents = law
    return FlooredDraws(prefactors, exponents, floors, means[0])


def _redrawn(
    x: Float[np.ndarray, " n"], rng: np.random.Generator, draws: int, wider: float
) -> Float[np.ndarray, " draw"]:
    """Means of n values drawn from these n, their deviations times `wider`."""
    n, mean = len(x), x.mean()
    return mean + wider * (x[rng.integers(0, n, (draws, n))].mean(axis=1) - mean)


def _floored(
    dimensions: Float[np.ndarray, " d"], values: Float[np.ndarray, "draw d"]
) -> tuple[Shaped[np.ndarray, " draw"], Shaped[np.ndarray, " draw"], Shaped[np.ndarray, " draw"]]:
    """Floor, prefactor and exponent of each row: the exponent that leaves the least squares."""
    x = dimensions ** -EXPONENTS[:, None]  # (exponent, d)
    centred = x - x.mean(axis=1, keepdims=True)
    y = values - values.mean(axis=1, keepdims=True)
    slopes = y @ (centred / np.square(centred).sum(axis=1, keepdims=True)).T  # (draw, exponent)
    explained = slopes**2 * np.square(centred).sum(axis=1)
    best = explained.argmax(axis=1)
    slope = slopes[np.arange(len(values)), best]
    return values.mean(axis=1) - slope * x[best].mean(axis=1), slope, EXPONENTS[best]
