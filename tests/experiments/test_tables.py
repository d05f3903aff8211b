"""Tables, figures and verdicts are functions of records, with or without any."""

import math

import matplotlib.pyplot as plt
import pytest

from lohe.experiments import PAPER, item
from lohe.experiments.evidence import Evidence
from lohe.experiments.setting import CORPORA, SCALES, Setting
from lohe.experiments.tables import plus_minus, seed_ranges, verdict_table
from lohe.experiments.verdicts import Agreement, Line, exactly, judge
from lohe.viz.style import drawing


@pytest.mark.parametrize("name", PAPER)
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("corpora", CORPORA.values(), ids=CORPORA)
def test_an_item_without_records_says_so_and_decides_nothing(name, scale, corpora):
    setting, one = Setting(scale, corpora), PAPER[name]
    nothing, needed = Evidence([], setting), bool(one.runs(setting) or one.measures(setting))
    if one.table:
        table = one.table(nothing)
        assert all(len(row) == len(table.columns) for row in table.rows)
        said = f"None of ours yet at scale {scale}: lohe run {name} --scale {scale}."
        assert (said in table.notes) == needed
    for judged in judge(one.lines(nothing)):
        if needed and not isinstance(judged.line.value, Agreement):  # that is of mathematics
            assert "no records" in (judged.value, judged.claim_said)
        assert not needed or judged.claim in ("", "undecided", "no records")


@pytest.mark.parametrize("name", [name for name, one in PAPER.items() if one.figure])
def test_a_figure_can_be_drawn_without_records(name):
    figure = PAPER[name].figure
    assert figure is not None
    with drawing():
        plt.close(figure(Evidence([], Setting())))


def test_what_does_not_exist_is_refused():
    with pytest.raises(ValueError, match=r"scale='big' is not known. Choose from smoke"):
        Setting("big")
    with pytest.raises(ValueError, match=r"'table0' is no item of the paper. There are: table"):
        item("table0")


def test_nothing_of_ours_is_no_blank_cell():
    lines = [Line("a", "1", "", "no records"), Line("b", "1", "1.0", Agreement(exactly(0.5), 1))]
    table = verdict_table("t", judge(lines), ["about"])
    assert [row[2] for row in table.rows] == ["no records", "1.0"]
    assert "difference +0.5 [+0.5, +0.5], margin 1." in table.notes[0]
    assert table.notes[1].endswith("90 % interval.")
    assert table.notes[-1] == "about"
    assert len(verdict_table("t", judge(lines[:1])).notes) == 0  # no brackets, nothing to explain


def test_a_verdict_that_is_easily_misread_is_explained():
    lines = [Line("a", "", "1.0"), Line("b", "1", "1.0", "not comparable")]
    (said,) = verdict_table("t", judge(lines)).notes
    assert said.startswith("not reported: the paper prints no number there")
    assert not verdict_table("t", judge(lines[1:])).notes


def test_numbers_as_text():
    assert plus_minus(95.784, 6.816) == "95.78 ± 6.82"
    assert plus_minus(95.784, math.nan) == "95.78"
    assert seed_ranges([3, 1, 2, 7]) == "1-3,7"
