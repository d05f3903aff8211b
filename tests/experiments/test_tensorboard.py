"""Curves for TensorBoard, with and without the package."""

import sys
from types import ModuleType

import pytest

import fakes
import short_sva
from lohe.experiments.runner import Pack, complete
from lohe.experiments.store.store import Store
from lohe.experiments.tensorboard import Scalars


class Writer:
    """Stands in for SummaryWriter: where, from which step on, what is on disk, closed."""

    def __init__(self, log_dir: str, purge_step: int | None = None):
        self.log_dir, self.purge_step, self.closed = log_dir, purge_step, False
        self.scalars, self.flushed = [], 0
        WRITERS.append(self)

    def add_scalar(self, tag: str, value: float, step: int) -> None:
        self.scalars.append((tag, value, step))

    def flush(self) -> None:
        self.flushed = len(self.scalars)

    def close(self) -> None:
        self.closed = True


WRITERS: list[Writer] = []


@pytest.fixture
def writers(monkeypatch) -> list[Writer]:
    module = ModuleType("torch.utils.tensorboard")
    module.SummaryWriter = Writer
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    WRITERS.clear()
    return WRITERS


def test_every_seed_gets_its_curve(tmp_path, writers):
    store = Store(tmp_path / "store")
    runs = [fakes.run(seed) for seed in (0, 4)]
    for _ in complete(runs, store, load=short_sva.load, log=Scalars(tmp_path / "logs")):
        pass
    assert [writer.log_dir.rpartition("/")[2] for writer in writers] == ["seed-0", "seed-4"]
    assert all(writer.closed for writer in writers)
    record = store.load(runs[0].recipe())[4]
    losses = [value for tag, value, _ in writers[1].scalars if tag == "loss"]
    assert losses == pytest.approx([line["loss"] for line in record.curve], rel=1e-4)
    assert [step for tag, _, step in writers[1].scalars if tag == "loss"] == [1, 2]


def test_killed_it_loses_no_epoch_and_repeats_none(tmp_path, writers):
    """The checkpoint may be older than the log: what is trained again takes its place there."""
    pack, lines = Pack(fakes.run(), [0]), [{"loss": 1.0, "hard": 50.0}]
    Scalars(tmp_path)(pack, 0, lines)
    assert writers[0].flushed == 2
    Scalars(tmp_path)(pack, 1, lines)
    assert [writer.purge_step for writer in writers] == [1, 2]


def test_a_pack_that_stopped_early_is_closed_when_the_next_begins(tmp_path, writers):
    log, lines = Scalars(tmp_path), [{"loss": 1.0}]
    log(Pack(fakes.run(), [0]), 0, lines)
    log(Pack(fakes.run(), [1]), 0, lines)
    assert [writer.closed for writer in writers] == [True, False]


def test_without_the_package_it_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(ValueError, match="pip install tensorboard"):
        Scalars(tmp_path)
