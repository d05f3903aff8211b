"""A store that cannot be written: what is recorded is shown, what is missing is refused."""

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import fakes
from commands import lohe
from lohe.experiments import PAPER
from lohe.experiments.measures import Taken, measure_recipe
from lohe.experiments.store.store import Store


def freeze(disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)


@pytest.fixture
def store(small_disk, monkeypatch) -> Store:
    """Records of seeds 0 and 1 and of a measure; the item's own."""
    store, runs = Store(small_disk / "results"), [fakes.run(0), fakes.run(1)]
    tosses = fakes.Tosses()
    taken = fakes.record(replace(fakes.run(), seed=0))
    store.add([fakes.record(run) for run in runs], name="sva")
    store.add([replace(taken, recipe=measure_recipe(tosses))], name="measure")
    item = replace(fakes.items(lambda setting: runs)["table2"], measures=lambda setting: [tosses])
    monkeypatch.setitem(PAPER, "table2", item)
    return store


@pytest.mark.parametrize("command", [["run"], ["run", "--dry-run"], ["show"]], ids=" ".join)
@pytest.mark.parametrize("left", ["nothing", "a checkpoint"])
def test_what_is_recorded_is_shown(store, small_disk, command, left):
    if left == "a checkpoint":  # killed just before it could be deleted
        store.checkpoint(fakes.run().recipe(), [0, 1]).save({"x": torch.zeros(1)}, {})
    freeze(small_disk)
    result = lohe(*command, "table2", "--corpus", "compact", "--store", store.root)
    assert result.exit_code == 0, result.output
    assert "A table at full" in result.stdout or "2 runs, 2 cached, 0 to train" in result.stdout


@pytest.mark.parametrize("missing", ["a run", "a measure"])
@pytest.mark.parametrize("cloned", [True, False], ids=["cloned", "used before"])
def test_what_is_missing_is_refused_with_a_remedy(store, small_disk, monkeypatch, missing, cloned):
    if cloned:
        shutil.rmtree(store.root / ".lohe")
    else:
        store.work("claims")
    more = [fakes.run(0), fakes.run(2)] if missing == "a run" else [fakes.run(0)]
    measures = [fakes.Tosses(7)] if missing == "a measure" else []
    item = replace(PAPER["table2"], runs=lambda s: more, measures=lambda s: measures)
    monkeypatch.setitem(PAPER, "table2", item)
    monkeypatch.setattr(fakes.Tosses, "take", lambda self, bench: Taken({}))
    freeze(small_disk)
    result = lohe("run", "table2", "--store", store.root)
    assert result.exit_code == 1
    assert f"{store.root} cannot be written (" in result.stderr
    assert "give the copy as --store" in result.stderr
