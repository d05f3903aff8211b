"""Is ours better than every softmax, not only than the one that validation chose?

A test of its own beside the primary one, of ours and of the same at the dimensions that are asked
for.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from lohe.experiments.contest import choose, confirm
from lohe.experiments.contest.confirm import Comparison, Rivals
from lohe.experiments.contest.stages import Chosen, confirmed_spheres, controls
from lohe.experiments.contest.tables import P_VALUE, change, intervals
from lohe.experiments.contest.trials import PUBLISHED, STAGES, Configuration
from lohe.experiments.contest.verdict import ALPHA
from lohe.experiments.evidence import Evidence
from lohe.experiments.item import Figure
from lohe.experiments.tables import Table
from lohe.experiments.verdicts import Estimate, of_sample
from lohe.viz.style import BLUE, GREY, SOFTMAX

TITLE = "Against each softmax at its best learning rate"
EVERY = "every one"


@lru_cache(maxsize=4)
def comparisons(evidence: Evidence, chosen: Chosen) -> dict[str, Rivals]:
    """Each of ours against each softmax, on the test articles."""
    planned = len(STAGES["confirm"].seeds)
    ours, theirs = (
        {name: confirm.records(evidence, c, "strict") for name, c in named.items()}
        for named in (confirmed_spheres(chosen), dict(chosen.softmaxes))
    )
    return confirm.against(ours, theirs, (planned, planned))


def table(evidence: Evidence) -> Table:
    """How far each of ours is from each softmax; those whose seeds are all there."""
    chosen = choose.chosen(evidence)
    found = comparisons(evidence, chosen) if chosen else {}
    corrected = confirm.better_p_values(found)
    rows = []
    for name, rivals in found.items():
        for rival, c in rivals.items():
            if isinstance(c, Comparison):
                rows.append((name, rival, change(c), *intervals(c), f"{c.welch.p:.2g}"))
        if confirm.complete(rivals):
            rows.append((name, EVERY, "", "", "", f"{corrected[name]:.2g}"))
    columns = ("oscillator", "softmax", "change, %", "paired", "seeds and articles", P_VALUE)
    notes = [
        "Change of test perplexity in per cent with its 95 % interval by Welch; paired: the "
        "interval by seed; seeds and articles: that of a bootstrap over both. p-value: Welch's, "
        f"two-sided, of this comparison alone; {EVERY}: that it is better than all of them, the "
        "largest of these, 1 where it is not ahead of one, Holm-corrected over the "
        f"{len(found)} oscillators. Narrower ones have learning rate, dropout and p of ours."
    ]
    return Table(TITLE, columns, rows, notes)


@dataclass(frozen=True)
class Entry:
    """A model that was scored on test: log perplexity over seeds, and how it is drawn."""

    name: str
    nats: Estimate
    color: str
    control: bool = False


def entries(evidence: Evidence) -> list[Entry]:
    """All that have several seeds without one that diverged, the lowest first."""
    chosen = choose.chosen(evidence)
    if chosen is None:
        return []
    spheres = {f"ours, d_osc {_d_osc(c)}": c for c in confirmed_spheres(chosen).values()}
    given = [(name, c, "", BLUE) for name, c in spheres.items()]
    given += [(name, c, "", SOFTMAX) for name, c in chosen.softmaxes]
    given += [(name, c, "", GREY) for name, c in PUBLISHED.items()]
    given += [(f"ours, {n}", c, "controls", BLUE) for n, c in controls(chosen.ours).items()]
    found = []
    for name, c, stage, color in given:
        there = confirm.records(evidence, c, "strict", stage)
        if len(there) > 1 and not confirm.diverged(there):
            nats = of_sample([r.result[confirm.TEST] for r in there])
            found.append(Entry(name, nats, color, bool(stage)))
    return sorted(found, key=lambda entry: entry.nats.value)


def figure(evidence: Evidence) -> Figure:
    """Test perplexity of all of them, with 95 % intervals over seeds."""
    import matplotlib.pyplot as plt

    from lohe.viz import forest

    there = entries(evidence)
    drawn, ax = plt.subplots(figsize=(6.4, 0.9 + 0.27 * len(there)), layout="constrained")
    forest.rows(
        ax,
        [entry.name for entry in there],
        [math.exp(entry.nats.value) for entry in there],
        [_perplexities(entry.nats) for entry in there],
        [entry.color for entry in there],
        [entry.control for entry in there],
    )
    ax.set_xlabel("perplexity, test articles, strict")
    drawn.supxlabel(
        "mean and 95 % interval over seeds; hollow: ours with one part changed", fontsize=8
    )
    return drawn


def _perplexities(nats: Estimate) -> tuple[float, float]:
    low, high = nats.interval(0.95)
    return math.exp(low), math.exp(high)


def _d_osc(c: Configuration) -> int:
    mechanism: Any = c.mechanism
    return mechanism.d_osc


def answer(evidence: Evidence) -> str:
    """Which of ours are better than all, in a sentence; nothing before every seed is there."""
    chosen = choose.chosen(evidence)
    found = comparisons(evidence, chosen) if chosen else {}
    if chosen is None or not all(map(confirm.complete, found.values())):
        return ""
    of = confirmed_spheres(chosen)
    p = confirm.better_p_values(found)
    said = (
        f"d_osc = {_d_osc(of[name])} {'is' if p[name] < ALPHA else 'is not shown to be'} "
        f"(p-value {p[name]:.2g})"
        for name in found
    )
    return (
        f"Better than every one of the {len(chosen.softmaxes)} softmaxes on the test articles, the "
        f"largest p-value counting, Holm-corrected over {len(found)}: {'; '.join(said)}."
    )
