"""Records that nobody measured, and a bench whose models nobody trained."""

from collections.abc import Iterable
from functools import cache
from typing import Any

import untrained

from lohe.experiments.evidence import Evidence
from lohe.experiments.measures import Measure, measure_recipe
from lohe.experiments.setting import Setting
from lohe.experiments.store.records import Record
from lohe.experiments.verdicts import Line, judge
from lohe.tasks import Data, Task
from lohe.train import Run


def record(measure: Measure, result: dict[str, float], curve: list[dict[str, Any]]) -> Record:
    return Record(
        recipe=measure_recipe(measure),
        seed=measure.run.seed if measure.run else 0,
        code_version="0",
        data_checksum="",
        environment={},
        result=result,
        wall_seconds=0.0,
        curve=curve,
    )


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


class Untrained(untrained.Untrained):
    """Models at their random start, on data that is loaded once."""

    def data(self, run: Run) -> Data:
        return run.limited(loaded(run.task))
