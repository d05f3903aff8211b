"""The question in ten epochs, which CPUs can answer: each mechanism at the learning rate it wants.

Entered when no GPU was to be had for the finals (`ten` in protocol.json). It stands beside the
contest and decides nothing of it: what competes is what had led the trials, and of that only the
learning rate is searched, beyond the largest of the trials.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from lohe.experiments.contest import choose, confirm, tables
from lohe.experiments.contest.choose import Standing
from lohe.experiments.contest.confirm import Comparison, Undecided
from lohe.experiments.contest.rotary import ExponentialRope
from lohe.experiments.contest.tables import (
    PERPLEXITY,
    change,
    codes,
    distance,
    perplexities,
    reached,
    seeds_shown,
    shape,
)
from lohe.experiments.contest.trials import STAGES, Configuration
from lohe.experiments.contest.verdict import ALPHA
from lohe.experiments.evidence import Evidence
from lohe.experiments.store.records import Record
from lohe.experiments.tables import Table
from lohe.experiments.verdicts import holm
from lohe.models import Oscillator, SoftmaxRope
from lohe.train import Run

TITLE = "In ten epochs, each at its best learning rate"
COLUMNS = (
    *tables.COLUMNS[:5],
    "learning rates tried",
    *tables.COLUMNS[5:],
    "to rotary softmax, %",
    *tables.DISTANCE[1:],
)
RIVAL = "softmax, rotary"
CONTENDERS: Mapping[str, Configuration] = {
    "oscillator": Configuration(Oscillator(d_osc=48, sharpness=8, gain="learned")),
    "oscillator, exp, rotary": Configuration(
        ExponentialRope(d_osc=32, sharpness=8, gain="learned", base=100.0), positions="none"
    ),
    RIVAL: Configuration(SoftmaxRope(base=100.0), positions="none"),
}
RATES = (2e-3, 4e-3, 8e-3)  # two in any case, the next where the last is the best


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
    """All that is needed, as far as it is known by now: learning rates first, then seed by seed."""
    rates = [s.configuration for c in CONTENDERS.values() for s in tried(evidence, c)]
    runs = [run for c in rates for run in STAGES["ten, rates"].runs(c)]
    scored = (STAGES["ten"].runs(c) for c in settled(evidence).values())
    return runs + [run for of_seed in zip(*scored, strict=True) for run in of_seed]


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


def comparisons(evidence: Evidence) -> dict[str, Comparison | Undecided]:
    """Each oscillator against the rotary softmax, on the test articles."""
    there = records(evidence)
    rival = there.pop(RIVAL)
    return {
        name: confirm.compare(ours, rival, (name, RIVAL), (planned(), planned()))
        for name, ours in there.items()
    }


def p_values(found: Mapping[str, Comparison | Undecided]) -> dict[str, float]:
    """Welch's, Holm-corrected over the two; one that lacks a seed or diverged counts as 1."""
    raw = [1.0 if isinstance(c, Undecided) else c.welch.p for c in found.values()]
    return dict(zip(found, holm(raw), strict=True))


def table(evidence: Evidence) -> Table:
    """Learning rates, perplexities, distances; without rows before the first model."""
    found, there, known = comparisons(evidence), records(evidence), settled(evidence)
    corrected, rows = p_values(found), []
    for name, c in CONTENDERS.items():
        standings = sorted((s for s in tried(evidence, c) if s.nats), key=lambda s: s.mean)
        rates = (f"{s.configuration.learning_rate:g}: {reached(s)}" for s in standings)
        cells = *shape(c), "; ".join(rates), seeds_shown(there[name]), *perplexities(there[name])
        rows.append((name, *cells, *distance(name, found, corrected)))
    begun = any(s.nats for c in CONTENDERS.values() for s in tried(evidence, c))
    notes = [
        "10 epochs on CPUs, float32, but that processors with AMX round the operands of the "
        "head's products to bfloat16 in training; dropout 0.1. Each at the learning rate of "
        f"lowest perplexity on the first half of validation, of one seed; then {planned()} fresh "
        "seeds, scored on test once. It stands beside the contest, and decides nothing of it. The "
        "rotary softmax has no table of positions, which oscillators have in their anchors.",
        *PERPLEXITY,
        "to rotary softmax: change of test perplexity in per cent with its 95 % interval by Welch; "
        "paired: the interval by seed; seeds and articles: that of a bootstrap over both. p-value: "
        "Welch's, Holm-corrected over the two oscillators.",
        *([f"Code: {said}."] if (said := codes(r for x in there.values() for r in x)) else []),
        *(
            [f"Models still to be trained: {left}."]
            if (left := _left(evidence, len(known)))
            else []
        ),
    ]
    return Table(TITLE, COLUMNS, rows if begun else [], notes)


def _left(evidence: Evidence, known: int) -> int:
    missing = len(choose.missing(evidence, known_runs(evidence)))
    return missing + planned() * (len(CONTENDERS) - known)


def answer(evidence: Evidence) -> str:
    """What the tests say, in a sentence; nothing before all seeds are there."""
    found = comparisons(evidence)
    if any(isinstance(c, Undecided) and not c.for_good for c in found.values()):
        return ""
    p, parts = p_values(found), []
    for name, c in found.items():
        mechanism: Any = CONTENDERS[name].mechanism
        said = "is"  # undecided
        if isinstance(c, Comparison):
            apart = "better" if c.welch.value < 0 else "worse"
            said = f"is {apart}" if p[name] < ALPHA else "is not told apart from it"
        parts.append(f"{name}, d_osc {mechanism.d_osc}, {said} ({change(c)})")
    return (
        "In ten epochs, each at its best learning rate, against a rotary softmax on the test "
        f"articles: {'; '.join(parts)}. Per cent of perplexity with 95 % intervals; {planned()} "
        f"seeds, alpha = {ALPHA:g}, Holm-corrected."
    )
