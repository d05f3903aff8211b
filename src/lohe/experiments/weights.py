"""Trained parameters that measurements look at: kept beside the records, out of git's sight.

A few small ones are part of the package (float16, see trained/NOTICE), so that measurements and the
demo work where nothing has been trained.
"""

import json
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path

import safetensors
import safetensors.torch
from torch import Tensor

from lohe.experiments.store import files
from lohe.experiments.store.files import Damaged
from lohe.experiments.store.records import key
from lohe.experiments.store.store import Store
from lohe.train import Run, Trained, brief

PACKAGED = "trained"  # folder of the package
REMEDY = "The model is trained again where it is needed."


@dataclass(frozen=True)
class Weights:
    """Parameters by name, and the metrics of the training that they came from."""

    tensors: dict[str, Tensor]
    result: dict[str, float]


def keep(store: Store, trained: Trained, seeds: list[int]) -> None:
    """Write the selected parameters of these seeds."""
    results = {outcome.seed: outcome.result for outcome in trained.outcomes}
    for seed in seeds:
        result = {f"{s}.{m}": x for s, ms in results[seed].items() for m, x in ms.items()}
        about = {"lohe": "weights", "recipe": key(trained.run.recipe()), "seed": str(seed)}
        tensors = {n: x.contiguous().clone() for n, x in trained.weights(seed).items()}
        data = safetensors.torch.save(tensors, metadata=about | {"result": json.dumps(result)})
        files.write(path(store, trained.run, seed), data)


def find(store: Store, run: Run) -> Weights | None:
    """The weights of the run: the store's, else the package's, else None."""
    for place in _places(store, run):
        if place.is_file():
            try:
                return _read(place)
            except (safetensors.SafetensorError, ValueError) as reason:
                what = f"cannot be read ({reason})"
                warnings.warn(str(Damaged(place, what, REMEDY)), stacklevel=2)
    return None


def kept(store: Store, run: Run) -> bool:
    """Whether `find` would find any."""
    return find(store, run) is not None


def path(store: Store, run: Run, seed: int) -> Path:
    return store.work("weights") / name(replace(run, seed=seed))


def name(run: Run) -> str:
    """The file that holds the run's weights."""
    return f"{key(run.recipe())}-{run.seed}.safetensors"


def describe(run: Run) -> str:
    """For people: task, mechanism, seed."""
    return f"{type(run.task).__name__} with {brief(run.model.attention)}, seed {run.seed}"


def _places(store: Store, run: Run) -> Iterator[Path]:
    yield store.root / ".lohe" / "weights" / name(run)
    with resources.as_file(resources.files("lohe.experiments") / PACKAGED) as folder:
        yield folder / name(run)


def _read(place: Path) -> Weights:
    with safetensors.safe_open(place, framework="pt") as file:
        about = file.metadata() or {}
        tensors = {name: file.get_tensor(name).float() for name in file.keys()}  # noqa: SIM118
    return Weights(tensors, json.loads(about.get("result", "{}")))
