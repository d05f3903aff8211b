"""The second question: with the rotations that the leading softmax has, is ours ahead of it?

With softplus, as it was asked first, and with exponential couplings. Asked after the trials had
shown a rotary softmax ahead, and so kept apart from the primary test. Ours has rotations besides a
table of anchors in every layer; so it is to be better than the best softmax and than a softmax that
has both.
"""

from functools import lru_cache
from typing import Any

from lohe.experiments.contest import choose, confirm
from lohe.experiments.contest.confirm import BEST, Comparison, Rivals
from lohe.experiments.contest.stages import Chosen, turned, with_both
from lohe.experiments.contest.tables import (
    COLUMNS,
    P_VALUE,
    PERPLEXITY,
    change,
    perplexities,
    progress,
    seeds_shown,
    shape,
)
from lohe.experiments.contest.trials import STAGES, Configuration, as_text
from lohe.experiments.contest.verdict import ALPHA
from lohe.experiments.evidence import Evidence
from lohe.experiments.store.records import Record
from lohe.experiments.tables import Table

BOTH = "rotary softmax with positions in every layer"
PLANNED = len(STAGES["rotary"].seeds), len(STAGES["confirm"].seeds)


@lru_cache(maxsize=4)
def comparisons(evidence: Evidence, chosen: Chosen) -> dict[str, Rivals]:
    """Each of ours with rotary couplings against the best softmax and against the one with both."""
    rivals = {
        BEST: confirm.records(evidence, chosen.best, "strict"),
        BOTH: records(evidence, with_both(chosen)),
    }
    ours = {name: records(evidence, c) for name, (_, c) in turned(chosen).items()}
    return confirm.against(ours, rivals, PLANNED)


def records(evidence: Evidence, configuration: Configuration) -> list[Record]:
    """What was recorded of the stage's seeds."""
    return confirm.records(evidence, configuration, "strict", "rotary")


def second_table(evidence: Evidence) -> Table:
    """Ours with rotary couplings, and the softmax with both; empty before any of them is there."""
    title = "The second question: rotary positions in the couplings"
    columns = (*COLUMNS, "to best softmax, %", "to softmax with both, %", P_VALUE, "to ours, %")
    chosen = choose.chosen(evidence)
    if chosen is None:
        return Table(title, columns, [], [progress(evidence)])
    found = comparisons(evidence, chosen)
    corrected = confirm.better_p_values(found)
    rows, how = [], []
    for name, (plain, c) in turned(chosen).items():
        there, without = records(evidence, c), confirm.records(evidence, plain, "strict")
        to_plain = confirm.compare(there, without, (name, "the same without"), PLANNED)
        apart = found[name].values()
        p = f"{corrected[name]:.2g}" if all(isinstance(x, Comparison) for x in apart) else ""
        cells = *map(change, apart), p, change(to_plain)
        rows.append((name, *_row(c, there), *cells))
        how.append(f"{name}: {as_text(c)}.")
    both = with_both(chosen)
    rows.append((BOTH, *_row(both, records(evidence, both)), "", "", "", ""))
    notes = [
        *PERPLEXITY,
        "Asked after the trials had shown a rotary softmax ahead, before anything was scored on "
        "test; it does not touch the primary test or the goal. Nothing is tuned: rotations and "
        "sinusoids are those of the best rotary softmax, everything else that of ours. Changes of "
        "test perplexity with their 95 % intervals by Welch. p-value: that it is better than both, "
        "the larger of the two, 1 where it is not ahead; Holm-corrected over dimensions and "
        "couplings. to ours: against the same oscillator with softplus and without rotations, as "
        "it is confirmed.",
        "exp: exponential couplings, a second candidate that was entered later, after a look at "
        "models of 10 epochs on validation.",
        *how,
        f"{BOTH}: {as_text(both)}.",
    ]
    begun = any(int(row[COLUMNS.index("seeds")].split()[0]) for row in rows)
    return Table(title, columns, rows if begun else [], notes)


def _row(c: Configuration, there: list[Record]) -> tuple[str, ...]:
    return (*shape(c), seeds_shown(there), *perplexities(there))


def answer(evidence: Evidence) -> str:
    """One sentence; nothing before all of it is there. What diverged is not shown to be better."""
    chosen = choose.chosen(evidence)
    if chosen is None:
        return ""
    found = comparisons(evidence, chosen)
    if not all(map(confirm.complete, found.values())):
        return ""
    of: dict[str, Any] = {name: c.mechanism for name, (_, c) in turned(chosen).items()}
    called = {name: f"d_osc {m.d_osc}" + ", exp" * hasattr(m, "coupling") for name, m in of.items()}
    better = [called[name] for name, p in confirm.better_p_values(found).items() if p < ALPHA]
    said = f"is better than both at {'; '.join(better)}" if better else "is not shown to be"
    cells = (
        f"{called[name]} " + " and ".join(map(change, rivals.values()))
        for name, rivals in found.items()
    )
    return (
        "Second question, asked after the trials: is the oscillator on the sphere with rotary "
        f"positions in its couplings better than {BEST} and than a {BOTH}? It {said} (per cent of "
        f"test perplexity, {'; '.join(cells)})."
    )
