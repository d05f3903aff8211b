"""The question in ten epochs: each mechanism at the learning rate that it wants.

Entered when no GPU was to be had for the finals (`ten` in protocol.json), since CPUs can answer it.
It stands beside the contest and decides nothing of it: what competes is what had led the trials, at
48 dimensions and at those that are asked for, and only learning rates are searched, beyond the
largest of the trials.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from lohe.experiments.contest import choose, confirm, tables
from lohe.experiments.contest.choose import Standing
from lohe.experiments.contest.confirm import Comparison, Rivals
from lohe.experiments.contest.divergence import has_diverged
from lohe.experiments.contest.law import LATER as SECOND_HALF
from lohe.experiments.contest.rotary import ExponentialRope
from lohe.experiments.contest.tables import (
    PERPLEXITY,
    change,
    codes,
    intervals,
    perplexities,
    seeds_shown,
    shape,
)
from lohe.experiments.contest.trials import ASKED, MATCHED, OURS, ROTARY, STAGES, Configuration
from lohe.experiments.contest.verdict import ALPHA
from lohe.experiments.evidence import Evidence
from lohe.experiments.store.records import Record
from lohe.experiments.tables import Table
from lohe.models import Oscillator, Softmax, SoftmaxPositions, SoftmaxRope
from lohe.train import Run

TITLE = "In ten epochs, each at its best learning rate"
COLUMNS = (*tables.COLUMNS[:5], "learning rates tried", *tables.COLUMNS[5:], "better than all, p")


def sharp(d_osc: int) -> Configuration:
    """The oscillator that leads the trials, in so many dimensions."""
    return Configuration(Oscillator(d_osc=d_osc, sharpness=8, gain="learned"))


AT_FIRST: Mapping[str, Configuration] = {  # as it was entered
    OURS: sharp(48),
    "oscillator, exp, rotary": Configuration(
        ExponentialRope(d_osc=32, sharpness=8, gain="learned", base=100.0), positions="none"
    ),
    ROTARY: Configuration(SoftmaxRope(base=100.0), positions="none"),
}
LATER: Mapping[str, Configuration] = {  # before anything was scored on test
    MATCHED: Configuration(SoftmaxPositions(), positions="none"),
    "softmax": Configuration(Softmax()),
    **{f"oscillator, d_osc {d}": sharp(d) for d in reversed(ASKED)},
}
CONTENDERS: Mapping[str, Configuration] = {**AT_FIRST, **LATER}
RIVALS = tuple(name for name in CONTENDERS if name.startswith("softmax"))
# two in any case, the next where the last is the best
RATES = (2e-3, 4e-3, 8e-3, 1.6e-2, 3.2e-2, 6.4e-2)
ENDS = RATES[0], RATES[-1]
FIRST_HALF = "valid.perplexity"


def planned() -> int:
    """How many are scored on test, of each."""
    return len(STAGES["ten"].seeds)


def tried(evidence: Evidence, c: Configuration) -> list[Standing]:
    """One a learning rate, as far as it is known to be needed; what is not there has no nats."""
    stage, found = STAGES["ten, rates"], list[Standing]()
    for rate in RATES:
        at_rate = replace(c, learning_rate=rate)
        found.append(choose.standing(evidence, at_rate, stage.runs(at_rate)))
        if len(found) > 1 and not (found[-2].nats and found[-1].mean < found[-2].mean):
            break
    return found


def settled(evidence: Evidence) -> dict[str, Configuration]:
    """The contenders whose learning rate is known, at it: best on the half that chooses."""
    standings = {name: tried(evidence, c) for name, c in CONTENDERS.items()}
    return {
        name: min(found, key=lambda s: s.mean).configuration
        for name, found in standings.items()
        if all(s.nats for s in found)
    }


def known_runs(evidence: Evidence) -> list[Run]:
    """All that is needed, as far as it is known by now, those that were entered first to begin
    with: learning rates, small ones first; when every contender has its own, seed by seed what is
    scored on test."""
    groups, runs = (AT_FIRST, LATER), list[Run]()
    for group in groups:
        rates = [s.configuration for c in group.values() for s in tried(evidence, c)]
        for c in sorted(rates, key=lambda c: c.learning_rate):
            runs += STAGES["ten, rates"].runs(c)
    if more_follow(evidence):
        return runs
    known = settled(evidence)
    for group in groups:
        scored = (STAGES["ten"].runs(known[name]) for name in group)
        runs += [run for of_seed in zip(*scored, strict=True) for run in of_seed]
    return runs


def more_follow(evidence: Evidence) -> bool:
    """Whether further runs will be known when those that are have been trained."""
    return len(settled(evidence)) < len(CONTENDERS)


def records(evidence: Evidence) -> dict[str, list[Record]]:
    """What was scored on test, of each contender."""
    known = settled(evidence)
    return {
        name: confirm.records(evidence, known[name], "strict", "ten") if name in known else []
        for name in CONTENDERS
    }


@lru_cache(maxsize=4)
def comparisons(evidence: Evidence) -> dict[str, Rivals]:
    """Each oscillator against each softmax, on the test articles."""
    there = records(evidence)
    return {
        name: {
            rival: confirm.compare(ours, there[rival], (name, rival), (planned(), planned()))
            for rival in RIVALS
        }
        for name, ours in there.items()
        if name not in RIVALS
    }


def table(evidence: Evidence) -> Table:
    """Learning rates and perplexities; without rows before the first model."""
    found, there, known = comparisons(evidence), records(evidence), settled(evidence)
    corrected, rows = confirm.better_p_values(found), []
    for name, c in CONTENDERS.items():
        rates = "; ".join(_rates(evidence, c))
        cells = *shape(c), rates, seeds_shown(there[name]), *perplexities(there[name])
        told = name in found and _told(found, name)
        rows.append((name, *cells, f"{corrected[name]:.2g}" if told else ""))
    begun = any(s.nats for c in CONTENDERS.values() for s in tried(evidence, c))
    made_by = codes(r for x in there.values() for r in x)
    ends = {n: c.learning_rate for n, c in known.items() if c.learning_rate in ENDS}
    left = len(choose.missing(evidence, known_runs(evidence)))
    notes = [
        "10 epochs, float32, dropout 0.1. learning rates tried: perplexity of one seed on the "
        "first half of validation, by which rate and epoch are chosen, so it flatters, and on the "
        f"second half; the best rate first. Then {planned()} fresh seeds, each at the best rate, "
        "scored on test once. It stands beside the contest, and decides nothing of it. The rotary "
        "softmax has no table of positions, which oscillators have in their anchors.",
        f"Entered first: {'; '.join(AT_FIRST)}. The others, and this test, after one seed of those "
        "at 2e-3 and 4e-3 had been seen on validation, before anything was scored on test.",
        *PERPLEXITY,
        "better than all: that it is better than every softmax of the table, the largest p of "
        "Welch's tests, 1 where it is not ahead of one; Holm-corrected over the "
        f"{len(found)} oscillators.",
        *([f"Best at an end of the learning rates: {_listed(ends)}."] if ends else []),
        *([f"Trained on {on}."] if (on := _machines(evidence)) else []),
        *([f"Code: {made_by}."] if made_by else []),
        *([f"Models still to be trained: {_left(evidence, left)}."] if left else []),
    ]
    return Table(TITLE, COLUMNS, rows if begun else [], notes)


def distances(evidence: Evidence) -> Table:
    """How far each oscillator is from each softmax; those whose seeds are all there."""
    rows = [
        (name, rival, change(c), *intervals(c), f"{c.welch.p:.2g}")
        for name, rivals in comparisons(evidence).items()
        for rival, c in rivals.items()
        if isinstance(c, Comparison)
    ]
    columns = ("oscillator", "softmax", "change, %", "paired", "seeds and articles", "p")
    notes = [
        "Change of test perplexity in per cent with its 95 % interval by Welch; paired: the "
        "interval by seed; seeds and articles: that of a bootstrap over both. p: Welch's, "
        "two-sided, of this comparison alone."
    ]
    return Table("In ten epochs, against each softmax", columns, rows, notes)


def _rates(evidence: Evidence, c: Configuration) -> list[str]:
    """What was reached on the halves of validation at each rate, best on the first half first."""
    found = []
    for s in sorted((s for s in tried(evidence, c) if s.nats), key=lambda s: s.mean):
        (record,) = evidence.of(STAGES["ten, rates"].runs(s.configuration))
        halves = (f"{record.result[x]:.2f}" for x in (FIRST_HALF, SECOND_HALF))
        reached = "diverged" if has_diverged(record) else ", ".join(halves)
        found.append(f"{s.configuration.learning_rate:g}: {reached}")
    return found


def _left(evidence: Evidence, missing: int) -> str:
    if more_follow(evidence):
        return f"at least {missing + planned() * len(CONTENDERS)}"
    return str(missing)


def _listed(rates: Mapping[str, float]) -> str:
    return "; ".join(f"{name} ({rate:g})" for name, rate in rates.items())


def _machines(evidence: Evidence) -> str:
    """Kinds of device, what the products of the head were made of, and how many models by each."""
    there = (evidence.recorded(run) for run in known_runs(evidence))
    found = Counter(
        ", ".join(x for x in map(r.environment.get, ("device", "head")) if x) for r in there if r
    )
    return "; ".join(f"{name} ({n})" for name, n in sorted(found.items()))


def _complete(rivals: Rivals) -> bool:
    """Whether all seeds of it and of every softmax are there, or never will be."""
    return all(isinstance(c, Comparison) or c.for_good for c in rivals.values())


def _told(found: Mapping[str, Rivals], name: str) -> bool:
    """Whether what the test says of it is final: better stays better, but what is not shown yet may
    be shown when the other oscillators are there, since Holm's correction falls as they come in."""
    if not _complete(found[name]):
        return False
    return confirm.better_p_values(found)[name] < ALPHA or all(map(_complete, found.values()))


def answer(evidence: Evidence) -> str:
    """What the tests say, in a sentence, as far as it is final."""
    there, parts = comparisons(evidence), list[str]()
    p = confirm.better_p_values(there)
    for name, rivals in there.items():
        if not _told(there, name):
            continue
        mechanism: Any = CONTENDERS[name].mechanism
        called = name if "d_osc" in name else f"{name}, d_osc {mechanism.d_osc}"
        said = "is better than all" if p[name] < ALPHA else "is not shown to be better than all"
        against = "; ".join(f"{rival} {change(c)}" for rival, c in rivals.items())
        parts.append(f"{called}, {said} ({against}).")
    if not parts:
        return ""
    return (
        f"In ten epochs, each at its best learning rate, against {len(RIVALS)} softmaxes on the "
        f"test articles: {' '.join(parts)} Per cent of perplexity with 95 % intervals; {planned()} "
        f"seeds, alpha = {ALPHA:g}, Holm-corrected over {len(there)} oscillators."
    )
