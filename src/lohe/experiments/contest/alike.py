"""The trials, like against like: each family's best at the same learning rate and dropout.

Trials are there to choose by, and by the best of each family a learning rate may win for a
mechanism. Here it cannot. On the second half of the validation articles, which chose nothing; it
decides nothing either.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import fmean

from lohe.experiments.contest import choose
from lohe.experiments.contest.confirm import percent
from lohe.experiments.contest.divergence import has_diverged
from lohe.experiments.contest.trials import FAMILIES, OURS, RIVALS, SHARED, STAGES
from lohe.experiments.evidence import Evidence
from lohe.experiments.item import Figure
from lohe.experiments.store.records import Record
from lohe.experiments.tables import Table
from lohe.experiments.verdicts import Estimate, of_sample

NATS = "later.nats"
TITLE = "The trials, like against like"


@dataclass(frozen=True, order=True)
class Training:
    """What all families share in the trials."""

    learning_rate: float
    dropout: float


TRAININGS = tuple(Training(rate, drop) for rate, drop in product(*SHARED.values()))


def best_alike(evidence: Evidence, family: str) -> dict[Training, list[Record]]:
    """Records of the family's best setting in each training, by the half that chooses; none before
    all of its trials are recorded."""
    if choose.finalists(evidence, family) is None:
        return {}
    best: dict[Training, list[Record]] = {}
    for standing in choose.in_trials(evidence, family):  # best first
        c = standing.configuration
        training = Training(c.learning_rate, c.dropout)
        if training not in best:
            best[training] = evidence.records(STAGES["trials"].runs(c)[0])
    return best


def changes(evidence: Evidence, family: str) -> dict[Training, float]:
    """Log perplexity of ours minus the family's, mean over the seeds that both have; without
    trainings in which one of them diverged."""
    ours, theirs = best_alike(evidence, OURS), best_alike(evidence, family)
    return {
        training: fmean(a[seed] - b[seed] for seed in both)
        for training in sorted(ours.keys() & theirs.keys())
        if not any(map(has_diverged, (*ours[training], *theirs[training])))
        for a, b in [(_nats(ours[training]), _nats(theirs[training]))]
        if (both := a.keys() & b.keys())
    }


def average(changes: Mapping[Training, float]) -> Estimate | None:
    """Over the trainings, each of which counts once."""
    return of_sample(list(changes.values())) if len(changes) > 1 else None


def table(evidence: Evidence) -> Table:
    """A row for each training; below, ours against each family."""
    best = {family: found for family in FAMILIES if (found := best_alike(evidence, family))}
    columns = ("learning rate", "dropout", *best)
    if OURS not in best:
        return Table(TITLE, columns, [])
    rows = [
        (f"{t.learning_rate:g}", f"{t.dropout:g}", *(_shown(x.get(t, ())) for x in best.values()))
        for t in reversed(TRAININGS)
    ]
    rivals = {family: average(changes(evidence, family)) for family in best if family != OURS}
    if rivals:
        rows.append(("ours against it, %", "", "", *map(_change, rivals.values())))
    waiting = [family for family in FAMILIES if family not in best]
    notes = [
        "Perplexity on the second half of the validation articles, strict, 10 epochs, mean over "
        "seeds, of the setting that is best on the first half. Ours, rotary and positions have "
        "some four settings in each row to choose from, the others fewer and more seeds. ours "
        "against it: change of perplexity, mean over the rows with its 95 % interval by Student's "
        "t, paired by seed. Everybody is undertrained: all lead with the largest learning rate. "
        "It decides nothing.",
        *([f"Trials not complete: {'; '.join(waiting)}."] if waiting else []),
    ]
    return Table(TITLE, columns, rows, notes)


def drawable(evidence: Evidence) -> bool:
    """Whether ours can be compared with some family."""
    return any(changes(evidence, family) for family in RIVALS)


def figure(evidence: Evidence) -> Figure:
    """Ours against each family: a dot a training, and the mean with its interval."""
    import matplotlib.pyplot as plt

    from lohe.viz.differences import against_zero, strip
    from lohe.viz.style import BLUE, GREEN, RED, SKY

    colors = dict(zip(SHARED["learning_rate"], (RED, SKY, BLUE), strict=True))
    found = {family: x for family in RIVALS if (x := changes(evidence, family))}
    drawn, ax = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
    for at, apart in enumerate(found.values()):
        mean = average(apart)
        strip(
            ax,
            at,
            [percent(x) for x in apart.values()],
            colors=[colors[t.learning_rate] for t in apart],
            hollow=[t.dropout == max(SHARED["dropout"]) for t in apart],
            mean=percent(mean.value) if mean else math.nan,
            interval=[percent(x) for x in mean.interval(0.95)] if mean else (math.nan, math.nan),
        )
    names = [
        family.replace(", ", ",\n").replace("positions in", "positions in\n") for family in found
    ]
    against_zero(ax, names, better="ours is better", worse="ours is worse")
    ax.set_ylabel("ours against it, % of perplexity")
    for rate, color in colors.items():
        ax.plot([], [], "o", color=color, label=f"learning rate {rate:g}")
    ax.plot([], [], "o", mfc="white", mec="black", label="dropout 0.2")
    ax.legend(fontsize=8, loc="best")
    return drawn


def _nats(records: Sequence[Record]) -> dict[int, float]:
    return {record.seed: record.result[NATS] for record in records}


def _shown(records: Sequence[Record]) -> str:
    if any(map(has_diverged, records)):
        return "diverged"
    return f"{math.exp(fmean(_nats(records).values())):.1f}" if records else ""


def _change(mean: Estimate | None) -> str:
    if mean is None:
        return ""
    low, high = (percent(x) for x in mean.interval(0.95))
    return f"{percent(mean.value):+.1f} [{low:+.1f}, {high:+.1f}]"
