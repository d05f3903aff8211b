"""Records that nobody measured, and a bench whose models nobody trained."""

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import nn

from lohe.experiments.evidence import Evidence
from lohe.experiments.measures import Bench, Measure, measure_recipe
from lohe.experiments.setting import Setting
from lohe.experiments.store.records import Record
from lohe.experiments.store.store import Store
from lohe.experiments.verdicts import Line, judge
from lohe.tasks import Data, Task
from lohe.train import Run

SMOKE = Setting("smoke")


def record(
    recipe: dict[str, Any],
    seed: int,
    result: Mapping[str, float],
    curve: Iterable[dict[str, Any]] = (),
) -> Record:
    return Record(
        recipe=recipe,
        seed=seed,
        code_version="0",
        data_checksum="0",
        environment={},
        result=dict(result),
        wall_seconds=1.0,
        curve=list(curve),
    )


def measured(
    measure: Measure, result: Mapping[str, float], curve: Iterable[dict[str, Any]] = ()
) -> Record:
    """A record as if the measure had been taken."""
    return record(measure_recipe(measure), measure.run.seed if measure.run else 0, result, curve)


def evidence(records: Iterable[Record] = (), scale: str = "full") -> Evidence:
    return Evidence(records, Setting(scale))


def verdicts(lines: list[Line]) -> set[str]:
    return {judged.value for judged in judge(lines)}


def claims(lines: list[Line]) -> dict[tuple[str, str], bool | None]:
    """What holds, by claim and reading."""
    return {(x.claim.name, x.reading): x.claim.holds for x in lines if x.claim}


@cache
def loaded(task: Task) -> Data:
    """The agreement sentences take seconds to make: once for all tests."""
    return task.load()


class Untrained(Bench):
    """Models as they are before training: enough for what is true of any model. No store."""

    def __init__(self):
        super().__init__(Store(Path("no store")))

    def data(self, run: Run) -> Data:
        return run.limited(loaded(run.task))

    def model(self, run: Run) -> nn.Module:
        return run.model.build(self.data(run), torch.Generator().manual_seed(run.seed)).eval()
