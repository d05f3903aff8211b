"""Killed at any moment, a run finds its old checkpoint or its new one, never a mixture."""

import os
import random
import time
from typing import Any

import pytest
import torch
import workers

from lohe.experiments.store.checkpoints import Checkpoint


@pytest.fixture
def checkpoint(tmp_path) -> Checkpoint:
    return Checkpoint(tmp_path / "run")


def loaded(checkpoint: Checkpoint) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    found = checkpoint.load()
    assert found is not None
    return found


def names(checkpoint: Checkpoint) -> list[str]:
    return sorted(os.listdir(checkpoint.folder))


DTYPES = [torch.bfloat16, torch.float16, torch.float32, torch.float64]
DTYPES += [torch.bool, torch.uint8, torch.int32, torch.int64]


def test_tensors_and_state_come_back(checkpoint, rng):
    tensors = {str(d): torch.randn(3, 4, generator=rng).to(d) for d in DTYPES}
    odd = torch.randn(4, 6, generator=rng)
    tensors |= {"view": odd.T[1:], "whole": odd, "scalar": torch.tensor(2.5), "none": odd[:0]}
    tensors["nan"] = torch.tensor([float("nan"), -0.0, float("inf")])
    state = {"epoch": 3, "best": float("inf"), "curve": [{"loss": 0.1 + 0.2}], "note": "σ"}
    checkpoint.save(tensors, state)
    again, state_again = loaded(checkpoint)
    assert state_again == state
    assert again.keys() == tensors.keys()
    for name, x in tensors.items():
        assert (again[name].dtype, again[name].shape) == (x.dtype, x.shape)
        assert torch.equal(bits(again[name]), bits(x)), name
        again[name].zero_()  # ours to write to


def bits(x: torch.Tensor) -> torch.Tensor:
    return x.contiguous().view(-1).view(torch.uint8)


def test_parameters_that_need_gradients_are_welcome(checkpoint):
    checkpoint.save({"w": torch.nn.Parameter(torch.ones(2))}, {})
    assert not loaded(checkpoint)[0]["w"].requires_grad


def test_no_checkpoint_is_none(checkpoint):
    assert checkpoint.load() is None
    checkpoint.clear()
    assert not checkpoint.folder.exists()


def test_the_state_is_read_without_the_tensors(checkpoint):
    assert checkpoint.state() is None
    workers.save(checkpoint.folder, 1)
    workers.save(checkpoint.folder, 2)
    next(checkpoint.folder.glob("step-2.safetensors")).unlink()
    assert checkpoint.state() == {"step": 2}
    for damaged in (b"{", b"[]", b'{"state":3}'):
        (checkpoint.folder / "step-2.json").write_bytes(damaged)
        assert checkpoint.state() is None


def test_two_are_kept_and_clear_removes_all(checkpoint):
    for step in range(12):
        workers.save(checkpoint.folder, step)
    assert loaded(checkpoint)[1] == {"step": 11}
    assert len(names(checkpoint)) == 4
    checkpoint.clear()
    assert not checkpoint.folder.exists()


def test_state_that_is_not_json_is_refused_before_anything_is_written(checkpoint):
    workers.save(checkpoint.folder, 1)
    before = names(checkpoint)
    with pytest.raises(ValueError, match=r"\['state'\]\['loss'\] must be JSON"):
        checkpoint.save({}, {"loss": torch.tensor(1.0)})
    assert names(checkpoint) == before


def cut(path):
    path.write_bytes(path.read_bytes()[:-7])


def flip(path):
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(bytes(data))


DAMAGE = {
    "tensors cut": ("safetensors", cut, "bytes instead of"),
    "tensors flipped": ("safetensors", flip, "sha256"),
    "tensors gone": ("safetensors", os.unlink, "missing"),
    "json cut": ("json", cut, "not a checkpoint of ours"),
    "json empty": ("json", lambda path: path.write_bytes(b""), "not a checkpoint of ours"),
    "json foreign": ("json", lambda path: path.write_text("[1]"), "not a checkpoint of ours"),
    "json newer": (
        "json",
        lambda path: path.write_text(path.read_text().replace('"schema":1', '"schema":2')),
        "schema 2",
    ),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_checkpoint_is_reported_and_the_one_before_used(checkpoint, kind):
    suffix, damage, message = DAMAGE[kind]
    workers.save(checkpoint.folder, 1)
    workers.save(checkpoint.folder, 2)
    damage(checkpoint.folder / f"step-2.{suffix}")
    with pytest.warns(UserWarning, match=rf"step-2.*{message}"):
        tensors, state = loaded(checkpoint)
    assert state == {"step": 1}
    assert (tensors["step"] == 1).all()
    workers.save(checkpoint.folder, 3)
    assert loaded(checkpoint)[1] == {"step": 3}


def test_what_is_damaged_is_left_alone(checkpoint):
    for n in range(3):
        checkpoint.save({"x": torch.full((2,), float(n))}, {"epoch": n})
    newest = checkpoint.folder / f"step-{max(checkpoint._steps('json'))}.json"
    newest.write_bytes(b"{")
    with pytest.warns(UserWarning, match="left as it is"):
        checkpoint.load()
    for n in range(4):
        checkpoint.save({"x": torch.full((2,), float(n))}, {"epoch": n})
    checkpoint.clear()
    assert newest.read_bytes() == b"{"
    assert [path.suffix for path in checkpoint.folder.iterdir()].count(".json") == 1


def test_all_damaged_means_starting_over(checkpoint):
    workers.save(checkpoint.folder, 1)
    cut(checkpoint.folder / "step-1.json")
    with pytest.warns(UserWarning, match="starts over"):
        assert checkpoint.load() is None


def test_twenty_kills_end_where_an_undisturbed_run_ends(
    checkpoint, tmp_path, start, kill, eventually
):
    at, chance = 0, random.Random(0)
    for _ in range(20):
        before = set(checkpoint.folder.glob("*.json"))
        process = start(workers.walk, checkpoint.folder, 10**9)
        eventually(lambda old=before: set(checkpoint.folder.glob("*.json")) - old)
        time.sleep(chance.uniform(0, 0.03))
        kill(process)
        tensors, state = loaded(checkpoint)
        assert tensors["step"] == state["step"] > at
        at = state["step"]
    workers.walk(checkpoint.folder, at + 5)
    workers.walk(tmp_path / "undisturbed", at + 5)
    ours, theirs = loaded(checkpoint), loaded(Checkpoint(tmp_path / "undisturbed"))
    assert ours[1] == theirs[1] == {"step": at + 5}
    assert all(torch.equal(ours[0][name], x) for name, x in theirs[0].items())


def test_killed_at_any_step_the_old_or_the_new_loads(tmp_path, start):
    outcomes = []
    for n in range(1, 80):
        folder = tmp_path / str(n)
        for step in (1, 2):
            workers.save(folder, step)
        process = start(workers.killed_before, n, folder, workers.save, folder, 3)
        process.join(30)
        tensors, state = loaded(Checkpoint(folder))
        assert (tensors["step"] == state["step"]).all()
        outcomes.append(state["step"])
        if process.exitcode == 0:
            break
        workers.save(folder, 4)
        assert loaded(Checkpoint(folder))[1] == {"step": 4}
        assert len(names(Checkpoint(folder))) == 4, "what the dead left behind is swept up"
    # two files: open, sync, rename, open the folder, sync; then two are deleted
    assert len(outcomes) > 12
    assert outcomes == sorted(outcomes)
    assert outcomes[0] == 2
    assert outcomes[-2:] == [3, 3]


def test_a_full_disk_is_explained_and_the_old_checkpoint_stays(small_disk, fill):
    checkpoint = Checkpoint(small_disk / "run")
    workers.save(checkpoint.folder, 1)
    before = names(checkpoint)
    ballast = fill(small_disk)
    with pytest.raises(OSError, match=r"step-2.safetensors was not written \(No space left"):
        checkpoint.save({"x": torch.zeros(9000)}, {"step": 2})
    assert names(checkpoint) == before
    # room for the tensors and not for the JSON
    ballast.write_bytes(b"0" * (ballast.stat().st_size - 8192))
    with pytest.raises(OSError, match=r"step-2.json was not written \(No space left"):
        checkpoint.save({"x": torch.zeros(10)}, {"long": "x" * 20_000})
    assert names(checkpoint) == before
    assert loaded(checkpoint)[1] == {"step": 1}
