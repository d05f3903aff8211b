"""The trials, like against like: ours and each family at the same learning rate and dropout.

By the best of each family alone a learning rate may win for a mechanism. Here it cannot. It decides
nothing.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from statistics import fmean, variance

from lohe.experiments.contest import choose
from lohe.experiments.contest.confirm import percent
from lohe.experiments.contest.divergence import has_diverged
from lohe.experiments.contest.trials import FAMILIES, OURS, SHARED, STAGES, TRIED, Configuration
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
Settings = dict[Configuration, list[Record]]  # best first, by the half that chooses


def tried(evidence: Evidence, family: str) -> dict[Training, Settings]:
    """All settings of the family that did not diverge; none before its trials are complete."""
    if not choose.all_tried(evidence, family):
        return {}
    found: dict[Training, Settings] = {t: {} for t in TRAININGS}
    for standing in choose.in_trials(evidence, family):
        c, seeds = standing.configuration, range(len(standing.nats))
        records = evidence.of(STAGES["trials"].runs(c, seeds))
        if not any(map(has_diverged, records)):
            found[Training(c.learning_rate, c.dropout)][c] = records
    return {training: settings for training, settings in found.items() if settings}


def best(settings: Settings) -> list[Record]:
    return next(iter(settings.values()), [])


def rivals(evidence: Evidence) -> dict[str, dict[Training, list[Record]]]:
    """The best setting of each other family in each training; empty while ours lacks a trial."""
    if not choose.all_tried(evidence, OURS):
        return {}
    found = {family: tried(evidence, family) for family in FAMILIES if family != OURS}
    return {
        family: {training: best(settings) for training, settings in there.items()}
        for family, there in found.items()
        if there
    }


def paired(a: Sequence[Record], b: Sequence[Record]) -> list[tuple[Record, Record]]:
    """By the seeds that both have."""
    return [(x, y) for x in a for y in b if x.seed == y.seed]


def changes(ours: Sequence[Record], theirs: Sequence[Record]) -> list[float]:
    """Log perplexity of ours minus theirs, seed by seed, on the half that chooses nothing."""
    return [a.result[NATS] - b.result[NATS] for a, b in paired(ours, theirs)]


def table(evidence: Evidence) -> Table:
    """What the best of each family reaches in a training, and below how far each of ours is off."""
    others = rivals(evidence)
    columns = ("learning rate", "dropout", "ours: d_osc, p", "perplexity", *others)
    rows: list[tuple[str, ...]] = []
    differences: list[list[float]] = []
    for training, settings in tried(evidence, OURS).items() if others else ():
        theirs = [there.get(training, []) for there in others.values()]
        first = f"{training.learning_rate:g}", f"{training.dropout:g}", "", ""
        both = [[b for _, b in paired(best(settings), records)] for records in theirs]
        rows.append((*first, *map(_perplexity, both)))
        for c, ours in settings.items():
            off = [changes(ours, records) for records in theirs]
            differences += off
            rows.append(("", "", _named(c), _perplexity(ours), *map(_shown, off)))
    waiting = [family for family in TRIED if not choose.all_tried(evidence, family)]
    given_up = [family for family in FAMILIES if family not in (*TRIED, *others)]
    notes = [
        "Perplexity on the second half of the validation articles, strict, 10 epochs, mean over "
        "the seeds that ours has, too. Of the other families the setting that is best on the "
        "first half, at this learning rate and dropout; below it every setting of ours that was "
        "drawn with them, best on the first half first, and how much its perplexity is above "
        f"theirs in per cent, paired by seed: standard error {_error(differences):.1f} by the "
        "seeds, which rows share; articles not counted. It decides nothing.",
        *([f"Trials not complete: {'; '.join(waiting)}."] if waiting else []),
        *([f"Trials given up: {'; '.join(given_up)}."] if given_up else []),
    ]
    return Table(TITLE, columns, rows, notes)


def figure(evidence: Evidence) -> Figure:
    """How far the best of ours is behind each family, epoch by epoch, by what that has reached."""
    import matplotlib.pyplot as plt

    from lohe.viz import differences
    from lohe.viz.style import BLUE, RED, SKY, legend_below

    colors = dict(zip(SHARED["learning_rate"], (RED, SKY, BLUE), strict=True))
    styles = dict(zip(SHARED["dropout"], ("-", "--"), strict=True))
    others, ours = rivals(evidence), tried(evidence, OURS)
    rows = -(-len(others) // 2)
    drawn, axes = plt.subplots(
        rows, 2, figsize=(7.2, 1 + 2.2 * rows), sharex=True, sharey=True, squeeze=False,
        layout="constrained",
    )  # fmt: skip
    for ax in axes.flat[len(others) :]:
        ax.set_visible(False)
    for ax, (family, there) in zip(axes.flat, others.items(), strict=False):
        for t in (t for t in TRAININGS if t in ours and t in there):
            both = paired(best(ours[t]), there[t])
            a, b = (_course([pair[n] for pair in both]) for n in (0, 1))
            how = f"learning rate {t.learning_rate:g}, dropout {t.dropout:g}"
            differences.course(
                ax,
                [math.exp(x) for x in b],
                [percent(x - y) for x, y in zip(a, b, strict=True)],
                color=colors[t.learning_rate],
                style=styles[t.dropout],
                label=f"{how} (ours {_named(next(iter(ours[t])))})",
            )
        differences.against_zero(ax, family)
    for ax in axes[-1]:
        ax.set_xlabel("its perplexity after each epoch,\nhalf that chooses")
    for ax in axes[:, 0]:
        ax.set_ylabel("ours above it, %")
    legend_below(drawn, ncols=2)
    return drawn


def _course(records: Sequence[Record]) -> list[float]:
    """Log perplexity after each epoch, mean over seeds."""
    by_seed = ([math.log(line["perplexity"]) for line in record.curve] for record in records)
    return [fmean(values) for values in zip(*by_seed, strict=True)]


def _named(c: Configuration) -> str:
    m = c.mechanism
    return f"{m.d_osc}, {m.sharpness:g}"  # pyright: ignore


def _perplexity(records: Sequence[Record]) -> str:
    return f"{math.exp(fmean(r.result[NATS] for r in records)):.1f}" if records else "diverged"


def _shown(off: Sequence[float]) -> str:
    return f"{percent(fmean(off)):+.1f}" if off else ""


def _error(differences: Sequence[Sequence[float]]) -> float:
    """Standard error of a difference in per cent, by the variance over its seeds."""
    variances = [variance(x) / len(x) for x in differences if len(x) > 1]
    return 100 * math.sqrt(fmean(variances)) if variances else math.nan
