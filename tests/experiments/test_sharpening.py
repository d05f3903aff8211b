"""Table 5 from the published values, and its two claims."""

import math

import pytest
from language_records import ON_OURS, ON_THEIRS, by_what, evidence

from lohe.experiments.evidence import Evidence
from lohe.experiments.studies.lm.language_modeling import printed_oscillator
from lohe.experiments.studies.lm.perplexity import oscillator, run
from lohe.experiments.studies.lm.sharpening import (
    lines,
    printed_accuracy,
    printed_perplexity,
    rises,
    runs,
    sharper_is_better,
    table_5,
)
from lohe.experiments.verdicts import Agreement, judge
from lohe.models import Oscillator

# the paper's Table 5
PRINTED = {
    "KWS, paper": ("88.79 ± 0.29", "89.46 ± 0.68", "90.02 ± 0.73"),
    "TinyStories, d_osc = 2, paper": ("10.91 ± 0.07", "10.42 ± 0.06", "10.17 ± 0.11"),
    "TinyStories, d_osc = 8, paper": ("9.78 ± 0.06", "9.18 ± 0.02", "8.98 ± 0.07"),
}
# Section 4.3: what p = 4 gains
GAINED = {"KWS": "+1.23", "TinyStories, d_osc = 2": "-0.74", "TinyStories, d_osc = 8": "-0.80"}


def around(mean: float, n: int = 5, step: float = 0.05) -> list[float]:
    return [mean + step * (k - (n - 1) / 2) for k in range(n)]


@pytest.fixture(scope="module")
def printed():
    """The published values as if they were ours; p = 2 and 4 of language by their means."""
    recipe = ON_THEIRS.keyword_spotting
    values = {
        recipe("ten keywords", oscillator("as published", 2, p)): printed_accuracy(p)
        for p in (1, 2, 4)
    }
    for d in (2, 8):
        for p in (1, 2, 4):
            found = printed_perplexity(d, p)
            here = printed_oscillator("tinystories", d) if p == 1 else around(found.value)
            values[run(ON_THEIRS, "tinystories", oscillator("as published", d, p))] = here
    return evidence(ON_THEIRS, values)


def test_the_table_prints_the_papers_cells():
    rows = {row[0]: row[1:] for row in table_5(Evidence([], ON_OURS)).rows}
    assert {name: row[:3] for name, row in rows.items()} == PRINTED
    assert [row[3] for row in rows.values()] == list(GAINED.values())


def test_every_printed_number_has_a_line(printed):
    found = by_what(lines(printed))
    papers = [line.paper for line in found.values()]
    for cells in PRINTED.values():
        assert all(papers.count(cell) == 1 for cell in cells)
    for gained in (*GAINED.values(), "+0.67"):
        assert papers.count(gained) == 2  # in both readings


def test_the_papers_own_runs_hold_its_claims(printed):
    judged = {(j.line.what, j.line.reading): j for j in judge(lines(printed))}
    assert judged["KWS (ten keywords), p = 4 less p = 1", "as published"].claim == "holds"
    assert judged["TinyStories, p = 1, 2, 4", "as published"].claim == "holds"
    assert judged["TinyStories, p = 1, 2, 4", "as defined"].claim == "undecided"
    for (what, reading), j in judged.items():
        if reading == "as published" and isinstance(j.line.value, Agreement):
            assert j.line.value.difference.value == pytest.approx(0, abs=1e-9), what
            assert j.value in ("reproduced", "inconclusive")


@pytest.mark.parametrize("setting", [ON_OURS, ON_THEIRS], ids=["ours", "the paper's"])
def test_wikitext_stands_in_where_the_stories_are_not_the_papers(setting):
    values = {
        run(setting, "wikitext2", oscillator("as defined", d, p)): around(100 - d - p)
        for d in (2, 8)
        for p in (1, 2, 4)
    }
    found = by_what(lines(evidence(setting, values)))
    line = found["WikiText-2, d_osc = 2, p = 4 less p = 1", "as defined"]
    assert line.ours == "-3.00 = -3.09 %"
    if setting is ON_OURS:
        assert line.paper == "-0.74 = -6.79 % (TinyStories)"
        assert isinstance(line.value, Agreement)
        assert line.value.difference.value == pytest.approx(
            math.log(94 / 97) - math.log(1 - 0.0679), abs=1e-4
        )
    else:
        assert (line.paper, line.value) == ("not in the paper", "not reported")
    claim = found["WikiText-2, p = 1, 2, 4", "as defined"].claim
    assert claim is not None
    assert claim.holds


def test_sharpening_must_help_in_order_and_at_both_dimensions():
    falling = {p: around(10 - p) for p in (1, 2, 4)}
    out_of_order = falling | {2: around(5.5)}
    weak = {p: around(10 - p / 100, step=3) for p in (1, 2, 4)}
    assert sharper_is_better({2: falling, 8: falling}).holds
    assert sharper_is_better({2: falling, 8: out_of_order}).holds is False
    assert sharper_is_better({2: weak, 8: falling}).holds is False
    assert sharper_is_better({2: falling, 8: falling | {4: [1.0]}}).holds is None
    rising = {p: around(80 + p) for p in (1, 2, 4)}
    assert rises(rising).holds
    assert rises(falling).holds is False
    assert rises(rising | {2: around(79.0)}).holds is False
    assert rises(rising | {4: [80.0]}).verdict == "undecided"
    missing = rises(rising | {2: []})
    assert (missing.verdict, missing.numbers) == ("no records", "p = 2 missing")


def test_the_power_raises_the_rank(printed):
    """D26: the paper says that the ceiling d_osc + 1 does not depend on p."""
    judged = {j.line.what: j for j in judge(lines(printed)) if "rank" in j.line.what}
    two = judged["rank ceiling at d_osc = 2, p = 1, 2, 4"]
    assert (two.line.paper, two.line.ours, two.value) == ("3 for every p", "3, 5, 9", "differs")


def test_the_runs_are_those_that_are_trained():
    listed = runs(ON_OURS)
    keywords = 2 * 2 * 3 * 10  # sets, readings, exponents, seeds
    assert len(listed) == len(set(listed)) == keywords + 2 * 2 * 3 * (5 + 3)
    free = Oscillator(anchors="free", sharpness=4)
    assert ON_OURS.keyword_spotting("ten words", free, seed=9) in listed
    assert ON_OURS.wikitext2(Oscillator(d_osc=8, sharpness=2), 4) in listed
