"""Coupling functions and the optimiser: gaps between our own models, judged by rules.json."""

from dataclasses import replace

import pytest
from keyword_records import COMPACTLY, PAPER, difference, evidence, of_run, verdicts

from lohe.experiments import item
from lohe.experiments.reported import published
from lohe.experiments.studies.kws.keyword_ablations import (
    COUPLINGS,
    adamw_table,
    coupling_claim,
    decoupled,
)
from lohe.experiments.studies.kws.keyword_cells import MECHANISMS, READINGS
from lohe.models import Oscillator, Softmax
from lohe.train import Adam, AdamW

SAMPLE = published("table1")["per_seed"]["oscillator"]


def coupled(setting, **shift: float):
    return [
        record
        for words in setting.corpora.keywords
        for m in READINGS.values()
        for name in COUPLINGS
        for record in of_run(
            setting.keyword_spotting(words, replace(m, coupling=name)),
            [x + shift.get(name, 0.0) for x in SAMPLE],
        )
    ]


@pytest.mark.parametrize(
    ("shift", "holds"),
    [({}, True), ({"relu": -0.2}, True), ({"relu": -0.5}, False), ({"elu": 0.9}, False)],
    ids=["alike", "a little", "worse", "better"],
)
def test_couplings_are_alike_if_both_intervals_are_within_the_bound(shift, holds):
    lines = item("claim-kws-coupling").lines(evidence(COMPACTLY, coupled(COMPACTLY, **shift)))
    assert len(verdicts(lines)) == 2 * 2 * (3 + 2 + 1)
    (claim,) = {line.claim.holds for line in lines if line.claim}
    assert claim is holds
    relu = [line for line in lines if "relu - softplus" in line.what]
    assert all(difference(line) == pytest.approx(shift.get("relu", 0)) for line in relu)


def test_a_coupling_without_seeds_decides_nothing():
    claim = coupling_claim({"softplus": SAMPLE, "relu": SAMPLE, "elu": []})
    assert (claim.holds, claim.verdict, claim.numbers) == (None, "no records", "elu missing")


def test_couplings_are_compared_with_the_printed_range():
    lines = item("claim-kws-coupling").lines(evidence(PAPER, coupled(PAPER)))
    assert {line.paper for line in lines} == {"88.76-88.77", "at most 0.01", "the same"}
    assert difference(lines[0]) == pytest.approx(88.7875 - 88.765, abs=1e-4)


def test_softplus_is_table_1s_model_and_is_trained_once():
    runs = item("claim-kws-coupling").runs(COMPACTLY)
    assert len(runs) == 2 * 2 * 3 * 10
    shared = set(runs) & set(item("table1").runs(COMPACTLY))
    assert {run.model.attention for run in shared} == {Oscillator(), Oscillator(anchors="free")}
    assert len(shared) == 2 * 2 * 10


def test_adamw_changes_the_optimiser_and_nothing_else():
    run = COMPACTLY.keyword_spotting("ten words", Softmax())
    other = decoupled(run)
    assert (run.optimizer, other.optimizer) == (Adam(1e-3, 1e-4), AdamW(1e-3, 1e-4))
    assert replace(other, optimizer=run.optimizer) == run
    assert len(item("claim-kws-adamw").runs(COMPACTLY)) == 2 * 2 * 3 * 10


def test_the_effect_of_adamw_and_the_gap_with_it():
    records = []
    for words in COMPACTLY.corpora.keywords:
        for name, m in MECHANISMS.items():
            run, ahead = COMPACTLY.keyword_spotting(words, m), 2.0 * (name != "softmax")
            records += of_run(run, [x + ahead for x in SAMPLE])
            records += of_run(decoupled(run), [x + ahead / 2 + 0.25 for x in SAMPLE])
    here = evidence(COMPACTLY, records)
    lines = {f"{x.what} ({x.reading})": x for x in item("claim-kws-adamw").lines(here)}
    assert len(lines) == 2 * (3 + 2)
    assert lines["ten words: softmax, AdamW - Adam, pp ()"].ours == "+0.25"
    effect = lines["ten words: oscillator, AdamW - Adam, pp (as defined)"]
    assert (effect.ours, effect.value, effect.paper) == ("-0.75", "not reported", "not reported")
    assert effect.note.startswith("-0.75 pp [")
    gap = lines["eight keywords: oscillator - softmax with AdamW, pp (as published)"]
    assert (gap.ours, gap.paper) == ("+1.00", "+1.08")
    assert difference(gap) == pytest.approx(1 - 1.0748, abs=1e-4)
    rows = {name: rest for name, *rest in adamw_table(here).rows}
    assert rows["eight keywords, softmax"] == ["88.79 ± 0.29", "89.04 ± 0.29", "+0.25"]
