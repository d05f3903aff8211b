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
    judged = judge(lines)[1:]
    assert len(judged) == printed
    assert {j.value for j in judged} == {"reproduced"}
    assert len({j.line.what for j in judged}) == printed
    assert claims(lines) == {("cost-counts", ""): True}


def test_one_operation_more_is_seen():
    rows = [cost.Row("all digital", (964,), (963,)), cost.Row("+ readout", (234,), (234,))]
    lines = counts.lines(rows, ["SVA"])
    assert [j.value for j in judge(lines)][1:] == ["differs", "reproduced"]
    assert claims(lines) == {("cost-counts", ""): False}


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
