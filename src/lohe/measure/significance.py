"""Are two samples different? scipy's tests, under the names that the paper uses."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import cast

Sample = Sequence[float]


@dataclass(frozen=True)
class Difference:
    """Difference of two means with its confidence interval (Welch: variances may differ)."""

    estimate: float
    low: float
    high: float

    @property
    def excludes_zero(self) -> bool:
        return self.low > 0 or self.high < 0


def mean_std(values: Sample) -> tuple[float, float]:
    """Mean and standard deviation with n - 1, as the paper prints them; one value has no spread."""
    return fmean(values), stdev(values) if len(values) > 1 else float("nan")


def welch(a: Sample, b: Sample, confidence: float = 0.95) -> Difference:
    """mean(a) - mean(b) with its confidence interval.

    >>> welch([1.0, 2.0, 3.0], [1.0, 2.0, 3.0]).estimate
    0.0
    """
    from scipy import stats

    if len(a) < 2 or len(b) < 2:
        raise ValueError(
            f"An interval needs two values a side at least, got {len(a)} and {len(b)}."
        )
    interval = stats.ttest_ind(a, b, equal_var=False).confidence_interval(confidence)
    return Difference(fmean(a) - fmean(b), float(interval.low), float(interval.high))


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


def proportion_interval(failures: int, runs: int, confidence: float = 0.95) -> tuple[float, float]:
    """Exact (Clopper-Pearson) interval of a failure rate."""
    from scipy import stats

    interval = stats.binomtest(failures, runs).proportion_ci(confidence)
    return float(interval.low), float(interval.high)
