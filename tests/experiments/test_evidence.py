"""Records are found by what they are records of."""

from dataclasses import replace

import pytest

import fakes
from lohe.experiments.evidence import Evidence, seeded
from lohe.experiments.measures import measure_recipe
from lohe.experiments.setting import Setting
from lohe.experiments.store.records import Record, key
from lohe.models import Oscillator

RUN = fakes.run()


def evidence(*records: Record) -> Evidence:
    return Evidence(records, Setting())


def measured(measure, seed: int, **result: float) -> Record:
    return replace(fakes.record(RUN, **result), recipe=measure_recipe(measure), seed=seed)


def test_records_of_a_recipe_come_in_order_of_seed():
    given = [fakes.record(fakes.run(seed), x=10.0 + seed) for seed in (2, 0, 1)]
    other = fakes.record(fakes.run(0, Oscillator()), x=99.0)
    found = evidence(*given, other)
    assert [r.seed for r in found.records(fakes.run(7))] == [0, 1, 2]
    assert found.values(RUN, "x") == [10.0, 11.0, 12.0]
    assert found.values(fakes.run(0, Oscillator()), "x") == [99.0]
    assert evidence().records(RUN) == []


def test_a_measure_is_found_by_its_run_and_its_own_fields():
    measure = fakes.Size(fakes.run(1))
    found = evidence(measured(measure, 1, size=1.0), measured(measure, 0, size=0.0))
    assert [found.measured(measure)] == found.measured_seeds(measure)[1:]
    assert found.measured_seeds(measure)[1].result == {"size": 1.0}
    assert found.measured(fakes.Size(fakes.run(5))) is None
    assert found.measured(replace(measure, examples=11)) is None
    assert [r.seed for r in found.measured_seeds(measure)] == [0, 1]
    assert found.records(RUN) == []  # a measure is not a run


def test_mathematics_has_no_seed():
    found = evidence(measured(fakes.Tosses(), 0, heads=0.5))
    assert [r.result for r in found.measured_seeds(fakes.Tosses())] == [{"heads": 0.5}]
    assert [found.measured(fakes.Tosses())] == found.measured_seeds(fakes.Tosses())
    assert found.measured(fakes.Tosses(7)) is None


def test_records_of_some_seeds_of_one_recipe():
    found = evidence(*(fakes.record(fakes.run(seed)) for seed in (2, 0, 1)))
    assert [r.seed for r in found.of([fakes.run(2), fakes.run(0), fakes.run(9)])] == [0, 2]


def test_other_seeds_of_the_same_recipes():
    runs = [fakes.run(0), fakes.run(1), fakes.run(0, Oscillator())]
    assert seeded(runs, None) == runs
    assert seeded(runs, [7, 3]) == [
        fakes.run(7),
        fakes.run(3),
        fakes.run(7, Oscillator()),
        fakes.run(3, Oscillator()),
    ]


def test_a_metric_that_is_not_there_is_an_error_that_names_the_record():
    of_key = key(RUN.recipe())
    with pytest.raises(ValueError, match=rf"seed 0, recipe {of_key}, has no 'y'; it has x\."):
        evidence(fakes.record(RUN, x=1.0)).values(RUN, "y")
