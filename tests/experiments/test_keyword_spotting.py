"""Table 1 and Figure 3 are functions of records: the published ones give the published numbers."""

import math
from dataclasses import replace
from functools import cache

import keyword_records as given
import numpy as np
import pytest
from keyword_records import COMPACTLY, PAPER, difference, evidence, of_run, verdicts

from lohe.experiments import item
from lohe.experiments.reported import published
from lohe.experiments.setting import Setting
from lohe.experiments.studies.kws import keyword_cells as cells
from lohe.experiments.studies.kws import keyword_spotting
from lohe.experiments.studies.kws.keyword_spotting import (
    figure_3,
    frozen_claim,
    table_1,
    table_1_lines,
)
from lohe.experiments.verdicts import Agreement
from lohe.models import Oscillator, Softmax
from lohe.train import Adam
from lohe.viz import bars
from lohe.viz.style import drawing

ITEMS = tuple(keyword_spotting.ITEMS)


@cache
def as_published(setting: Setting, **shift: float):
    groups = (
        given.published_grid(setting, **shift),
        given.published_frozen(setting),
        given.published_agreement(setting),
        given.published_permutations(setting),
    )
    return evidence(setting, *groups)


def texts(table) -> dict[str, list[str]]:
    return {name: rest for name, *rest in table.rows}


def test_the_published_files_agree_with_one_another():
    rows, grid = published("table1")["per_seed"], published("figure3")["per_seed"]
    assert rows["softmax"] == grid["softmax"]["none"]
    assert rows["oscillator"] == grid["oscillator"]["none"]
    # every published accuracy is a number of right answers among 3,703 clips
    flat = [x for cell in grid.values() for row in cell.values() for x in row]
    for x in flat + rows["frozen W_V"]:
        assert abs(x * 37.03 - round(x * 37.03)) < 0.003  # four digits were kept
    # and the best epoch is at least as good as the last
    probe = published("claim-kws-permutation")["per_seed"]
    for name, cell in grid.items():
        for where, best in cell.items():
            pairs = zip(best, probe[name][where]["intact"], strict=True)
            assert all(-0.001 <= a - b <= 0.5 for a, b in pairs)


def test_table_1_prints_the_papers_numbers_from_the_papers_records():
    shown = [tuple(row) for row in table_1(as_published(PAPER)).rows]
    rows = {row[0]: row for row in shown}
    assert rows["the paper:"] == ("the paper:", "", "", "", "", "")
    assert rows["oscillator, as published"][1:3] == ("5", "88.79 ± 0.29")
    assert rows["frozen W_V, as defined"][2] == "88.32 ± 0.34"
    papers = {row[0]: row for row in shown[shown.index(rows["the paper:"]) :]}
    assert papers["softmax"] == ("softmax", "5", "87.71 ± 0.70", "87.64 ± 0.66", "-", "")
    assert papers["oscillator"][-1] == "+1.08"  # the difference of rounded means, as printed
    assert papers["frozen W_V"][1:] == ("5", "88.32 ± 0.34", "-", "-", "+0.61")


def test_selecting_an_epoch_is_measured():
    table = table_1(as_published(COMPACTLY, test=-1.5, last=-0.25))
    assert texts(table)["oscillator, as published"][1:4] == [
        "88.79 ± 0.29",
        "88.54 ± 0.29",
        "87.29 ± 0.29",
    ]
    (eight,) = [n for n in table.notes if n.startswith("Best minus last epoch, pp, eight")]
    assert "softmax +0.25; oscillator, as published +0.25; oscillator, as defined +0.25" in eight
    assert any(n.endswith("the paper: softmax +0.08; oscillator +0.04.") for n in table.notes)


def test_what_may_be_compared_is_said_in_plain_words():
    (said,) = [n for n in table_1(as_published(COMPACTLY)).notes if "Neither" in n]
    assert "`on` and `off` are missing" in said
    assert "accuracies are not comparable with the paper's" in said
    assert "ten words: yes, no, up, down, left, right, stop, go, zero, one" in said
    assert not any("Neither" in n for n in table_1(as_published(PAPER)).notes)


def test_values_are_judged_on_the_papers_keywords_only_and_gaps_everywhere():
    for setting in (PAPER, COMPACTLY):
        for line in table_1_lines(as_published(setting)):
            on_test = "on test" in line.what
            if on_test:
                assert (line.value, line.paper) == ("not reported", "not reported")
            elif line.what.endswith("%") and setting is COMPACTLY:
                assert line.value == "not comparable"
            else:
                assert difference(line) == pytest.approx(0, abs=1e-9)
    found = verdicts(table_1_lines(as_published(COMPACTLY)))
    assert len(found) == 2 * (1 + 2 * 2 * 3 + 2)  # sets, rows
    assert found["ten words: full - frozen W_V, pp (as published)"] == ("reproduced", "holds")


def test_every_number_of_table_1_has_a_line():
    printed = {line.paper for line in table_1_lines(as_published(COMPACTLY))}
    numbers = {"87.71 ± 0.70", "88.79 ± 0.29", "88.32 ± 0.34", "+1.08", "+0.61", "+0.47"}
    assert printed == numbers | {"not reported"}


def test_a_model_that_is_two_points_off_differs():
    setting = PAPER
    run = setting.keyword_spotting("ten keywords", Softmax())
    records = of_run(run, [85.0, 85.3, 84.9, 85.1, 85.2, 84.8])
    line = table_1_lines(evidence(setting, records))[0]
    assert isinstance(line.value, Agreement)
    assert line.value.verdict() == "differs"
    assert difference(line) == pytest.approx(85.05 - 87.7127, abs=1e-4)


@pytest.mark.parametrize(
    ("cost", "holds"), [(0.47, True), (1.2, False), (-2.0, True)], ids=["paper", "more", "gain"]
)
def test_freezing_is_judged_by_the_upper_end_of_the_interval(cost, holds):
    paper = published("table1")["per_seed"]["oscillator"]
    claim = frozen_claim(paper, [x - cost for x in paper])
    assert claim.holds is holds
    # a wide spread below 1 pp on average decides nothing in favour
    assert frozen_claim([80.0, 90.0, 100.0], [79.5, 89.5, 99.5]).holds is False
    assert frozen_claim(paper, paper[:1]).holds is None


def test_the_recipe_is_the_published_one_and_ten_seeds_are_trained():
    runs = item("table1").runs(COMPACTLY)
    assert len(runs) == 2 * 5 * 10
    assert {run.seed for run in runs} == set(range(10))
    for run in runs:
        assert (run.optimizer, run.select, run.epochs) == (Adam(1e-3), "highest accuracy", 30)
        assert run.model.positions == "none"
    assert len(item("table1").runs(Setting("quick"))) == 2 * 5 * 2
    assert len(item("table1").runs(Setting("smoke"))) == 5


def test_sharpened_readouts_are_for_table_5():
    runs = cells.sharpened(COMPACTLY, (2, 4))
    assert len(runs) == 2 * 2 * 2 * 10
    assert {run.model.attention.sharpness for run in runs} == {2, 4}
    plain = {replace(run.model.attention, sharpness=1) for run in runs}
    assert plain == {Oscillator(), Oscillator(anchors="free")}


def test_figure_3_has_a_line_for_every_bar():
    lines = item("figure3").lines(as_published(COMPACTLY))
    assert len(lines) == 2 * 9 + 9
    kinds = [line for line in lines if line.what.startswith("agreement")]
    assert {line.paper for line in kinds if not line.reading} == {
        "91.04 ± 8.32",
        "90.95 ± 8.22",
        "90.77 ± 9.28",
    }
    # agreement is generated, so it is the paper's data on any corpora
    assert all(difference(line) == pytest.approx(0, abs=1e-9) for line in kinds)
    assert {str(line.value) for line in lines[:18]} == {"not comparable"}
    for line in item("figure3").lines(as_published(PAPER)):
        assert difference(line) == pytest.approx(0, abs=1e-9)


def test_figure_3_draws_means_and_deviations_of_the_records():
    with drawing():
        import matplotlib.pyplot as plt

        figure = figure_3(as_published(COMPACTLY))
        eight, ten, right = figure.axes
        heights = [bar.get_height() for bar in eight.patches]
        paper = published("figure3")["per_seed"]
        softmax = [np.mean(paper["softmax"][where]) for where in cells.POSITIONS]
        oscillator = [np.mean(paper["oscillator"][where]) for where in cells.POSITIONS]
        np.testing.assert_allclose(heights, softmax + 2 * oscillator)
        assert len(ten.patches) == len(right.patches) == 9
        assert eight.get_ylim()[0] == 60
        labels = [text.get_text() for text in figure.legends[0].get_texts()]
        whiskers = [f"{whose}, {bars.WHISKERS}" for whose in ("the paper", "ours")]
        assert labels == [*cells.MECHANISMS, *whiskers]
        plt.close(figure)


@pytest.mark.parametrize("name", ITEMS)
@pytest.mark.parametrize(
    "accuracies",
    [[10.0], [10.0, 10.0], [math.nan, 10.0]],
    ids=["one seed", "constant", "diverged"],
)
def test_results_that_make_no_sense_are_survived(name, accuracies):
    setting, study = Setting("smoke"), item(name)
    records = [r for run in study.runs(setting) for r in of_run(run, accuracies)]
    records = [r for r in records if r.recipe["task"]["type"] != "SVA"]
    here = evidence(setting, records)
    assert study.table
    table = study.table(here)
    assert all(len(row) == len(table.columns) for row in table.rows)
    verdicts(study.lines(here))
    if study.figure:
        draw_and_close(study.figure, here)


def draw_and_close(draw, here) -> None:
    with drawing():
        import matplotlib.pyplot as plt

        figure = draw(here)
        figure.canvas.draw()
        plt.close(figure)
