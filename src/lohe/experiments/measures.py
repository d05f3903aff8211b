"""What is measured on trained models, or on nothing but mathematics, and recorded like a run.

A measure is a small frozen value whose description names its record. `take` is given a bench with
models and data, and returns numbers (`result`) and lines of numbers (`curve`).
"""

import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from torch import nn

from lohe.experiments import weights
from lohe.experiments.runner import environment
from lohe.experiments.store.locks import Busy, Lost
from lohe.experiments.store.records import Record
from lohe.experiments.store.store import Store
from lohe.tasks import Data, Task, load_aloud
from lohe.tasks.progress import Progress, silent
from lohe.train import Run, assembled, brief, described
from lohe.version import code_version


@dataclass(frozen=True)
class Taken:
    """What a measure found: numbers by name, and lines that belong together, such as a curve."""

    result: dict[str, float]
    curve: list[dict[str, Any]] = field(default_factory=list)


class Bench:
    """Trained models and their data, on one device; each is loaded once."""

    def __init__(self, store: Store, device: str = "cpu", root: Path | None = None):
        self.store, self.device, self.root = store, torch.device(device), root
        self.progress: Progress = silent  # of loading data
        self._data: dict[Task, Data] = {}

    def data(self, run: Run) -> Data:
        """The data as the run saw it."""
        if run.task not in self._data:
            self._data[run.task] = load_aloud(run.task, self.root, self.progress)
        return run.limited(self._data[run.task])

    def model(self, run: Run) -> nn.Module:
        """The run's trained model, in evaluation mode, on the device."""
        found = weights.find(self.store, run, self.data)
        if found is None:
            raise FileNotFoundError(
                f"No weights of {weights.describe(run)} in {self.store.root}: train it with "
                "`lohe run`, which keeps the weights that a measurement needs."
            )
        return assembled(run, self.data(run), found.tensors).to(self.device)


@runtime_checkable
class Measure(Protocol):
    """A frozen dataclass; `run` is the trained model that it looks at, None for mathematics."""

    @property
    def run(self) -> Run | None: ...

    def take(self, bench: Bench) -> Taken: ...


def measure_recipe(measure: Measure) -> dict[str, Any]:
    """The measure as plain data, without the seed of its run: what its record is keyed by."""
    described_ = described(measure)
    if measure.run is not None:
        described_["run"] = measure.run.recipe()
    return described_


def take(
    measures: Iterable[Measure],
    bench: Bench,
    listen: Callable[[str, Measure], None] = lambda what, measure: None,
    failed: Callable[[Measure], object] | None = None,
) -> Iterator[Measure]:
    """Take what is not in the store yet, one after the other; yields each once it is recorded.

    What goes wrong in one ends all of them, or, if there is somebody to hear of it in `failed`,
    that one. Data that lacks ends all in any case.
    """
    for measure in measures:
        recipe, seed = measure_recipe(measure), measure.run.seed if measure.run else 0
        try:
            with bench.store.claim(recipe, [seed]) as claim:
                if not bench.store.missing(recipe, [seed]):
                    listen("cached", measure)
                    continue
                if measure.run and not weights.kept(bench.store, measure.run, bench.data):
                    listen("left to others: its model is not trained yet", measure)
                    continue
                listen("measuring", measure)
                if measure.run:
                    bench.data(measure.run)
                try:
                    record = _record(measure, recipe, seed, bench)
                except Exception:
                    if failed is None:
                        raise
                    listen(f"failed: {traceback.format_exc()}", measure)
                    failed(measure)
                    continue
                claim.check()
                bench.store.add([record], name=_file_name(measure))
                yield measure
        except (Busy, Lost) as theirs:
            listen(f"left to others: {theirs}", measure)


def untaken(measures: Iterable[Measure], store: Store) -> list[Measure]:
    """Those that have no record yet, each once."""
    found: list[Measure] = []
    for measure in measures:
        seed = measure.run.seed if measure.run else 0
        if measure not in found and store.missing(measure_recipe(measure), [seed]):
            found.append(measure)
    return found


def model_runs(measures: Iterable[Measure]) -> list[Run]:
    """The runs whose weights the measures look at, each once."""
    return list(dict.fromkeys(m.run for m in measures if m.run is not None))


def _record(measure: Measure, recipe: dict[str, Any], seed: int, bench: Bench) -> Record:
    started = time.perf_counter()
    found = measure.take(bench)
    notes, checksum = {}, ""
    if measure.run is not None:
        kept = weights.find(bench.store, measure.run, bench.data)
        notes = {"model": kept.result if kept else {}}
        checksum = bench.data(measure.run).checksum
    return Record(
        recipe=recipe,
        seed=seed,
        code_version=code_version(),
        data_checksum=checksum,
        environment=environment(str(bench.device)),
        result=found.result,
        wall_seconds=time.perf_counter() - started,
        curve=found.curve,
        notes=notes,
    )


def measure_name(measure: Measure) -> str:
    """For people: what is measured, and on what."""
    on = f" of {weights.describe(measure.run)}" if measure.run else ""
    return f"{brief(measure, without=('run',))}{on}"


def _file_name(measure: Measure) -> str:
    task = f"{type(measure.run.task).__name__}-" if measure.run else ""
    return f"measure-{task}{type(measure).__name__}".lower()


def on_seeds(measure: Any, seeds: Iterable[int]) -> list[Any]:
    """The same measure on other seeds of its run."""
    return [replace(measure, run=replace(measure.run, seed=seed)) for seed in seeds]
