"""Table 4 from the published perplexities, and from what may come instead."""

import math

import pytest
from language_records import ON_OURS, ON_THEIRS, as_printed, by_what, evidence, records

from lohe.experiments import PAPER
from lohe.experiments.evidence import Evidence
from lohe.experiments.setting import Setting
from lohe.experiments.studies.lm.language_modeling import falls, lines, runs, table_4
from lohe.experiments.studies.lm.perplexity import (
    CORPORA,
    READINGS,
    log_ratio,
    metric,
    name,
    oscillator,
    run,
    same_ratio,
    same_value,
)
from lohe.experiments.studies.lm.scaling_law import figure_6
from lohe.experiments.verdicts import Agreement, exactly, judge, log, of_sample
from lohe.models import Oscillator, Softmax
from lohe.viz.style import drawing, save

# the paper's Table 4: PPL and gap to softmax
PRINTED = {
    "WikiText-2": {
        2: ("110.67 ± 0.51", "+11.67"),
        4: ("107.20 ± 0.55", "+8.20"),
        8: ("105.23 ± 0.32", "+6.23"),
        16: ("103.78 ± 0.49", "+4.78"),
        32: ("102.56 ± 0.37", "+3.56"),
    },
    "TinyStories": {
        2: ("10.91 ± 0.07", "+2.24"),
        4: ("10.28 ± 0.08", "+1.61"),
        8: ("9.78 ± 0.06", "+1.11"),
        16: ("9.35 ± 0.05", "+0.68"),
        32: ("9.11 ± 0.02", "+0.44"),
    },
}
SOFTMAX = {"WikiText-2": "99.00 ± 0.48", "TinyStories": "8.67 ± 0.04"}
STUDY = ["table4", "figure6", "claim-design-rule", "table5", "claim-lm-coupling"]
STUDY += ["claim-alternatives"]


def test_the_table_prints_the_papers_cells():
    table = table_4(Evidence([], ON_OURS))
    rows = iter(table.rows)
    for corpus, cells in PRINTED.items():
        softmax = next(rows)
        assert (softmax[0], softmax[2], softmax[-2]) == (
            f"{corpus}, softmax", "no records", SOFTMAX[corpus],
        )  # fmt: skip
        for d, printed in cells.items():
            row = next(rows)
            assert row[0] == f"d_osc = {d}, as published"
            assert row[-2:] == printed
    assert next(rows, None) is None


def test_the_papers_own_runs_give_the_papers_table():
    table = table_4(evidence(ON_THEIRS, as_printed(ON_THEIRS)))
    for row in table.rows:
        assert row[2] == row[-2]  # PPL
        assert float(row[4] or 0) == pytest.approx(float(row[-1] or 0), abs=0.0101)  # gap


def test_both_protocols_are_shown():
    run_ = ON_OURS.wikitext2(Softmax())
    found = records(run_, [96.0, 97.0, 98.0], **{"valid_strict.perplexity": 2})
    row = table_4(Evidence(found, ON_OURS)).rows[0]
    assert row[1:4] == ("3", "97.00 ± 1.00", "194.00 ± 2.00")
    found[0].result.pop("valid_strict.perplexity")  # as those of a task that had no such split
    row = table_4(Evidence(found, ON_OURS)).rows[0]
    assert row[1:4] == ("3", "97.00 ± 1.00", "195.00 ± 1.41 (2 of 3)")


def test_the_runs_are_those_that_are_trained():
    listed = runs(ON_OURS)
    assert len(listed) == len(set(listed)) == (1 + 2 * 5) * (5 + 3)
    for d in (2, 4, 8, 16, 32):
        for seed in range(5):
            assert ON_OURS.wikitext2(Oscillator(d_osc=d, anchors="free"), seed) in listed
            there = ON_OURS.tinystories(Oscillator(d_osc=d), seed) in listed
            assert there == (seed < 3)  # a trend
    assert len(runs(Setting("smoke"))) == 22


def test_stories_are_scored_on_what_no_epoch_was_selected_on():
    assert metric(ON_OURS, "tinystories") == "test.perplexity"
    assert metric(ON_THEIRS, "tinystories") == "valid.perplexity"  # there is no test split
    assert metric(ON_OURS, "wikitext2") == "valid_published.perplexity"
    assert name(ON_OURS, "tinystories") == "TinyStories (trend)"
    assert name(ON_THEIRS, "tinystories") == "TinyStories"


def test_on_the_papers_corpora_its_own_values_are_not_said_to_differ():
    judged = judge(lines(evidence(ON_THEIRS, as_printed(ON_THEIRS))))
    published = [j for j in judged if j.line.reading != "as defined"]
    assert {j.value for j in published if j.line.claim is None} == {"reproduced", "inconclusive"}
    assert [j.claim for j in published if j.line.claim] == ["holds", "holds"]
    missing = [j for j in judged if j.line.reading == "as defined"]
    assert {j.value for j in missing} == {"no records"}
    assert {j.claim for j in missing if j.line.claim} == {"undecided"}


def test_every_printed_cell_has_a_line():
    found = lines(Evidence([], ON_THEIRS))
    papers = {line.paper for line in found}
    assert set(SOFTMAX.values()) <= papers
    for cells in PRINTED.values():
        for perplexity, gap in cells.values():
            assert perplexity in papers
            assert any(f"({gap})" in paper for paper in papers)


def test_on_other_corpora_only_ratios_are_judged_and_a_trend_is_not():
    scaled = {r: [1.5 * x for x in xs] for r, xs in as_printed(ON_OURS).items()}
    found = lines(evidence(ON_OURS, scaled))
    for line in found:
        if line.reading != "as defined" and line.claim is None:
            judged = "ratio" in line.what and "trend" not in line.what
            assert isinstance(line.value, Agreement) == judged
            assert judged or line.value == "not comparable"
            if isinstance(line.value, Agreement):
                assert line.value.difference.value == pytest.approx(0, abs=1e-12)


def test_a_ratio_is_judged_by_its_logarithm():
    a, b = [110.0, 111.0, 112.0], [99.0, 100.0, 101.0]
    same = same_ratio(a, b, exactly(0.1))
    assert isinstance(same, Agreement)
    assert same.difference.value == pytest.approx(math.log(111 / 100) - 0.1)
    se = math.hypot(1 / math.sqrt(3) / 111, 1 / math.sqrt(3) / 100)
    assert same.difference.se == pytest.approx(se)
    assert same.margin == 0.01
    assert log_ratio(of_sample(a), of_sample(b)).value == pytest.approx(math.log(1.11))


@pytest.mark.parametrize(
    ("a", "b", "verdict"),
    [
        ([], [99.0, 100.0], "no records"),
        ([99.0, 100.0], [], "no records"),
        ([110.0], [99.0, 100.0], "inconclusive"),  # one run has no error
        ([110.0, math.inf], [99.0, 100.0], "inconclusive"),
        ([110.0, math.nan], [99.0, 100.0], "inconclusive"),
    ],
)
def test_what_cannot_be_judged(a, b, verdict):
    assert same_ratio(a, b, exactly(0.1)) == verdict


def test_absolute_values_are_judged_on_the_papers_corpora_only():
    paper = of_sample([99.0, 100.0, 101.0])
    assert same_value([99.0, 100.0, 101.0], paper, ON_OURS) == "not comparable"
    same = same_value([99.0, 100.0, 101.0], paper, ON_THEIRS)
    assert isinstance(same, Agreement)
    assert same.difference.value == pytest.approx(0)
    assert log(paper).value == pytest.approx(math.log(100))


FALLING = {
    d: [x, x + 0.1, x - 0.1] for d, x in zip((2, 4, 8, 16, 32), (9, 8, 7, 6, 5), strict=True)
}


def test_the_trend_asks_for_every_step_and_for_significance():
    claim = falls(FALLING)
    assert claim.holds
    assert claim.p is not None
    assert claim.p < 1e-4
    # one step that rises, between the first and the last
    bumpy = falls(FALLING | {8: [8.5, 8.6, 8.4]})
    assert bumpy.holds is False
    assert "not falling at every step" in bumpy.found
    # the means fall, but by less than their errors
    noisy = {d: [x / 100, x / 100 + 30, x / 100 - 30] for d, (x, *_) in FALLING.items()}
    assert falls(noisy).holds is False
    assert falls({d: list(reversed(xs)) for d, xs in FALLING.items()}).holds


@pytest.mark.parametrize("values", [[], [9.0], [9.0, math.nan]])
def test_without_two_usable_runs_the_trend_is_undecided(values):
    claim = falls(FALLING | {8: values})
    assert claim.holds is None
    assert "at d_osc 8" in claim.found


ODD = {
    "one seed": [9.0],
    "diverged": [math.inf, math.nan, 9.0],
    "constant": [9.0, 9.0, 9.0],
}


@pytest.fixture(scope="module", params=ODD)
def odd(request):
    """The same values for every recipe of the study."""
    listed = [run_ for item in STUDY for run_ in PAPER[item].runs(ON_OURS) if run_.seed == 0]
    values = ODD[request.param]
    return values, evidence(ON_OURS, dict.fromkeys(listed, values))


@pytest.mark.parametrize("item", STUDY)
def test_every_item_survives_results_that_make_no_sense(item, odd):
    values, here = odd
    make = PAPER[item].table
    assert make is not None
    table = make(here)
    assert all(len(row) == len(table.columns) for row in table.rows)
    assert "None of ours yet" not in " ".join(table.notes)
    for judged in judge(PAPER[item].lines(here)):
        if values != ODD["constant"] and "rank ceiling" not in judged.line.what:
            assert judged.value in ("no records", "inconclusive", "not comparable", "not reported")
            assert judged.claim in ("", "undecided", "no records")


@pytest.mark.parametrize("setting", [ON_OURS, ON_THEIRS], ids=["compact", "paper"])
@pytest.mark.parametrize("item", [*STUDY, "figure10", "claim-rank-matched"])
def test_perplexities_name_their_protocol(item, setting):
    listed = [run_ for name in STUDY for run_ in PAPER[name].runs(setting) if run_.seed == 0]
    table = PAPER[item].table
    assert table is not None
    notes = table(evidence(setting, dict.fromkeys(listed, (9.0, 9.1)))).notes
    assert "WikiText-2 is scored by the published protocol: inserted end marks count." in notes


def test_the_figure_is_drawn_whatever_there_is(tmp_path):
    odd = [[9.0], [math.nan, 9.0], [], [8.0, 8.5]]
    recipes = [run_ for run_ in PAPER["figure6"].runs(ON_OURS) if run_.seed == 0]
    values = {run_: odd[n % len(odd)] for n, run_ in enumerate(recipes)}
    with drawing():
        figure = figure_6(evidence(ON_OURS, values))
        assert save(figure, tmp_path / "figure.png").stat().st_size > 10_000


def test_readings_and_corpora_come_in_the_order_of_the_report():
    assert list(CORPORA) == ["wikitext2", "tinystories"]
    assert list(READINGS) == ["as published", "as defined"]
    found = by_what(lines(Evidence([], ON_OURS)))
    assert len(found) == 2 * (1 + 5 + 2 * 5 + 2)


def test_an_oscillator_of_a_reading():
    assert oscillator("as published", 8, 4) == Oscillator(d_osc=8, sharpness=4, anchors="free")
    assert oscillator("as defined", 2) == Oscillator()
    assert run(ON_OURS, "wikitext2", Oscillator(), 3) == ON_OURS.wikitext2(Oscillator(), 3)
