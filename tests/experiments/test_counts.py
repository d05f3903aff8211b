"""Tables 7, 10 and 11 and the budgets, judged to the unit."""

import doctest

import pytest
from invented import claims, evidence, verdicts

from lohe import cost
from lohe.experiments.studies import counts
from lohe.experiments.verdicts import judge


@pytest.mark.parametrize(("name", "printed"), [("table7", 15), ("table10", 15), ("table11", 30)])
def test_every_printed_number_has_a_line_and_is_reproduced(name, printed):
    lines = counts.ITEMS[name].lines(evidence())
    judged = [j for j in judge(lines) if not j.line.claim]
    assert len(judged) == printed
    assert {j.value for j in judged} == {"reproduced"}
    assert len({j.line.what for j in judged}) == printed
    more = {"table7": ["cost-order"], "table10": ["cost-softplus"]}.get(name, [])
    assert claims(lines) == {(claim, ""): True for claim in ("cost-counts", *more)}


def test_one_operation_more_is_seen():
    rows = [cost.Row("all digital", (964,), (963,)), cost.Row("+ readout", (234,), (234,))]
    lines = counts.lines(rows, ["SVA"])
    assert [j.value for j in judge(lines)][1:] == ["differs", "reproduced"]
    assert claims(lines) == {("cost-counts", ""): False}


@pytest.mark.parametrize(
    ("row", "factors"),
    [
        (1, (2.1, 1.6, 0.6)),  # not below two in software
        (2, (1.6, 2.4, 1.1)),  # a step back
        (2, (2.4, 2.4, 1.3)),  # TinyStories gains before the readout moves
        (4, (11.0, 11.9, 12.0)),
    ],
)
def test_the_order_of_steps_is_that_of_the_text(row, factors):
    rows = [cost.Row(r.label, r.paper, r.paper) for r in cost.table_7()]
    assert claims([counts.order_line(rows)]) == {("cost-order", ""): True}
    rows[row] = cost.Row("changed", factors, factors)
    assert claims([counts.order_line(rows)]) == {("cost-order", ""): False}


@pytest.mark.parametrize(("row", "factor"), [(3, 1.001), (4, 1.3)])
def test_exactly_the_same_is_exact(row, factor):
    rows = cost.table_10()
    rows[row] = cost.Row("changed", (factor,) * 3, (factor,) * 3)
    assert claims([counts.same_line(rows)]) == {("cost-softplus", ""): False}


def test_tables_hold_every_count():
    table = counts.counts("Table 11", cost.table_11())
    cells = {cell for row in table.rows for cell in row[1:]}
    assert cells == {f"{n:,}" for row in cost.table_11() for n in row.paper}


def test_budgets():
    lines = counts.ITEMS["claim-budget"].lines(evidence())
    assert [line.ours for line in lines[1:]] == ["9", "98", "6,200"]
    assert verdicts(lines[1:]) == {"reproduced"}
    assert claims(lines) == {("budget", ""): True}
    assert len(counts.budget_table(evidence()).rows) == 3


def test_docstring_examples():
    assert doctest.testmod(counts) == doctest.TestResults(failed=0, attempted=1)
