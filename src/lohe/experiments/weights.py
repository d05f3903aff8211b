"""Trained parameters that measurements look at: kept beside the records, out of git's sight.

A few small ones are part of the package (float16, see trained/NOTICE), so that measurements and the
demo work where nothing has been trained.
"""

import json
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from lohe.experiments.store import files
from lohe.experiments.store.files import Damaged
from lohe.experiments.store.records import key
from lohe.experiments.store.store import Store
from lohe.tasks import Data
from lohe.train import Run, Trained, brief

PACKAGED = "trained"  # folder of the package
REMEDY = "The model is trained again where it is needed."


@dataclass(frozen=True)
class Weights:
    """Parameters by name, and the metrics of the training that they came from."""

    tensors: dict[str, Tensor]
    result: dict[str, float]


def keep(store: Store, trained: Trained, seeds: list[int], data: Data) -> None:
    """Write the selected parameters of these seeds, and on which data they were trained."""
    results = {outcome.seed: outcome.result for outcome in trained.outcomes}
    for seed in seeds:
        result = {f"{s}.{m}": x for s, ms in results[seed].items() for m, x in ms.items()}
        about = {"lohe": "weights", "recipe": key(trained.run.recipe()), "seed": str(seed)}
        tensors = {n: x.contiguous().clone() for n, x in trained.weights(seed).items()}
        about |= {"data": data.checksum, "result": json.dumps(result)}
        files.write(path(store, trained.run, seed), safetensors.torch.save(tensors, metadata=about))


def find(store: Store, run: Run, data: Callable[[Run], Data] | None = None) -> Weights | None:
    """The weights of the run: the store's, else the package's, else None.

    On `data`, which is asked for where the weights tell what they were trained on: the store's own
    of other data are refused, the package's passed over.
    """
    for place in _places(store, run):
        if place.is_file():
            try:
                found, about = _read(place)
            except (safetensors.SafetensorError, ValueError) as reason:
                what = f"cannot be read ({reason})"
            else:
                if data is None or not (other := _other(place, about, lambda: data(run))):
                    return found
                what = f"of other data ({other})"
            warnings.warn(str(Damaged(place, what, REMEDY)), stacklevel=2)
    return None


def kept(store: Store, run: Run, data: Callable[[Run], Data] | None = None) -> bool:
    """Whether `find` would find any."""
    return find(store, run, data) is not None


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


def _read(place: Path) -> tuple[Weights, dict[str, str]]:
    with safetensors.safe_open(place, framework="pt") as file:
        about = file.metadata() or {}
        tensors = {name: file.get_tensor(name).float() for name in file.keys()}  # noqa: SIM118
    return Weights(tensors, json.loads(about.get("result", "{}"))), about


def _other(place: Path, about: dict[str, str], data: Callable[[], Data]) -> str:
    """In what the packaged model's data was another; nothing where it was not, or is not told."""
    if "data" in about and about["data"] != data().checksum:
        raise ValueError(
            f"{place} was trained on data with checksum {about['data']}, which now is "
            f"{data().checksum}. Bring that data back (--data), or delete it: the model is trained "
            "again."
        )
    if "names" in about and tuple(json.loads(about["names"])) != data().names:
        return "other words or classes"
    now = data().facts.get("normalised") if "normalised" in about else None
    if now and not all(
        torch.allclose(torch.tensor(x), torch.tensor(now[name]), rtol=1e-4)  # other last bits
        for name, x in json.loads(about["normalised"]).items()
    ):
        return "its features were normalised by others"
    return ""
