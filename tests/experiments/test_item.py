"""The items of the paper: named, complete, and judged by claims that exist."""

import ast
import re
from pathlib import Path

import pytest

import lohe.experiments
from lohe.experiments import PAPER, all_measures, all_runs, chosen, item, report
from lohe.experiments.evidence import Evidence
from lohe.experiments.measures import measure_recipe
from lohe.experiments.setting import CORPORA, SCALES, Setting
from lohe.experiments.store.records import key
from lohe.experiments.verdicts import rules

STATEMENTS = {
    "kws": ("positions", "permutation", "coupling", "adamw"),
    "sva": ("sweep", "standard", "errors", "anchors", "pads"),
    "lm": ("coupling",),
    "rank": ("matched", "parity"),
}
OTHERS = ("design-rule", "alternatives", "sequential", "inference-modes", "integrators")
OTHERS += ("degenerate", "monotonicity", "budget")
ITEMS = [f"table{n}" for n in range(1, 12)] + [f"figure{n}" for n in range(2, 11)]
ITEMS += [f"claim-{task}-{name}" for task, names in STATEMENTS.items() for name in names]
ITEMS += [f"claim-{name}" for name in OTHERS]


def test_items_have_the_names_of_the_paper():
    assert set(PAPER) == set(ITEMS)
    assert next(iter(PAPER)).startswith("table")
    assert chosen(["all"]) == PAPER
    assert list(chosen(["table2", "figure6", "table2"])) == ["table2", "figure6"]
    assert list(chosen(["figure6", "all"]))[:2] == ["figure6", "table1"]
    with pytest.raises(ValueError, match=r"'table99' is no item of the paper. There are: table"):
        item("table99")


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("tabel2", "table2"), ("Table11", "table11"), ("kws-positions", "claim-kws-positions")],
)
def test_a_slip_of_the_pen_is_told_what_was_meant(typed, meant):
    with pytest.raises(ValueError, match=rf"Did you mean {meant}\?$"):
        item(typed)
    with pytest.raises(ValueError, match=r"claim-budget\.$"):
        item("nothing like it")


@pytest.mark.parametrize("name", PAPER)
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("corpora", CORPORA.values(), ids=CORPORA)
def test_what_an_item_needs_can_be_recorded(name, scale, corpora):
    setting, one = Setting(scale, corpora), PAPER[name]
    assert one.title
    runs = all_runs([one], setting)
    assert len({(key(run.recipe()), run.seed) for run in runs}) == len(runs)
    measures = all_measures([one], setting)
    named = {(key(measure_recipe(m)), m.run.seed if m.run else 0) for m in measures}
    assert len(named) == len(measures)  # no two of them share a record


def test_the_page_of_readings_lists_every_discrepancy_and_items_that_exist():
    page = (Path(__file__).parents[2] / "docs" / "readings.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (D\d+) \|(.*)\|$", page, re.MULTILINE)
    assert [number for number, _ in rows] == [f"D{n}" for n in range(1, 31)]
    assert all(row.count(" | ") == 3 for _, row in rows)
    assert set(re.findall(r"`lohe run ([^ `]+)", page)) <= set(ITEMS)


def named_claims(path: Path) -> list[str]:
    """The names in calls of Claim("name", ...)."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Claim" and node.args:
            name = node.args[0]
            if isinstance(name, ast.Constant):
                found.append(name.value)
    return found


def test_claims_that_are_used_exist():
    sources = Path(lohe.experiments.__file__).parent.rglob("*.py")
    used = {name for path in sources for name in named_claims(path)}
    assert len(used) > 50
    assert used <= rules()["claims"].keys()


def test_every_claim_is_judged():
    """A rule that nobody applies is not a rule; records or none, an item names its claims."""
    nothing = Evidence([], Setting())
    lines = [line for one in PAPER.values() for line in one.lines(nothing)]
    assert {line.claim.name for line in lines if line.claim} == rules()["claims"].keys()


def test_the_headlines_are_judged():
    found = report.headlines(report.sections(PAPER, Evidence([], Setting())))
    assert [headline.title for headline in found] == list(report.HEADLINES)
