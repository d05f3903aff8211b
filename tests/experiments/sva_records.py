"""Records of agreement runs with numbers of our choice."""

from collections.abc import Sequence

from invented import record

from lohe.experiments.measures import Measure, measure_recipe
from lohe.experiments.store.records import Record
from lohe.experiments.verdicts import Judged, Line, judge
from lohe.train import Run


def cohort(run: Run, hard: Sequence[float], overall: Sequence[float] | None = None) -> list[Record]:
    """A record a seed; overall accuracy is hard accuracy unless it is given."""
    pairs = zip(hard, hard if overall is None else overall, strict=True)
    return [
        record(run.recipe(), seed, {"valid.hard": h, "valid.overall": o})
        for seed, (h, o) in enumerate(pairs)
    ]


def measurement(measure: Measure, seed: int, result: dict[str, float], curve=()) -> Record:
    return record(measure_recipe(measure), seed, result, curve)


def find(lines: Sequence[Line], what: str, reading: str = "") -> Judged:
    """The one line of this name, judged with all others."""
    (found,) = [j for j in judge(lines) if (j.line.what, j.line.reading) == (what, reading)]
    return found
