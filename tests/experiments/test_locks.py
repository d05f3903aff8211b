"""No seed is trained twice at once, and the dead hold nothing."""

import os
import shutil
import signal
import subprocess
import time
from dataclasses import replace

import pytest
import workers
from workers import RECIPE

from lohe.experiments.store import exact, processes
from lohe.experiments.store.files import Damaged
from lohe.experiments.store.locks import Busy, Lost
from lohe.experiments.store.store import Store


@pytest.fixture
def store(tmp_path) -> Store:
    return Store(tmp_path)


def leave_a_claim(store: Store, process: processes.Process, silent_s: float) -> None:
    """The file that `process` would have left, with a heartbeat `silent_s` ago."""
    with store.claim(RECIPE, [0, 1]) as ours:
        raw = exact.loads(ours.path.read_bytes())
    raw["process"] = vars(process)
    ours.path.write_text(exact.dumps(raw))
    then = time.time() - silent_s
    os.utime(ours.path, (then, then))


def is_free(store: Store) -> bool:
    try:
        with store.claim(RECIPE, [0, 1]):
            return True
    except Busy:
        return False


def test_what_is_held_is_not_given_and_the_rest_is_named(store):
    with store.claim(RECIPE, [0, 1, 2]) as claim:
        assert claim.seeds == [0, 1, 2]
        with pytest.raises(
            Busy, match=rf"pid {os.getpid()} on \S+ since 20.*Free: \[3, 4\]"
        ) as busy:
            store.claim(RECIPE, range(1, 5)).__enter__()
        assert busy.value.free == [3, 4]
        with store.claim(RECIPE, busy.value.free), store.claim({"other": 1}, [0]):
            pass
        claim.check()
    assert is_free(store)


def test_an_error_inside_lets_go(store):
    with pytest.raises(KeyboardInterrupt), store.claim(RECIPE, [0]):
        raise KeyboardInterrupt
    with store.claim(RECIPE, [0]):
        pass
    assert list((store.root / ".lohe" / "claims").iterdir()) == []


def test_of_many_processes_one_wins(store, start, finish, context):
    ready, tried, answers = context.Barrier(5), context.Barrier(5), context.Queue()
    args = (store.root, ready, tried, answers)
    contenders = [start(workers.try_to_claim, *args) for _ in range(5)]
    said = [answers.get(timeout=30) for _ in contenders]
    finish(*contenders)
    winner, *losers = sorted(said, key=lambda answer: answer != "won")
    assert winner == "won"
    assert all("Free: none" in answer for answer in losers)


def test_of_many_processes_one_inherits_from_the_dead(store, start, finish, kill, context):
    held = context.Queue()  # its own: who is killed may take the lock of a queue along
    holder = start(workers.hold, store.root, [1], held)
    assert held.get(timeout=30) == holder.pid
    assert not is_free(store)
    kill(holder)
    ready, tried, answers = context.Barrier(5), context.Barrier(5), context.Queue()
    args = (store.root, ready, tried, answers)
    contenders = [start(workers.try_to_claim, *args) for _ in range(5)]
    said = [answers.get(timeout=30) for _ in contenders]
    finish(*contenders)
    assert said.count("won") == 1
    assert is_free(store)


def test_never_two_holders_at_once(store, start, finish, context):
    ready = context.Barrier(4)
    # a worker fails should another hold the seed as well; `finish` asserts that none did
    finish(*[start(workers.take_turns, store.root, 15, ready) for _ in range(4)])
    assert is_free(store)


def test_two_runs_on_one_store_train_each_seed_once(store, start, finish):
    seeds = list(range(12))
    finish(*[start(workers.run_all, store.root, order) for order in (seeds, seeds[::-1], seeds)])
    trained = (store.root / "trained.log").read_text().split()
    assert sorted(map(int, trained)) == seeds
    assert store.missing(RECIPE, seeds) == []


def test_a_run_that_is_killed_is_finished_by_the_next(store, start, finish, kill, eventually):
    seeds = list(range(12))
    first = start(workers.run_all, store.root, seeds)
    eventually(lambda: len(store.load(RECIPE)) >= 3)
    kill(first)
    finish(start(workers.run_all, store.root, seeds))
    trained = (store.root / "trained.log").read_text().split()
    assert len(trained) - len(seeds) in (0, 1), "at most the seed it died in is trained again"
    assert store.missing(RECIPE, seeds) == []


def test_stopped_is_not_dead(store, start, context):
    answers = context.Queue()
    holder = start(workers.hold, store.root, [1], answers)
    os.kill(answers.get(timeout=30), signal.SIGSTOP)
    time.sleep(0.3)  # longer than its stale_after_s
    assert not is_free(store)
    os.kill(holder.pid, signal.SIGCONT)


def test_a_pid_given_to_someone_else_is_not_the_holder(store):
    me = processes.this()
    leave_a_claim(store, me, silent_s=0)
    assert not is_free(store)
    shutil.rmtree(store.root / ".lohe")
    leave_a_claim(store, replace(me, start=(me.start or 0) + 1), silent_s=0)
    assert is_free(store) == (me.start is not None)


@pytest.mark.parametrize(
    ("silent_s", "free"), [(0, False), (200, False), (400, True), (-9, False), (-400, True)]
)
def test_another_host_is_known_by_its_heartbeat(store, silent_s, free):
    # its pid may well be that of a process here
    elsewhere = replace(processes.this(), host="node7", space="node7 boot pid:[1]")
    leave_a_claim(store, elsewhere, silent_s)
    assert is_free(store) == free


def test_the_heart_beats(store, eventually):
    with store.claim(RECIPE, [0], heartbeat_s=0.01, stale_after_s=1) as claim:
        os.utime(claim.path, (0, 0))
        eventually(lambda: claim.path.stat().st_mtime > 0)
        claim.check()


def test_who_was_taken_for_dead_hears_it_before_the_next_beat(store):
    with store.claim(RECIPE, [0]) as claim:
        claim.check()
        claim.path.unlink()
        with pytest.raises(Lost, match=r"Our claim on seeds \[0\] is gone"):
            claim.check()


def test_a_zombie_is_dead():
    child = subprocess.Popen(["sleep", "60"])
    start = processes._start(child.pid)
    zombie = replace(processes.this(), pid=child.pid, start=start)
    assert processes.alive(zombie)
    child.kill()
    deadline = time.monotonic() + 10
    while processes.alive(zombie) and time.monotonic() < deadline:
        time.sleep(0.01)
    if start is not None:
        assert processes.alive(zombie) is False
    child.wait()
    assert processes.alive(zombie) is False


def test_a_process_name_may_hold_anything(tmp_path):
    script = tmp_path / "a) Z (b"
    script.symlink_to("/bin/sleep")
    child = subprocess.Popen([script, "60"])
    odd = replace(processes.this(), pid=child.pid, start=processes._start(child.pid))
    assert processes.alive(odd)
    child.kill()
    child.wait()


def test_a_claim_that_cannot_be_read_is_named(store):
    with store.claim(RECIPE, [0]) as claim:
        pass
    claim.path.write_text("?")
    with pytest.raises(Damaged, match=rf"{claim.path.name}.*delete it"), store.claim(RECIPE, [0]):
        pass


def test_a_missed_beat_must_not_lose_a_claim(store):
    with (
        pytest.raises(ValueError, match="at least twice"),
        store.claim(RECIPE, [0], heartbeat_s=60, stale_after_s=90),
    ):
        pass
