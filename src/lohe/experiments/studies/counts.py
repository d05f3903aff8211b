"""Operation counts and oscillator budgets, to the unit; the counting itself is `lohe.cost`."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from lohe import cost
from lohe.experiments.evidence import Evidence
from lohe.experiments.item import Item
from lohe.experiments.reported import published
from lohe.experiments.tables import Table
from lohe.experiments.verdicts import Agreement, Claim, Line, exactly, margin

TASKS = tuple(cost.TASKS)
UNIT = "Multiply-add equivalents of one attention layer, an exponential counted as ten."


def reductions(title: str, rows: Sequence[cost.Row]) -> Table:
    """Factors relative to softmax, with the digit after the printed one."""
    cells = [
        (row.label, *(f"{x:.2f} ({y:.1f})" for x, y in zip(row.ours, row.paper, strict=True)))
        for row in rows
    ]
    notes = ["Ours (paper's).", UNIT, _agreement(rows)]
    return Table(title, ("reduction relative to softmax", *TASKS), cells, notes)


def counts(title: str, rows: Sequence[cost.Row]) -> Table:
    """Operations, the couplings one below the other."""
    cells = []
    for n, coupling in enumerate(("relu", "softplus")):
        here = slice(len(TASKS) * n, len(TASKS) * (n + 1))
        cells += [(f"{coupling}: {row.label}", *(f"{x:,}" for x in row.ours[here])) for row in rows]
    return Table(title, ("operations", *TASKS), cells, [UNIT, _agreement(rows)])


def lines(rows: Sequence[cost.Row], columns: Sequence[str]) -> list[Line]:
    """Every printed number: equal in its printed digits, or not."""
    found = []
    for row in rows:
        for column, ours, paper in zip(columns, row.ours, row.paper, strict=True):
            digits = 1 if isinstance(paper, float) else 0
            found.append(
                Line(
                    f"{column}, {row.label.removeprefix('+ ')}",
                    f"{paper:,.{digits}f}",
                    f"{ours:,.{digits}f}",
                    Agreement(exactly(round(ours, digits) - paper), margin("exact")),
                )
            )
    equal = sum(line.paper == line.ours for line in found)
    claim = Claim("cost-counts", equal == len(found), f"{equal} of {len(found)} equal")
    return [Line("all counts", f"{len(found)} printed", f"{equal} equal", claim=claim), *found]


def order_line(rows: Sequence[cost.Row]) -> Line:
    """Section 5: on the edge tasks every step helps, on TinyStories not before the third."""
    by_task = dict(zip(TASKS, zip(*(row.ours for row in rows), strict=True), strict=True))
    edge = [by_task[task] for task in ("KWS", "SVA")]
    grows = all(a < b for steps in edge for a, b in pairwise(steps))
    digital, equilibrated, read, _ = by_task["TinyStories"][1:]
    ends = all(steps[1] < 2 and round(steps[-1]) == 12 for steps in edge)
    stories = digital < 1 and round(equilibrated, 1) <= 1.1 and round(read) == round(edge[0][3])
    found = "; ".join(
        f"{task} {', '.join(f'{x:.2f}' for x in by_task[task][1:])}" for task in TASKS
    )
    claim = Claim("cost-order", grows and ends and stories, found)
    paper = "grows at every step on KWS and SVA; TinyStories from the third on"
    return Line(
        "steps from software to physics", paper, "so" if claim.holds else "not so", claim=claim
    )


def same_line(rows: Sequence[cost.Row]) -> Line:
    """Table 10's caption: with softplus and a physical readout both cost exactly the same."""
    third, last = rows[3].ours, rows[4].ours
    claim = Claim(
        "cost-softplus",
        set(third) == {1.0} and {round(x, 1) for x in last} == {1.2},
        f"{', '.join(f'{x:.6g}' for x in third)}; {', '.join(f'{x:.3f}' for x in last)}",
    )
    ours = f"{min(third):g}; {max(last):.2f}"
    return Line("readout physical; everything physical", "exactly 1.0; only 1.2", ours, claim=claim)


def _agreement(rows: Sequence[cost.Row]) -> str:
    differing = [row.label for row in rows if not row.agrees]
    if not differing:
        return "All equal the printed numbers."
    return f"Not equal to the printed numbers: {', '.join(differing)}."


def budgets() -> list[tuple[dict[str, Any], int]]:
    """The configurations of the paper, each with the oscillators that it needs."""
    return [
        (row, cost.oscillators(row["tokens"], row["heads"], row["d_osc"]))
        for row in published("claim-budget")["budgets"]
    ]


def budget_table(evidence: Evidence) -> Table:
    """n_h T (d_osc - 1) for the three configurations that the paper names."""
    rows = [
        (
            row["task"],
            *(str(row[name]) for name in ("heads", "tokens", "d_osc")),
            f"{ours:,}",
            f"{row['oscillators']:,}",
        )
        for row, ours in budgets()
    ]
    columns = ("task", "heads", "tokens", "d_osc", "oscillators", "paper")
    read = cost.oscillators(tokens=49, heads=4, d_osc=32)
    notes = [f"WikiText-2 models read 49 of the 50 tokens of a chunk, which takes {read:,}."]
    return Table("Oscillator budget of one layer, n_h T (d_osc - 1)", columns, rows, notes)


def budget_lines(evidence: Evidence) -> list[Line]:
    """Equal in the digits that the paper gives."""
    found, equal = [], True
    for row, ours in budgets():
        gap = significant(ours, row["digits"]) - significant(row["oscillators"], row["digits"])
        equal &= gap == 0
        agreement = Agreement(exactly(gap), margin("exact"))
        found.append(Line(row["task"], f"{row['oscillators']:,}", f"{ours:,}", agreement))
    said = ", ".join(f"{ours:,}" for _, ours in budgets())
    claim = Claim("budget", equal, said)
    return [Line("oscillator budgets", "9, 98, about 6,200", said, claim=claim), *found]


def significant(x: int, digits: int) -> int:
    """x rounded to so many significant digits.

    >>> significant(6_249, 2), significant(98, 2), significant(9, 1)
    (6200, 98, 9)
    """
    return round(x, digits - 1 - math.floor(math.log10(x)))


_COUNTED = [f"{task}, {coupling}" for coupling in ("relu", "softplus") for task in TASKS]

ITEMS = {
    "table7": Item(
        title="Table 7. Reduction in operations, ReLU coupling",
        table=lambda evidence: reductions("Table 7. ReLU coupling", cost.table_7()),
        lines=lambda evidence: [*lines(cost.table_7(), TASKS), order_line(cost.table_7())],
    ),
    "table10": Item(
        title="Table 10. Reduction in operations, softplus coupling",
        table=lambda evidence: reductions("Table 10. Softplus coupling", cost.table_10()),
        lines=lambda evidence: [*lines(cost.table_10(), TASKS), same_line(cost.table_10())],
    ),
    "table11": Item(
        title="Table 11. Operation counts",
        table=lambda evidence: counts("Table 11. Operation counts", cost.table_11()),
        lines=lambda evidence: lines(cost.table_11(), _COUNTED),
    ),
    "claim-budget": Item(title="Oscillator budget", table=budget_table, lines=budget_lines),
}
