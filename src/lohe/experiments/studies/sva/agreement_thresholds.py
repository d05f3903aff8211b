"""Does the claim about training failures depend on where failing begins (D18)?"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from jaxtyping import Float

from lohe.experiments.item import Figure
from lohe.experiments.studies.sva.agreement_cohort import (
    FAILS_BELOW,
    OSCILLATORS,
    SOFTMAX,
    Cohort,
    below,
    paper,
)
from lohe.experiments.verdicts import rules, significant
from lohe.measure.significance import fisher

THRESHOLDS = np.arange(75, 95.25, 0.25)  # percent
METRICS = ("hard", "overall")
PAPER = " (paper)"


def fisher_by_threshold(
    oscillator: Sequence[float],
    softmax: Sequence[float],
    thresholds: Float[np.ndarray, " thresholds"] = THRESHOLDS,
) -> Float[np.ndarray, " thresholds"]:
    """Fisher's p of the seeds below each threshold.

    >>> some, more = [97.0] * 47 + [80.0] * 3, [97.0] * 38 + [80.0] * 12
    >>> fisher_by_threshold(some, more, np.array([75.0, 85.0])).round(3).tolist()
    [1.0, 0.023]
    """
    k = [(below(oscillator, t), below(softmax, t)) for t in thresholds.tolist()]
    p = {pair: fisher(pair[0], len(oscillator), pair[1], len(softmax)) for pair in set(k)}
    return np.array([p[pair] for pair in k])


def notes(ours: Mapping[str, Cohort]) -> list[str]:
    """At how many thresholds the oscillator fails significantly less often."""
    said = []
    for name, oscillator, softmax in _pairs(ours):
        tested = {metric: _significant(oscillator, softmax, metric) for metric in METRICS}
        counts = " and ".join(f"{k} of {n} {metric}" for metric, (k, n) in tested.items())
        said.append(f"{name}: p < 0.05 at {counts} thresholds from 75 to 95 %.")
    return said


def _significant(oscillator: Cohort, softmax: Cohort, metric: str) -> tuple[int, int]:
    p = fisher_by_threshold(getattr(oscillator, metric), getattr(softmax, metric))
    return sum(map(significant, p.tolist())), len(p)


def _pairs(ours: Mapping[str, Cohort]) -> Iterator[tuple[str, Cohort, Cohort]]:
    """Oscillators with the softmax of the same study: the published seeds, then ours."""
    yield f"oscillator{PAPER}", paper("oscillator"), paper(SOFTMAX)
    for name in OSCILLATORS:
        if len(ours[name]) and len(ours[SOFTMAX]):
            yield name, ours[name], ours[SOFTMAX]


def figure(ours: Mapping[str, Cohort]) -> Figure:
    """Failures and Fisher's p against the threshold, hard and overall."""
    import matplotlib.pyplot as plt

    from lohe.viz import rates

    figure, axes = plt.subplots(
        2, 2, figsize=(9.0, 6.6), sharex=True, sharey="row", layout="constrained"
    )
    shown = {f"{name}{PAPER}": paper(name) for name in (SOFTMAX, "oscillator")}
    shown |= {name: group for name, group in ours.items() if len(group)}
    for (top, bottom), metric in zip(axes.T, METRICS, strict=True):
        for name, group in shown.items():
            values = getattr(group, metric)
            share = np.array([100 * below(values, t) / len(values) for t in THRESHOLDS.tolist()])
            rates.by_threshold(top, THRESHOLDS, share, name, f"{name}, {len(values)} seeds")
        for name, *both in _pairs(ours):
            p = fisher_by_threshold(*(getattr(group, metric) for group in both))
            rates.by_threshold(bottom, THRESHOLDS, p, name)
        rates.mark(top, FAILS_BELOW, "the paper's threshold")
        rates.mark(bottom, FAILS_BELOW)
        rates.significance(bottom, rules()["levels"]["claim"])
        top.set(title=f"{metric} accuracy", ylim=(0, None))
        bottom.set(xlabel="a seed fails below this accuracy, %", xticks=range(75, 96, 5))
    axes[0, 0].set_ylabel("failed seeds, %")
    axes[1, 0].set_ylabel("Fisher's p against softmax")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure
