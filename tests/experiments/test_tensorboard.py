"""Curves for TensorBoard, with and without the package."""

import sys
from types import ModuleType

import pytest

import fakes
import short_sva
from lohe.experiments.runner import complete
from lohe.experiments.store.store import Store
from lohe.experiments.tensorboard import Scalars


class Writer:
    """Stands in for SummaryWriter: where, what, closed."""

    def __init__(self, log_dir: str):
        self.log_dir, self.scalars, self.closed = log_dir, [], False
        WRITERS.append(self)

    def add_scalar(self, tag: str, value: float, step: int) -> None:
        self.scalars.append((tag, value, step))

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


def test_without_the_package_it_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(ValueError, match="pip install tensorboard"):
        Scalars(tmp_path)
