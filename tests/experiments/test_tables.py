"""Tables, figures and verdicts are functions of records, with or without any."""

import math

import matplotlib.pyplot as plt
import pytest

from lohe.experiments import PAPER, item, language_modeling
from lohe.experiments.evidence import Evidence
from lohe.experiments.recipes import SCALES
from lohe.experiments.records import Record
from lohe.experiments.setting import Setting
from lohe.experiments.tables import plus_minus, seed_ranges
from lohe.experiments.verdicts import judge
from lohe.viz.style import drawing

SETTING = Setting()


def record(run, **result: float) -> Record:
    return Record(
        recipe=run.recipe(),
        seed=run.seed,
        code_version="0",
        data_checksum="0",
        environment={},
        result=result,
        wall_seconds=1.0,
        curve=[],
    )


def perplexities(softmax: list[float], oscillator: list[float]) -> Evidence:
    found = [
        record(
            SETTING.wikitext2(mechanism, seed),
            **{"valid_published.perplexity": x, "valid_strict.perplexity": 2 * x},
        )
        for mechanism, values in zip(
            language_modeling.MECHANISMS.values(), (softmax, oscillator), strict=True
        )
        for seed, x in enumerate(values)
    ]
    return Evidence(found, SETTING)


def rows(table) -> dict[str, list[str]]:
    return {name: rest for name, *rest in table.rows}


@pytest.mark.parametrize("name", PAPER)
@pytest.mark.parametrize("scale", SCALES)
def test_an_item_works_without_records(name, scale):
    one, nothing = PAPER[name], Evidence([], Setting(scale))
    judge(one.lines(nothing))
    if one.table:
        table = one.table(nothing)
        assert all(len(row) == len(table.columns) for row in table.rows)


@pytest.mark.parametrize("name", [name for name, one in PAPER.items() if one.figure])
def test_a_figure_can_be_drawn_without_records(name):
    figure = PAPER[name].figure
    assert figure is not None
    with drawing():
        plt.close(figure(Evidence([], Setting())))


def test_perplexity_by_both_protocols_and_the_gap():
    table = language_modeling.table_4(perplexities([96.0, 97.0, 98.0], [107.0, 108.0, 109.0]))
    shown = rows(table)
    assert shown["softmax"][:3] == ["3", "97.00 ± 1.00", "194.00 ± 2.00"]
    assert shown["oscillator, d_osc = 2"][:2] == ["3", "108.00 ± 1.00"]
    assert any("Gap to softmax: 11.00 [" in note for note in table.notes)
    single = language_modeling.table_4(perplexities([96.0], []))
    assert rows(single)["softmax"][:2] == ["1", "96.00"]


def test_what_does_not_exist_is_refused():
    with pytest.raises(ValueError, match=r"scale='big' is not known. Choose from smoke"):
        Setting("big")
    with pytest.raises(ValueError, match=r"'table0' is no item of the paper. There are: table"):
        item("table0")


def test_numbers_as_text():
    assert plus_minus(95.784, 6.816) == "95.78 ± 6.82"
    assert plus_minus(95.784, math.nan) == "95.78"
    assert seed_ranges([3, 1, 2, 7]) == "1-3,7"
