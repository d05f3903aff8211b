"""A measure says so where its model is not the recorded run."""

import math
from dataclasses import dataclass, replace

import pytest
from invented import evidence, record

from lohe.experiments import provenance
from lohe.experiments.measures import Bench, Taken, measure_recipe
from lohe.experiments.setting import Setting
from lohe.models import Softmax
from lohe.train import Run

RUN = Setting().agreement(Softmax())
METRICS = {"valid.hard": 97.0, "test.hard": 96.0}


@dataclass(frozen=True)
class Look:
    """A measure of a model."""

    run: Run

    def take(self, bench: Bench) -> Taken:
        return Taken({})


def said(*models: dict[str, float], recorded: dict[str, float] = METRICS) -> str:
    """The note about a model for each seed, every seed with the same record."""
    looks = [Look(replace(RUN, seed=seed)) for seed in range(len(models))]
    records = [record(RUN.recipe(), look.run.seed, recorded) for look in looks]
    records += [
        replace(record(measure_recipe(look), look.run.seed, {}), notes={"model": model})
        for look, model in zip(looks, models, strict=True)
    ]
    return " ".join(provenance.notes([*looks, *looks], evidence(records)))


def test_the_recorded_run_needs_no_note():
    assert said(METRICS, METRICS) == ""
    broken = {"valid.hard": math.nan}
    assert said(broken, recorded=broken) == ""
    assert said({}) == ""  # nothing is known of it


@pytest.mark.parametrize(
    ("model", "far"),
    [
        ({"valid.hard": 95.5, "test.hard": 96.0}, "up to 1.5 apart"),
        ({"valid.hard": 97.0, "test.hard": 95.0}, "the same"),  # a coincidence in one metric
        ({"valid.hard": 97.0}, "the same"),  # trained before there was a test split
    ],
)
def test_each_other_run_is_counted_once(model, far):
    expected = f": 1 of 2 (subject-verb agreement, valid.hard {far})."
    assert expected in said(METRICS, model)


def test_what_is_missing_is_no_other_run():
    assert provenance.notes([Look(RUN)], evidence()) == []
    assert provenance.notes([Look(RUN)], evidence([record(RUN.recipe(), 0, METRICS)])) == []
