"""How long it will take is said only where something like it was done on such a device."""

from dataclasses import replace

import pytest

import fakes
from lohe.experiments.estimates import Estimates, duration
from lohe.experiments.measures import measure_recipe
from lohe.experiments.runner import Pack
from lohe.models import Oscillator
from lohe.tasks import WikiText2

RUN = fakes.run()


def guess(run, *records, device="cpu", seeds=2):
    return Estimates(records, device).pack(Pack(run, list(range(seeds))))


def test_a_recipes_own_records_come_first():
    records = [fakes.record(fakes.run(seed), wall_seconds=10.0 + seed) for seed in range(3)]
    other = fakes.record(fakes.run(0, Oscillator()), wall_seconds=99.0)
    assert guess(RUN, *records, other) == (22.0, True)


def test_a_similar_recipe_counts_by_its_steps():
    record = fakes.record(RUN, wall_seconds=10.0)
    assert guess(replace(RUN, epochs=6), record) == (pytest.approx(60.0), False)
    assert guess(replace(RUN, batch=32), record) == (pytest.approx(40.0), False)
    assert guess(fakes.run(0, Oscillator(coupling="relu")), record) == (pytest.approx(20.0), False)


def test_the_nearest_has_the_same_mechanism():
    softmax = fakes.record(RUN, wall_seconds=1.0)
    oscillator = fakes.record(fakes.run(0, Oscillator()), wall_seconds=2.0)
    wanted = fakes.run(0, Oscillator(coupling="relu"))
    for records in ([softmax, oscillator], [oscillator, softmax]):
        assert guess(wanted, *records) == (4.0, False)


@pytest.mark.parametrize(
    "other",
    [
        replace(RUN, task=WikiText2()),
        replace(RUN, model=replace(RUN.model, d_model=64)),
        replace(RUN, limit=128),
    ],
    ids=["other data", "other size", "less data"],
)
def test_what_is_not_similar_says_nothing(other):
    assert guess(RUN, fakes.record(other)) is None
    assert guess(RUN) is None


def test_another_kind_of_device_says_nothing():
    gpu = fakes.record(RUN, device="cuda (NVIDIA H200)")
    assert guess(RUN, gpu) is None
    assert guess(RUN, gpu, device="cuda:1") == (60.0, True)


def test_a_measure_takes_what_its_kind_took():
    small, large = fakes.Tosses(10), fakes.Tosses(1000)
    record = replace(fakes.record(RUN, wall_seconds=3.0), recipe=measure_recipe(small))
    estimates = Estimates([record, fakes.record(RUN)], "cpu")
    assert estimates.measure(large) == 3.0
    assert estimates.measure(fakes.Size(RUN)) is None


def test_measures_on_other_data_say_nothing():
    """A minute of a smoke run is not the hour of the whole corpus."""
    other = replace(RUN, task=WikiText2())
    records = [
        replace(fakes.record(RUN, wall_seconds=s), recipe=measure_recipe(fakes.Size(run)))
        for run, s in ((RUN, 1.0), (other, 9.0))
    ]
    wanted = fakes.Size(fakes.run(0, Oscillator()))
    assert Estimates(records, "cpu").measure(wanted) == 1.0
    assert Estimates(records[1:], "cpu").measure(wanted) is None


def test_durations_for_people():
    assert [duration(s) for s in (0.2, 99, 101, 5399, 5400)] == [
        "0 s",
        "99 s",
        "2 min",
        "90 min",
        "1.5 h",
    ]


def test_a_smaller_pack_is_not_as_much_faster_on_a_gpu():
    """50 agreement models took 12 s, and one alone 5.5: not a fiftieth."""
    made = [
        replace(fakes.record(fakes.run(seed), wall_seconds=12 / 50, device=device), notes=notes)
        for device in ("cuda (NVIDIA H200)", "cpu")
        for seed in range(3)
        for notes in ({"pack": "0-49"},)
    ]
    alone, whole, more = (guess(RUN, *made, device="cuda", seeds=n) for n in (1, 50, 100))
    assert whole == (pytest.approx(12), True)
    assert more == (pytest.approx(24), True)
    assert alone is not None
    assert 3 < alone[0] < 8
    assert guess(RUN, *made, seeds=1) == (pytest.approx(12 / 50), True)
