"""Trained parameters come back as they were, and are made again where they are missing."""

import json
from contextlib import nullcontext
from dataclasses import replace

import pytest
import safetensors.torch
import torch

import fakes
import short_sva
from lohe.experiments import weights
from lohe.experiments.runner import complete, missing
from lohe.experiments.store.store import Store
from lohe.tasks import Data
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
    weights.keep(store, trained, [0], short_sva.data())
    assert find(store, 0).result != {"valid.hard": 97.0}


def test_looking_for_weights_writes_nothing(tmp_path):
    store = Store(tmp_path / "new")
    assert weights.find(store, fakes.run(0)) is None
    assert not store.root.exists()


def reordered() -> Data:
    """The same sentences under other ids: what the model has learned names other words."""
    data = short_sva.data()
    return replace(data, names=data.names[::-1], checksum="ef" * 32)


def test_weights_are_not_those_of_a_model_of_other_data(store):
    """Recipe and seed are the same; a measurement on it would be of ids that mean other words."""
    train(store, [0], [0])
    assert weights.find(store, fakes.run(0), lambda run: short_sva.data())
    with pytest.raises(
        ValueError, match=r"trained on data with checksum \w+, .* efef\w+\. .*--dat"
    ):
        weights.find(store, fakes.run(0), lambda run: reordered())
    with pytest.raises(ValueError, match=r"or delete it: the model is trained again"):
        list(
            complete(
                [fakes.run(0)], store, load=lambda task: reordered(), with_weights=[fakes.run(0)]
            )
        )


def test_weights_that_do_not_tell_of_their_data_are_taken_as_they_are(store):
    """Those kept before it was written down."""
    train(store, [0], [0])
    place = weights.path(store, fakes.run(0), 0)
    place.write_bytes(safetensors.torch.save(safetensors.torch.load_file(place)))
    assert weights.find(store, fakes.run(0), lambda run: reordered())


def test_packaged_weights_of_other_data_are_passed_over_and_trained(store, tmp_path, monkeypatch):
    ((_, trained),) = train(store, [0])
    monkeypatch.setattr(weights, "PACKAGED", str(tmp_path))
    place = tmp_path / weights.name(fakes.run(0))
    said = {"names": json.dumps(short_sva.data().names)}
    safetensors.torch.save_file(trained.weights(0), place, metadata=said)
    assert train(store, [0], [0]) == []  # of this very data
    with pytest.warns(
        UserWarning, match=r"of other data \(other words or classes\).*trained again"
    ):
        again = list(
            complete(
                [fakes.run(0)], store, load=lambda task: reordered(), with_weights=[fakes.run(0)]
            )
        )
    assert [pack.seeds for pack in again] == [[0]]
    assert weights.find(store, fakes.run(0), lambda run: reordered())
    # clips have the same words: what they were normalised by tells
    sound = {"mean": [-4.0, -5.0], "deviation": [1.0, 2.0]}
    safetensors.torch.save_file(
        trained.weights(0), place, metadata=said | {"normalised": json.dumps(sound)}
    )
    for mean, same in ((-4.00001, True), (-4.1, False)):
        here = replace(short_sva.data(), facts={"normalised": sound | {"mean": [mean, -5.0]}})
        with nullcontext() if same else pytest.warns(UserWarning, match="normalised by others"):
            found = weights.find(Store(tmp_path / "new"), fakes.run(0), lambda run, d=here: d)
        assert (found is not None) == same
