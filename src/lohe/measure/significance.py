"""Are two samples different? scipy's tests, under the names that the paper uses."""

import math
from collections.abc import Sequence
from itertools import combinations
from statistics import fmean, stdev
from typing import cast

import numpy as np

Sample = Sequence[float]


def mean_std(values: Sample) -> tuple[float, float]:
    """Mean and standard deviation with n - 1, as the paper prints them.

    One value has no spread, nor have values of which one is not finite (`stdev` refuses those).
    """
    spread = len(values) > 1 and all(math.isfinite(x) for x in values)
    return fmean(values), stdev(values) if spread else math.nan


def sem(values: Sample) -> float:
    """Standard error of the mean; NaN, which is not drawn, where there is none."""
    return mean_std(values)[1] / math.sqrt(len(values))


def welch_false_alarms(values: Sample, size: int, confidence: float = 0.95) -> float:
    """How often Welch's interval tells `size` of these values from the rest: a sound one, in 5 %.

    Over all subsets. With few values of a distribution in two lumps it is far more: a subset from
    one lump has next to no spread. Two sides without any differ if their means do.

    >>> round(welch_false_alarms([97 + k / 10 for k in range(20)] + [75.0] * 4, 3), 2)
    0.34
    """
    from scipy import stats

    subsets = math.comb(len(values), size)
    rest = len(values) - size
    if size < 2 or rest < 2 or subsets > 1_000_000:
        raise ValueError(
            f"All subsets of {size} out of {len(values)} values: needs two values a side at least, "
            f"and at most a million subsets; got {subsets:,}."
        )
    x = np.asarray(values, dtype=float)
    if not np.isfinite(x).all():
        return math.nan
    rounding = 8 * np.finfo(float).eps * np.abs(x).max()
    x = x - x.mean()  # the sums of squares below keep their digits
    chosen = x[np.array(list(combinations(range(len(x)), size)))]
    mean = -chosen.sum(axis=1) / rest
    spread = (np.square(x).sum() - np.square(chosen).sum(axis=1) - rest * mean**2) / (rest - 1)
    a, b = chosen.var(axis=1, ddof=1) / size, np.maximum(spread, 0) / rest
    flat = a + b <= rounding**2
    a = np.where(flat, 1, a)  # no 0/0
    freedom = (a + b) ** 2 / (a**2 / (size - 1) + b**2 / (rest - 1))
    reach = stats.t.ppf((1 + confidence) / 2, freedom) * np.sqrt(a + b)
    return float(np.mean(np.abs(chosen.mean(axis=1) - mean) > np.where(flat, rounding, reach)))


def widening(sizes: Sequence[int]) -> list[float]:
    """Factors for the deviations of bootstrapped means of so many values each.

    A mean of n values drawn from n varies too little, by (n - 1)/n of its variance; and percentiles
    reach as far as a normal's, not as Student's t of all the samples together.

    >>> [round(x, 2) for x in widening([5, 5])]
    [1.32, 1.32]
    """
    from scipy import stats

    freedom = max(1, sum(n - 1 for n in sizes))
    reach = float(stats.t.ppf(0.975, freedom) / stats.norm.ppf(0.975))
    return [reach * math.sqrt(n / max(n - 1, 1)) for n in sizes]


def fisher(failures_a: int, runs_a: int, failures_b: int, runs_b: int) -> float:
    """Two-sided p-value of Fisher's exact test on failures among runs.

    >>> round(fisher(3, 50, 12, 50), 3)  # Section 4.1's claim
    0.023
    """
    from scipy import stats

    table = [[failures_a, runs_a - failures_a], [failures_b, runs_b - failures_b]]
    _, p = stats.fisher_exact(table)
    return float(cast(float, p))


def mann_whitney(a: Sample, b: Sample) -> float:
    """Two-sided p-value of the Mann-Whitney U test."""
    from scipy import stats

    return float(stats.mannwhitneyu(a, b, alternative="two-sided").pvalue)


def superiority(a: Sample, b: Sample) -> float:
    """Share of pairs in which a's value is the higher one, ties half: what Mann-Whitney tests.

    >>> superiority([1.0, 2.0], [0.0, 1.0])
    0.875
    """
    from scipy import stats

    u = stats.mannwhitneyu(a, b, alternative="two-sided").statistic
    return float(u) / (len(a) * len(b))


def fisher_power(rate_a: float, rate_b: float, runs: int, alpha: float = 0.05) -> float:
    """Probability that Fisher's test on `runs` a side finds these failure rates different.

    >>> round(fisher_power(0.06, 0.24, 50), 2), round(fisher_power(0.06, 0.24, 100), 2)
    (0.63, 0.94)
    """
    from scipy import stats

    counts = range(runs + 1)
    a, b = (stats.binom.pmf(counts, runs, rate) for rate in (rate_a, rate_b))
    found = [
        (k, m)
        for k in range(runs + 1)
        for m in range(runs + 1)
        if a[k] * b[m] > 1e-12 and fisher(k, runs, m, runs) < alpha
    ]
    return float(sum(a[k] * b[m] for k, m in found))


def proportion_interval(failures: int, runs: int) -> tuple[float, float]:
    """Exact (Clopper-Pearson) 95 % interval of a failure rate."""
    from scipy import stats

    interval = stats.binomtest(failures, runs).proportion_ci(0.95)
    return float(interval.low), float(interval.high)
