"""The clock: everything in turns, each stage by itself, as many rounds as the budget has."""

import numpy as np
import pytest
import torch

from lohe.bench.clock import LEAST, LEAST_LONG, MOST, HostClock, clock, in_turns, peak_bytes, timed
from lohe.bench.rows import Spread

CPU = torch.device("cpu")


class Ticks:
    """A clock that stands still unless a stage lets time pass."""

    def __init__(self):
        self.now, self.events = 0.0, []

    def prepare(self):
        self.now += 1000  # whatever it takes is not counted
        self.events.append("prepare")

    def mark(self):
        return self.now

    def finish(self):
        self.events.append("finish")

    def seconds(self, begin, end):
        return end - begin

    def stage(self, name: str, seconds: float):
        def run():
            self.now += seconds
            self.events.append(name)

        return run


def test_runs_take_turns_and_stages_are_timed_by_themselves():
    ticks = Ticks()
    a, b = [ticks.stage("a", 1.0)], [ticks.stage("b", 2.0), ticks.stage("c", 5.0)]
    times_a, times_b = in_turns([a, b], ticks, 2)
    assert [e for e in ticks.events if e != "prepare"] == ["a", "b", "c", "a", "b", "c", "finish"]
    assert ticks.events[:6] == ["prepare", "a", "prepare", "b", "prepare", "c"]
    np.testing.assert_array_equal(times_a, [[1.0], [1.0]])
    np.testing.assert_array_equal(times_b, [[2.0, 5.0], [2.0, 5.0]])


@pytest.mark.parametrize(
    ("seconds", "budget", "rounds"),
    [(0.01, 0.1, 10), (0.5, 0.1, LEAST), (1e-6, 0.1, MOST), (60.0, 0.1, LEAST_LONG)],
)
def test_the_budget_gives_the_rounds(seconds, budget, rounds):
    ticks = Ticks()
    runs = [[ticks.stage("a", 0.5 * seconds)], [ticks.stage("b", 1.5 * seconds)]]
    times = timed(runs, ticks, budget)
    assert [len(t) for t in times] == [rounds, rounds]
    assert ticks.events.count("a") == rounds + 1  # one that is not counted


def test_spread_is_the_median_and_the_quartiles():
    assert Spread.of([5.0, 1.0, 2.0, 4.0, 3.0]) == Spread(3.0, 2.0, 4.0)
    assert Spread.of([7.0]) == Spread(7.0, 7.0, 7.0)


def test_the_host_clock_counts_seconds():
    assert isinstance(clock(CPU), HostClock)
    (times,) = in_turns([[lambda: sum(range(10_000))]], HostClock(), 3)
    assert ((times > 0) & (times < 1)).all()


def test_memory_is_measured_on_a_gpu_only():
    assert peak_bytes([], CPU) is None
