"""Weakly driven oscillators: which are counted, and what follows from the counts."""

import math
from dataclasses import replace

import pytest
import torch
from invented import Untrained, claims, evidence, measured, verdicts

from lohe.experiments.reported import published
from lohe.experiments.setting import Setting
from lohe.experiments.studies.robust import degenerate
from lohe.experiments.studies.robust.degenerate import WEAK, DriveNorms
from lohe.experiments.studies.robust.subjects import KWS, SUBJECTS, SVA, WIKITEXT2
from lohe.models import attention_layers
from lohe.viz.style import drawing

ITEM = degenerate.ITEMS["claim-degenerate"]
PUBLISHED = {row["label"]: row for row in published("claim-degenerate")["rows"]}


class Scaled(Untrained):
    """Anchors of another length: ‖h‖ of a single layer is proportional to it."""

    length = 1.0

    def model(self, run):
        model = super().model(run)
        for layer in attention_layers(model):
            layer.anchors.data.mul_(self.length)
        return model


@pytest.fixture
def bench():
    return Scaled()


@pytest.fixture(scope="module")
def setting():
    return Setting()


def test_as_many_oscillators_as_published(bench, setting):
    # all sentences, one head, no padding: 31,002
    run = SVA.recipe(setting, "as published", 0)
    found = DriveNorms(run, SVA.examples(setting)).take(bench)
    assert found.result["oscillators"] == PUBLISHED["SVA"]["oscillators"]
    counts = [row["count"] for row in found.curve]
    assert counts == sorted(counts)
    assert counts[-1] == 31_002


def test_norms_are_proportional_to_free_anchors(bench, setting):
    measure = DriveNorms(SVA.recipe(setting, "as published", 0), 200)
    one = measure.take(bench).result
    bench.length = 0.01
    weak = measure.take(bench).result
    for name in ("smallest", "median", "largest"):
        assert weak[name] == pytest.approx(0.01 * one[name], rel=1e-4)
    assert one["fraction"] == 0
    assert weak["fraction"] > 0.5
    # on the sphere, length does not matter
    defined = replace(measure, run=SVA.recipe(setting, "as defined", 0))
    short = defined.take(bench).result
    bench.length = 1.0
    assert short == pytest.approx(defined.take(bench).result, rel=1e-5)


def test_a_quarter_of_the_examples_is_spread_over_the_split(bench, setting):
    run = SVA.recipe(setting, "as defined", 0)
    split = bench.data(run).valid
    spread = DriveNorms(run, 1000).take(bench).result["oscillators"]
    assert spread == split.inputs["key_mask"][::4].sum()


def made_up(setting, fraction: float) -> list:
    measures = degenerate.measures(setting)
    result = {"oscillators": 1000, "smallest": 1e-4, "median": 3.0, "largest": 9.0}
    weak = int(1000 * fraction)
    curve = [{"below": x, "count": n} for x, n in ((WEAK, weak), (9.0, weak), (16.0, 1000))]
    return [measured(m, result | {"fraction": fraction}, curve) for m in measures]


@pytest.mark.parametrize(
    ("fraction", "holds", "agree"), [(0.0, True, "reproduced"), (0.02, False, "differs")]
)
def test_the_claim_asks_for_less_than_one_percent(setting, fraction, holds, agree):
    lines = ITEM.lines(evidence(made_up(setting, fraction)))
    assert set(claims(lines).values()) == {holds}
    assert verdicts(lines) == {"not reported", "not comparable", agree}  # SVA has none, as printed


@pytest.mark.parametrize(("weak", "holds"), [(0, True), (2, False)])
def test_oscillators_do_not_lock_where_their_rate_exceeds_the_drive(setting, weak, holds):
    """Of a hundred some have ‖h‖ = 0.001, the others 5; rates have deviation 0.35 and 0.5."""
    counts = [
        {"below": x, "count": weak * (x > 0.001) + (100 - weak) * (x > 5)}
        for x in degenerate.THRESHOLDS
    ]
    records = [
        measured(
            DriveNorms(run, KWS.examples(setting)), {"oscillators": 100, "fraction": 0.0}, counts
        )
        for reading in KWS.readings
        for run in KWS.runs(setting, reading)
    ]
    found = claims(ITEM.lines(evidence(records)))
    assert {found["robust-locking", reading] for reading in KWS.readings} == {holds}
    share = degenerate.unlocked(records[0], 0.5)
    assert share == pytest.approx(weak / 100, rel=0.01, abs=1e-9)


def test_a_task_without_records_leaves_it_undecided(setting):
    records = made_up(setting, 0.0)
    keywords = {r.recipe["run"]["task"]["type"] for r in records} - {"SVA", "WikiText2"}
    some = [r for r in records if r.recipe["run"]["task"]["type"] not in keywords]
    assert set(claims(ITEM.lines(evidence(some))).values()) == {None}


def test_several_models_show_their_spread(setting):
    fractions = [0.0002, 0.0043, 0.001, 0.002, 0.0005]
    runs = KWS.runs(setting, "as published")
    result = {"oscillators": 1000, "smallest": 1e-4, "median": 3.0, "largest": 9.0}
    records = [
        measured(DriveNorms(run, KWS.examples(setting)), result | {"fraction": x}, [])
        for run, x in zip(runs, fractions, strict=True)
    ]
    notes = [line.note for line in ITEM.lines(evidence(records)) if line.what == "KWS"]
    assert "5 models, 0.020 to 0.430 %, 21.5-fold" in notes[0]


def test_the_published_keyword_models_differ_17_fold():
    pair = [row["fraction"] for row in PUBLISHED.values() if row["task"] == "KWS"]
    assert max(pair) / min(pair) == pytest.approx(17, abs=0.5)
    assert {row["oscillators"] for row in PUBLISHED.values() if row["task"] == "KWS"} == {
        3703 * 49 * 2
    }


def test_table_and_figure_with_and_without_records(setting):
    full = evidence(made_up(setting, 0.001))
    groups = sum(len(subject.readings) for subject in SUBJECTS)
    assert len(degenerate.table(full).rows) == groups + 4
    with drawing():
        drawn, empty = degenerate.figure(full), degenerate.figure(evidence())
    groups = [len(s.runs(setting, r)) for s in SUBJECTS for r in s.readings]
    # one line a model or two edges and a name, the threshold, two groups of published points
    bands = [models > degenerate.FEW for models in groups]
    lines = [3 if band else models for models, band in zip(groups, bands, strict=True)]
    assert len(drawn.axes[0].lines) == sum(lines) + 3
    assert len(drawn.axes[0].collections) == sum(bands) == 2
    assert len(empty.axes[0].lines) == 3


def test_language_models_are_seen_in_all_layers_and_heads(bench):
    smoke = Setting("smoke")
    run = WIKITEXT2.recipe(smoke, "as published", 0)
    found = DriveNorms(run, 3).take(bench).result
    assert found["oscillators"] == 3 * 49 * 4 * 2
    assert math.isfinite(found["median"])
    assert torch.isfinite(torch.tensor(list(found.values()))).all()
