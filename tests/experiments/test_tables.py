"""Tables are functions of records, with or without any."""

import math

import pytest

from lohe.experiments import PAPER, agreement, item, language_modeling
from lohe.experiments.recipes import at_scale
from lohe.experiments.records import Record
from lohe.experiments.reported import published
from lohe.experiments.tables import plus_minus, seed_ranges


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


def as_published(scale: str = "full") -> list[Record]:
    """The published values, as if they were our records."""
    values = published("table2")["per_seed"]
    theirs = {"softmax": values["softmax"], "oscillator, as published": values["oscillator"]}
    found = []
    for name, columns in theirs.items():
        for seed, (overall, hard) in enumerate(
            zip(columns["overall"], columns["hard"], strict=True)
        ):
            run = at_scale(agreement.agreement(agreement.MECHANISMS[name], seed), scale)
            found.append(record(run, **{"valid.overall": overall, "valid.hard": hard}))
    return found


def perplexities(softmax: list[float], oscillator: list[float]) -> list[Record]:
    return [
        record(
            language_modeling.wikitext2(mechanism, seed, "tokens"),
            **{"valid_published.perplexity": x, "valid_strict.perplexity": 2 * x},
        )
        for mechanism, values in zip(
            language_modeling.MECHANISMS.values(), (softmax, oscillator), strict=True
        )
        for seed, x in enumerate(values)
    ]


def rows(table) -> dict[str, list[str]]:
    return {name: rest for name, *rest in table.rows}


@pytest.mark.parametrize("name", PAPER)
@pytest.mark.parametrize("scale", ["smoke", "quick", "full"])
def test_without_records_a_table_says_how_to_make_them(name, scale):
    table = item(name).table([], scale)
    assert f"lohe run {name} --scale {scale}" in table.notes[-1] + table.notes[-2]
    assert all(len(row) == len(table.columns) for row in table.rows)


def test_the_papers_own_records_give_the_papers_table():
    table = agreement.table_2(reversed(as_published()))
    shown = rows(table)
    assert shown["softmax"] == ["91.04 ± 8.32", "90.77 ± 9.28", "95.49", "12/50", "13-38 %"]
    assert shown["softmax"] == shown["softmax (paper)"]
    assert shown["oscillator, as published"] == shown["oscillator (paper)"]
    said = " ".join(table.notes)
    assert said.count("is consistent with the published mean, difference +0.00 pp") == 2
    assert "3/50 and 12/50 failures, Fisher p = 0.023" in said
    assert "Mann-Whitney p = 0.00089" in said


def test_one_record_has_no_spread_and_no_claims():
    table = agreement.table_2(as_published()[:1])
    overall, *_, failed, _ = rows(table)["softmax"]
    assert "±" not in overall
    assert failed == "0/1"
    assert len(table.notes) == 1


def test_records_come_in_the_order_of_their_seeds():
    groups = agreement.by_mechanism(reversed(as_published()))
    assert [record.seed for record in groups["softmax"]] == list(range(50))
    assert groups["oscillator, as defined"] == []


def test_a_table_counts_only_its_own_scale_and_recipes():
    mixed = as_published("smoke") + perplexities([99.0], [111.0])
    assert set(rows(agreement.table_2(mixed))) == {"softmax (paper)", "oscillator (paper)"}
    smoke = agreement.table_2(mixed, "smoke")
    assert rows(smoke)["softmax"][3] == "12/50"
    assert "nothing has been learned" in smoke.notes[-1]


def test_perplexity_by_both_protocols_and_the_gap():
    table = language_modeling.table_4(perplexities([96.0, 97.0, 98.0], [107.0, 108.0, 109.0]))
    shown = rows(table)
    assert shown["softmax"][:3] == ["3", "97.00 ± 1.00", "194.00 ± 2.00"]
    assert shown["oscillator, d_osc = 2"][:2] == ["3", "108.00 ± 1.00"]
    assert any("Gap to softmax: 11.00 [" in note for note in table.notes)
    single = language_modeling.table_4(perplexities([96.0], []))
    assert rows(single)["softmax"][:2] == ["1", "96.00"]


def test_a_scale_that_does_not_exist_is_refused():
    for name in PAPER:
        for ask in (item(name).runs, lambda scale: item(name).table([], scale)):  # noqa: B023
            with pytest.raises(ValueError, match=r"scale='big' is not known. Choose from smoke"):
                ask("big")
    with pytest.raises(ValueError, match=r"'table9' is not an item here yet. There are: table2"):
        item("table9")


def test_the_runs_of_an_item_are_the_published_seeds_and_any_others():
    assert len(agreement.runs()) == 5 * 50
    assert [run.seed for run in agreement.runs("full", [7, 3])] == [7, 3] * 5
    assert {run.epochs for run in agreement.runs("smoke")} == {2}


def test_numbers_as_text():
    assert plus_minus(95.784, 6.816) == "95.78 ± 6.82"
    assert plus_minus(95.784, math.nan) == "95.78"
    assert seed_ranges([3, 1, 2, 7]) == "1-3,7"
