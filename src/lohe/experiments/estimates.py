"""How long will it take? By what such runs took here before; without any, nobody knows."""

from collections.abc import Iterable
from statistics import fmean
from typing import Any

from lohe.experiments.measures import Measure, measure_recipe
from lohe.experiments.runner import Pack
from lohe.experiments.store.records import Record, key

SAME_FOR_ANY_NUMBER = 0.3  # of the time of a pack on a GPU; 0.45 agreement, 0.15 language models


class Estimates:
    """Times of the records made on one kind of device: a GPU's say nothing about a CPU."""

    def __init__(self, records: Iterable[Record], device: str):
        kind = device.partition(":")[0]
        self._groups: dict[str, list[Record]] = {}
        for record in records:
            if str(record.environment.get("device", "")).startswith(kind):
                self._groups.setdefault(key(record.recipe), []).append(record)

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._groups)

    def pack(self, pack: Pack) -> tuple[float, bool] | None:
        """Seconds for a pack, and whether its own recipe is behind them; None: unknown.

        Else the nearest recipe on such data with a model of that size counts, by its steps.
        """
        wanted, seeds = pack.run.recipe(), len(pack.seeds)
        if found := self._groups.get(key(wanted)):
            return fmean(_seconds(r, seeds) for r in found), True
        similar = [group for group in self._groups.values() if _similar(group[0].recipe, wanted)]
        if not similar:
            return None
        nearest = max(similar, key=lambda group: _likeness(group[0].recipe, wanted))
        each = (_seconds(r, seeds) * _steps(wanted) / _steps(r.recipe) for r in nearest)
        return fmean(each), False

    def measure(self, measure: Measure) -> float | None:
        """Seconds that the same kind of measure took on such data; None: unknown."""
        wanted = measure_recipe(measure)
        such = [
            record.wall_seconds
            for first, *others in self._groups.values()
            if first.recipe.get("type") == wanted["type"] and _task(first.recipe) == _task(wanted)
            for record in (first, *others)
        ]
        return fmean(such) if such else None


def _seconds(record: Record, seeds: int) -> float:
    """Of a pack of so many, by a seed's share of the time of the pack that it was trained in.

    On a GPU a smaller pack leaves processors idle: a part of the time is the same for any number.
    """
    packed = _count(str(record.notes.get("pack", seeds)))
    gpu = str(record.environment.get("device", "")).startswith("cuda")
    same = SAME_FOR_ANY_NUMBER if gpu and seeds < packed else 0.0
    return record.wall_seconds * (same * packed + (1 - same) * seeds)


def _count(seeds: str) -> int:
    """How many seeds ranges hold.

    >>> _count("0-4"), _count("0-2,5,7-8")
    (5, 6)
    """
    ends = (part.split("-") for part in seeds.split(","))
    return sum(int(x[-1]) - int(x[0]) + 1 for x in ends)


def duration(seconds: float) -> str:
    """For people.

    >>> duration(3.6), duration(400), duration(9000)
    ('4 s', '7 min', '2.5 h')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _similar(recipe: dict[str, Any], wanted: dict[str, Any]) -> bool:
    """Same kind of data, as much of it, and a model of the same size."""
    parts = (_task, _size, lambda r: r.get("limit"))
    return recipe.get("type") == wanted["type"] and all(p(recipe) == p(wanted) for p in parts)


def _likeness(recipe: dict[str, Any], wanted: dict[str, Any]) -> tuple[bool, ...]:
    """What else is the same, what matters most first."""
    paths = (("task",), ("model", "attention", "type"), ("precision",), ("model", "attention"))
    return tuple(_at(recipe, *path) == _at(wanted, *path) for path in paths)


def _steps(recipe: dict[str, Any]) -> float:
    """Optimiser steps, up to a factor that the data decides."""
    return recipe["epochs"] / recipe["batch"]


def _task(recipe: dict[str, Any]) -> str | None:
    return _at(recipe, "task", "type") or _at(recipe, "run", "task", "type")


def _size(recipe: dict[str, Any]) -> dict[str, Any]:
    model = recipe.get("model") or {}
    return {k: model.get(k) for k in ("type", "d_model", "heads", "layers", "d_ff", "max_tokens")}


def _at(recipe: Any, *path: str) -> Any:
    for name in path:
        recipe = recipe.get(name) if isinstance(recipe, dict) else None
    return recipe
