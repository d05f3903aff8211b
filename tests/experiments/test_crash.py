"""Killed at any moment, or out of disk: the same numbers in the end, and nothing lost."""

import random
import shutil
import signal
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import trainers

import short_sva
from commands import lohe
from lohe.experiments.runner import complete
from lohe.experiments.store.records import Record
from lohe.experiments.store.store import Store

KILLS = 20


def numbers(root: Path) -> list[Record]:
    """Every record, less what the clock says."""
    return [
        replace(record, wall_seconds=0, environment=record.environment | {"when": ""})
        for record in Store(root).all()
    ]


def lines(log: Path) -> list[str]:
    return log.read_text().splitlines() if log.exists() else []


def leftovers(root: Path) -> list[Path]:
    return [*(root / ".lohe" / "checkpoints").iterdir(), *(root / ".lohe" / "claims").iterdir()]


def test_twenty_kills_change_nothing(tmp_path, start, finish, eventually):
    whole, broken, log = tmp_path / "whole", tmp_path / "broken", tmp_path / "log"
    began = time.monotonic()
    finish(start(trainers.train, whole, tmp_path / "undisturbed"))
    an_epoch = (time.monotonic() - began) / (4 * trainers.EPOCHS)  # of one of four packs
    rng, kills = random.Random(0), 0
    while kills < KILLS:
        process = start(trainers.train, broken, log)
        further = len(lines(log)) + rng.randrange(5)  # from before it begins to some epochs on
        eventually(lambda further=further: len(lines(log)) >= further)
        time.sleep(rng.uniform(0, 2 * an_epoch))
        process.kill()
        process.join()
        kills += process.exitcode == -signal.SIGKILL
        if process.exitcode == 0:  # on a busy machine it may end before the last kill: once more
            assert numbers(broken) == numbers(whole)
            shutil.rmtree(broken)
            log.unlink()
    finish(start(trainers.train, broken, log))

    assert len(numbers(whole)) == len(trainers.runs())
    assert numbers(broken) == numbers(whole)
    assert leftovers(broken) == leftovers(whole) == []
    # an epoch that was reported is never trained again: lives begin where the last one ended
    epochs = Counter(line for line in lines(log) if line.startswith("training"))
    assert max(n for line, n in epochs.items() if not line.endswith(" 0")) == 1


@pytest.mark.parametrize("epoch", [3, 6], ids=["saving a checkpoint", "writing the records"])
def test_a_full_disk_is_said_and_costs_nothing(tmp_path, small_disk, fill, epoch):
    runs = [run for run in trainers.runs(epochs=6) if run.seed < 1]
    list(complete(runs, Store(tmp_path / "roomy"), load=short_sva.load))
    store = Store(small_disk / "results")
    list(complete(runs[:1], store, load=short_sva.load))
    before = {path: path.read_bytes() for path in store.root.glob("*.json")}

    def listen(what, pack, done, of):
        if (what, done) == ("training", epoch):
            fill(small_disk)

    with pytest.raises(OSError, match=r"No space left.*Free some space under .*run again"):
        list(complete(runs, store, load=short_sva.load, listen=listen))
    assert {path: path.read_bytes() for path in store.root.glob("*.json")} == before
    kept = store.checkpoint(runs[1].recipe(), [0]).load()
    assert kept is not None
    assert len(kept[1]["outcomes"][0]["curve"]) == epoch

    (small_disk / "ballast").unlink()
    heard = []
    list(complete(runs, store, load=short_sva.load, listen=lambda *said: heard.append(said)))
    trained = [done for what, _, done, _ in heard if what == "training"]
    assert trained == [0, *range(epoch + 1, 7)]
    assert numbers(store.root) == numbers(tmp_path / "roomy")
    assert leftovers(store.root) == []


def test_the_command_says_that_the_disk_is_full(small_disk, fill):
    fill(small_disk).rename(small_disk / "results.tmp")
    result = lohe("run", "table2", "--scale", "smoke", "--store", small_disk)
    assert result.exit_code == 1
    (error,) = [line for line in result.stderr.splitlines() if line.startswith("Error: ")]
    assert "No space left on device" in error
    assert "Free some space" in error
    assert "Traceback" not in result.output


def test_a_full_disk_where_nothing_was_yet_is_said_once(small_disk, fill):
    fill(small_disk)
    result = lohe("run", "table2", "--scale", "smoke", "--store", small_disk / "new")
    assert result.exit_code == 1
    assert "No space left on device" in result.stderr
    assert "cannot be written" not in result.stderr  # it can: it is full


def test_a_figure_that_does_not_fit_is_named(small_disk, fill):
    path = small_disk / "figure2.png"
    fill(small_disk)
    result = lohe("show", "figure2", "--scale", "smoke", "--figure", path)
    assert result.exit_code == 1
    assert f"Error: {path}: No space left on device" in " ".join(result.stderr.split())
