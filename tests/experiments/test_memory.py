"""Memory that training frees is used again, not mapped anew, where the C library can do that."""

import os
import subprocess
import sys

import pytest

from lohe.experiments import memory

ALLOCATE = """
import resource, sys, torch
from lohe.experiments.memory import keep_memory
print(keep_memory() if sys.argv[1] == "keep" else None)
for n in range(20):
    if n == 3:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.ones(2**24)  # 64 MB, 16,384 pages
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.fixture
def calls(monkeypatch) -> list[tuple[int, int]]:
    """No variable is set, and what mallopt is told is only written down."""
    made: list[tuple[int, int]] = []
    for name in [n for n in os.environ if n.startswith(memory.CHOSEN)]:
        monkeypatch.delenv(name)
    tell = lambda option, value: made.append((option, value)) or 1  # noqa: E731
    monkeypatch.setattr(memory, "_mallopt", lambda: tell)
    return made


def test_the_options_of_glibc_are_set(calls):
    assert memory.keep_memory()
    assert calls == [(-3, 2**31 - 1), (-1, -1), (-2, 2**28)]


def test_a_threshold_that_is_refused_becomes_no_mapping_at_all(calls, monkeypatch):
    """As older ones do, of which 32 MB is the most."""
    tell = lambda option, value: calls.append((option, value)) or int(option != -3)  # noqa: E731
    monkeypatch.setattr(memory, "_mallopt", lambda: tell)
    assert memory.keep_memory()
    assert calls == [(-3, 2**31 - 1), (-4, 0), (-1, -1), (-2, 2**28)]


@pytest.mark.parametrize("name", ["MALLOC_TRIM_THRESHOLD_", "MALLOC_ARENA_MAX", "GLIBC_TUNABLES"])
def test_who_has_chosen_already_is_left_alone(calls, monkeypatch, name):
    monkeypatch.setenv(name, "131072")
    assert not memory.keep_memory()
    assert calls == []


def test_elsewhere_nothing_is_done(calls, monkeypatch):
    monkeypatch.setattr(memory, "_mallopt", lambda: None)
    assert not memory.keep_memory()
    monkeypatch.undo()
    monkeypatch.setattr(sys, "platform", "darwin")
    assert memory._mallopt() is None


@pytest.mark.skipif(memory._mallopt() is None, reason="mallopt is of glibc")
def test_pages_are_not_faulted_in_again():
    env = {k: v for k, v in os.environ.items() if not k.startswith(memory.CHOSEN)}

    def faults(how: str) -> int:
        command = [sys.executable, "-c", ALLOCATE, how]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
        said, count = done.stdout.split()
        assert said == str(True if how == "keep" else None)
        return int(count)

    # the heap may grow, and a busy system take pages back: not three times, each time
    assert min(faults("keep") for _ in range(3)) < faults("not") / 3
