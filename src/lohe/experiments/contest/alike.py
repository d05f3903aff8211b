"""The trials, like against like: each family's best at the same learning rate and dropout.

By the best of each family alone a learning rate may win for a mechanism, and how far training has
come for an order. Here neither can. It decides nothing.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import fmean, variance

from lohe.experiments.contest import choose
from lohe.experiments.contest.confirm import percent
from lohe.experiments.contest.divergence import has_diverged
from lohe.experiments.contest.trials import FAMILIES, OURS, SHARED, STAGES
from lohe.experiments.evidence import Evidence
from lohe.experiments.item import Figure
from lohe.experiments.store.records import Record
from lohe.experiments.tables import Table

NATS = "later.nats"
TITLE = "The trials, like against like"


@dataclass(frozen=True)
class Training:
    """What all families share in the trials."""

    learning_rate: float
    dropout: float


TRAININGS = tuple(  # the largest learning rate first
    Training(rate, dropout)
    for rate, dropout in product(reversed(SHARED["learning_rate"]), SHARED["dropout"])
)
Pairs = list[tuple[Record, Record]]  # ours and theirs, of one seed each


def best_alike(evidence: Evidence, family: str) -> dict[Training, list[Record]]:
    """The family's best setting in each training by the half that chooses: its seeds; none before
    all of its trials are recorded, nor where one of them diverged."""
    if choose.finalists(evidence, family) is None:
        return {}
    best: dict[Training, list[Record]] = {}
    for standing in choose.in_trials(evidence, family):  # best first
        c = standing.configuration
        training = Training(c.learning_rate, c.dropout)
        if training not in best:
            best[training] = evidence.records(STAGES["trials"].runs(c)[0])
    return {t: found for t, found in best.items() if not any(map(has_diverged, found))}


def pairs(evidence: Evidence, family: str) -> dict[Training, Pairs]:
    """Ours and the family's in each training, by the seeds that both have."""
    ours, theirs = best_alike(evidence, OURS), best_alike(evidence, family)
    both = (t for t in TRAININGS if t in ours and t in theirs)
    found = {t: [(a, b) for a in ours[t] for b in theirs[t] if a.seed == b.seed] for t in both}
    return {t: there for t, there in found.items() if there}


def changes(there: Pairs) -> list[float]:
    """Log perplexity of ours minus theirs, seed by seed, on the half that chooses nothing."""
    return [a.result[NATS] - b.result[NATS] for a, b in there]


def table(evidence: Evidence) -> Table:
    """A row for each training: perplexities, and the change that ours is against each."""
    best = {family: best_alike(evidence, family) for family in FAMILIES}
    rivals = _rivals(evidence)
    columns = ("learning rate", "dropout", OURS, *rivals)
    if not rivals:
        return Table(TITLE, columns, [])
    rows = []
    for t in TRAININGS:
        against = (_against(best[family].get(t, []), x.get(t, [])) for family, x in rivals.items())
        rows.append(
            (f"{t.learning_rate:g}", f"{t.dropout:g}", _perplexity(best[OURS].get(t, [])), *against)
        )
    waiting = [family for family, found in best.items() if not found]
    notes = [
        "Perplexity on the second half of the validation articles, strict, 10 epochs, mean over "
        "seeds, of the setting that is best on the first half; in brackets how much that of ours "
        f"is above it in per cent, paired by seed, with a standard error of {_error(rivals):.1f} "
        "(from the seeds, all rows together). Ours, rotary and positions have some four settings "
        "in each row to choose from, the others fewer. All lead with the largest learning rate: "
        "10 epochs are few. It decides nothing.",
        *([f"Trials not complete: {'; '.join(waiting)}."] if waiting else []),
    ]
    return Table(TITLE, columns, rows, notes)


def drawable(evidence: Evidence) -> bool:
    """Whether ours can be compared with some family."""
    return bool(_rivals(evidence))


def figure(evidence: Evidence) -> Figure:
    """How far ours is behind each family, epoch by epoch, by the perplexity that it has reached."""
    import matplotlib.pyplot as plt

    from lohe.viz import differences
    from lohe.viz.style import BLUE, RED, SKY, legend_below

    colors = dict(zip(SHARED["learning_rate"], (RED, SKY, BLUE), strict=True))
    styles = dict(zip(SHARED["dropout"], ("-", "--"), strict=True))
    found = _rivals(evidence)
    rows = -(-len(found) // 2)
    drawn, axes = plt.subplots(
        rows, 2, figsize=(7.2, 1 + 2.2 * rows), sharex=True, sharey=True, squeeze=False,
        layout="constrained",
    )  # fmt: skip
    for ax in axes.flat[len(found) :]:
        ax.set_visible(False)
    for ax, (family, there) in zip(axes.flat, found.items(), strict=False):
        for t, both in there.items():
            ours, theirs = (_curve([pair[n] for pair in both]) for n in (0, 1))
            differences.course(
                ax,
                [math.exp(b) for b in theirs],
                [percent(a - b) for a, b in zip(ours, theirs, strict=True)],
                color=colors[t.learning_rate],
                style=styles[t.dropout],
                label=f"learning rate {t.learning_rate:g}, dropout {t.dropout:g}",
            )
        differences.against_zero(ax, family)
    for ax in axes[-1]:
        ax.set_xlabel("its perplexity after each epoch")
    for ax in axes[:, 0]:
        ax.set_ylabel("ours above it, %")
    legend_below(drawn, ncols=3)
    return drawn


def _rivals(evidence: Evidence) -> dict[str, dict[Training, Pairs]]:
    """The families that ours can be compared with."""
    others = (family for family in FAMILIES if family != OURS)
    return {family: found for family in others if (found := pairs(evidence, family))}


def _curve(records: Sequence[Record]) -> list[float]:
    """Log perplexity after each epoch, mean over seeds."""
    by_seed = ([math.log(line["perplexity"]) for line in record.curve] for record in records)
    return [fmean(values) for values in zip(*by_seed, strict=True)]


def _perplexity(records: Sequence[Record]) -> str:
    return f"{math.exp(fmean(r.result[NATS] for r in records)):.1f}" if records else ""


def _against(theirs: Sequence[Record], there: Pairs) -> str:
    return f"{_perplexity(theirs)} ({percent(fmean(changes(there))):+.1f})" if there else ""


def _error(rivals: Mapping[str, Mapping[Training, Pairs]]) -> float:
    """Standard error of a row's change in per cent, by the variance over seeds within rows."""
    found = [
        x for rows in rivals.values() for there in rows.values() if len(x := changes(there)) > 1
    ]
    return 100 * math.sqrt(fmean(variance(x) / len(x) for x in found)) if found else math.nan
