"""Trained parameters come back as they were, and are made again where they are missing."""

import pytest
import safetensors.torch
import torch

import fakes
import short_sva
from lohe.experiments import weights
from lohe.experiments.runner import complete, missing
from lohe.experiments.store.store import Store
from lohe.train import Trained


@pytest.fixture
def store(tmp_path) -> Store:
    return Store(tmp_path / "store")


def train(store, seeds, with_weights=()) -> list[tuple[list[int], Trained]]:
    """Packs as they were trained; weights of these seeds are kept."""
    kept = []
    runs, wanted = ([fakes.run(seed) for seed in s] for s in (seeds, with_weights))
    for _ in complete(
        runs,
        store,
        load=short_sva.load,
        with_weights=wanted,
        keep=lambda pack, trained: kept.append((pack.seeds, trained)),
    ):
        pass
    return kept


def find(store, seed: int) -> weights.Weights:
    found = weights.find(store, fakes.run(seed))
    assert found is not None
    return found


def test_weights_come_back_equal(store):
    ((_, trained),) = train(store, [0, 1], [1])
    assert weights.find(store, fakes.run(0)) is None  # nobody asked for these
    found = find(store, 1)
    expected = trained.weights(1)
    assert found.tensors.keys() == expected.keys()
    assert all(torch.equal(found.tensors[name], expected[name]) for name in expected)
    record = store.load(fakes.run().recipe())[1]
    assert found.result == record.result
    assert weights.path(store, fakes.run(1), 1).is_file()
    assert len(list((store.root / ".lohe" / "weights").iterdir())) == 1


def test_a_run_with_a_record_and_no_weights_is_trained_again_for_them(store):
    train(store, [0, 1])
    before = {path: path.read_bytes() for path in store.root.glob("*.json")}
    (todo,) = missing([fakes.run(0), fakes.run(1)], store, 10, [fakes.run(1)])
    assert todo.seeds == [1]
    ((seeds, trained),) = train(store, [0, 1], [1])
    assert seeds == [1]
    assert {path: path.read_bytes() for path in store.root.glob("*.json")} == before
    found = find(store, 1)
    assert all(torch.equal(found.tensors[k], v) for k, v in trained.weights(1).items())
    assert train(store, [0, 1], [1]) == []
    assert missing([fakes.run(0), fakes.run(1)], store, 10, [fakes.run(1)]) == []


def test_damaged_weights_are_made_again(store):
    """Cut short by the disk: a warning, and the run is trained once more for them."""
    ((_, first),) = train(store, [0], [0])
    place = weights.path(store, fakes.run(0), 0)
    place.write_bytes(place.read_bytes()[:-9])
    with pytest.warns(UserWarning, match=rf"{place.name}: cannot be read .*trained again"):
        assert not weights.kept(store, fakes.run(0))
    with pytest.warns(UserWarning, match="trained again"):
        assert len(train(store, [0], [0])) == 1
    again = find(store, 0)
    assert all(torch.equal(again.tensors[name], x) for name, x in first.weights(0).items())


def test_packaged_weights_are_found_and_are_float32(store, tmp_path, monkeypatch):
    """As the package has them: float16, under the name that the store would use."""
    ((_, trained),) = train(store, [0])
    monkeypatch.setattr(weights, "PACKAGED", str(tmp_path))
    tensors = {name: x.half() for name, x in trained.weights(0).items()}
    place = tmp_path / weights.path(store, fakes.run(0), 0).name
    safetensors.torch.save_file(tensors, place, metadata={"result": '{"valid.hard":97.0}'})
    assert missing([fakes.run(0)], store, 10, [fakes.run(0)]) == []
    found = find(store, 0)
    assert found.result == {"valid.hard": 97.0}
    for name, x in trained.weights(0).items():
        assert found.tensors[name].dtype == torch.float32
        assert torch.equal(found.tensors[name], x.half().float())
    # the store's own come first
    train(store, [0])
    weights.keep(store, trained, [0])
    assert find(store, 0).result != {"valid.hard": 97.0}


def test_looking_for_weights_writes_nothing(tmp_path):
    store = Store(tmp_path / "new")
    assert weights.find(store, fakes.run(0)) is None
    assert not store.root.exists()
