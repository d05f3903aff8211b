"""Longer windows, more epochs: what they do to the difference from the best softmax.

Paired by seed, on the second half of the validation articles. It decides nothing, and is not
corrected for number.
"""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from statistics import fmean

from lohe.experiments.contest import choose
from lohe.experiments.contest.confirm import BEST, lost, percent
from lohe.experiments.contest.divergence import has_diverged
from lohe.experiments.contest.law import LATER
from lohe.experiments.contest.stages import (
    LENGTHS,
    MORE_EPOCHS,
    best_name,
    longer,
    trained_longer,
)
from lohe.experiments.contest.tables import (
    P_VALUE,
    epochs_shown,
    estimated,
    progress,
    seeds_shown,
    shown_finite,
)
from lohe.experiments.contest.trials import STAGES, Configuration, RunsOf
from lohe.experiments.evidence import Evidence
from lohe.experiments.store.records import Record
from lohe.experiments.tables import Table
from lohe.experiments.verdicts import NO_RECORDS, Estimate, of_sample

NATS = "later.nats"
WIDEST = 4.0  # per cent of perplexity: an interval from -2 to +2 hides what the probe had seen
BY_LENGTH: Mapping[str, RunsOf] = {f"T = {t}": partial(longer, tokens=t) for t in LENGTHS}
EPOCHS: Mapping[str, RunsOf] = {
    what: partial(trained_longer, rate=rate) for what, rate in MORE_EPOCHS.items()
}


def further(evidence: Evidence) -> Table:
    """Ours and the best softmax at each length, and whether anything can be said at it."""
    columns = ("what", "model", "seeds", "validation", "epoch chosen", "epochs trained")
    columns = (*columns, "to best softmax, %", P_VALUE)
    title = "Longer windows, more epochs"
    chosen = choose.chosen(evidence)
    if chosen is None:
        return Table(title, columns, [], [progress(evidence)])
    rows, said = [], []
    for what, runs_of in {**BY_LENGTH, **EPOCHS}.items():
        best = evidence.of(runs_of(chosen.best))
        for name, c in {"ours": chosen.ours, best_name(chosen): chosen.best}.items():
            there = evidence.of(runs_of(c))
            apart = _distance(difference(there, best, name)) if c != chosen.best else ("", "")
            rows.append((what, name, *_reached(there), *apart))
        if what in BY_LENGTH:
            said.append(too_small(what, evidence.of(runs_of(chosen.ours)), best))
    notes = [
        "T inputs, windows of T + 1 words; T = 48 is what everything else is trained on. Second "
        "half of the validation articles, strict, mean ± standard deviation. to best softmax: "
        "change of perplexity with its 95 % interval, paired by seed; intervals and p-values are "
        "not corrected for number, and decide nothing.",
        "Limits: longer windows are trained with the learning rate and dropout that were chosen at "
        "T = 48. 30 epochs: at T = 48, everything else is trained for 10.",
        *(text for text in said if text),
    ]
    begun = any(int(row[2].split()[0]) for row in rows)
    return Table(title, columns, rows if begun else [], notes)


def difference(a: Sequence[Record], b: Sequence[Record], name: str) -> Estimate | str:
    """Log perplexity of a minus b, the best softmax, seed by seed; or why there is none."""
    sides = {name: a, BEST: b}
    if undecided := lost({n: [r.seed for r in x if has_diverged(r)] for n, x in sides.items()}):
        return undecided.why
    ours, theirs = ({r.seed: r.result[NATS] for r in x} for x in (a, b))
    apart = [ours[seed] - theirs[seed] for seed in sorted(ours.keys() & theirs.keys())]
    if len(apart) < 2:
        return "one seed" if apart else NO_RECORDS
    return of_sample(apart)


def at_its_best(evidence: Evidence, configuration: Configuration) -> list[Record]:
    """In 10 or in 30 epochs, whatever is best on the same half and did not diverge; none while one
    of them lacks a seed."""
    runs = [longer(configuration, LENGTHS[0]), *(of(configuration) for of in EPOCHS.values())]
    found = [evidence.of(x) for x in runs]
    if any(len(x) < len(STAGES["epochs"].seeds) for x in found):
        return []
    whole = [x for x in found if not any(map(has_diverged, x))]
    return min(whole, key=lambda x: fmean(r.result[NATS] for r in x), default=[])


def too_small(length: str, ours: Sequence[Record], best: Sequence[Record]) -> str:
    """That corpus or seeds are too few to say anything at this length, by the protocol's rule."""
    apart = difference(ours, best, "ours")
    if isinstance(apart, str):
        return ""
    low, high = (percent(x) for x in apart.interval(0.95))
    reasons = []
    if high - low > WIDEST:
        reasons.append(
            f"{len(ours)} seeds are too few to say anything: the interval of the difference is "
            f"wider than {WIDEST:g} %"
        )
    if overfitted((*ours, *best), STAGES["length"].epochs):
        reasons.append(OVERFITTED)
    return f"{length}: {'; '.join(reasons)}." if reasons else ""


OVERFITTED = (
    "the corpus is too small to say anything: every run was at its best in the first third of its "
    "epochs"
)


def overfitted(there: Sequence[Record], epochs: int) -> bool:
    """Whether every run was at its best in the first third of so many epochs."""
    return all(r.notes.get("epoch", math.inf) + 1 <= epochs / 3 for r in there)


def _reached(there: Sequence[Record]) -> tuple[str, ...]:
    """Seeds, perplexity, the epoch that was chosen and the last that was trained."""
    return (
        seeds_shown(there),
        shown_finite(there, LATER),
        epochs_shown(there),
        ", ".join(str(len(r.curve)) for r in there),
    )


def _distance(apart: Estimate | str) -> tuple[str, str]:
    if isinstance(apart, str):
        return apart, ""
    return estimated(apart), f"{apart.p:.2g}"
