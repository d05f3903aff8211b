"""Nothing is begun that may not end in time."""

import pytest

from lohe.experiments import deadline
from lohe.experiments.deadline import Deadline
from lohe.experiments.recipes import agreement
from lohe.experiments.runner import Pack
from lohe.models import Softmax

ONE, TWO = (Pack(agreement(Softmax()), seeds) for seeds in ([0], [0, 1]))


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(deadline.time, "monotonic", lambda: now[0])
    return now


def test_without_minutes_everything_is_allowed(clock):
    limit = Deadline(None, lambda pack: 1e9)
    clock[0] += 1e9
    assert limit.allows(ONE)
    assert not limit.over
    assert limit.late == 0


def test_what_may_not_end_in_time_is_not_begun(clock):
    limit = Deadline(1.0, lambda pack: 40.0 * len(pack.seeds))
    assert limit.allows(ONE)
    assert not limit.allows(TWO)
    clock[0] += 30
    assert not limit.allows(ONE)
    assert limit.late == 2
    clock[0] += 30
    assert limit.over


def test_guesses_learn_how_fast_this_machine_is(clock):
    """Half as long as guessed: then twice as much may be begun."""
    limit = Deadline(1.0, lambda pack: 40.0 * len(pack.seeds))
    assert limit.allows(ONE)
    clock[0] += 20
    limit.finished(ONE)
    assert limit.allows(TWO)  # 40 s instead of 80


def test_what_nobody_knows_is_begun_while_there_is_time(clock):
    limit = Deadline(1.0, lambda pack: None)
    clock[0] += 59
    assert limit.allows(ONE)
    limit.finished(ONE)
    clock[0] += 1
    assert not limit.allows(ONE)
