"""What a finished run leaves behind, and the version in which it is written."""

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import Any

from lohe.experiments.store.exact import plain

SCHEMA = 1

# Takes a record of schema n to schema n + 1. Keys hash the recipe, so an upgrade leaves it alone.
UPGRADES: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {}


class NewerSchema(ValueError):
    """A record from a later lohe than this one."""


class Metrics(dict[str, float]):
    """The numbers of a record by name. One that is not there is an error that names the record."""

    recipe: Mapping[str, Any] = MappingProxyType({})
    seed = 0

    def __missing__(self, name: str) -> float:
        raise ValueError(
            f"The record of seed {self.seed}, recipe {key({**self.recipe})}, has no {name!r}; it "
            f"has {', '.join(self) or 'nothing'}. It was made by other code or changed by hand: "
            "move its file out of the store, and run the item again."
        )


@dataclass(frozen=True, kw_only=True)
class Record:
    """One seed of one recipe, trained: what was asked, where it ran, what came out.

    Everything is plain JSON data (`exact.plain`); NaN and infinities are welcome in the results.
    """

    recipe: dict[str, Any]
    seed: int
    code_version: str
    data_checksum: str
    environment: dict[str, Any]
    result: dict[str, float]
    wall_seconds: float
    curve: list[dict[str, Any]]
    notes: dict[str, Any] = field(default_factory=dict)
    schema: int = SCHEMA

    def __post_init__(self):
        if self.schema != SCHEMA:
            raise ValueError(f"A new record has schema {SCHEMA}, got {self.schema}: leave it out.")
        for name in ("recipe", "environment", "result", "curve", "notes"):
            object.__setattr__(self, name, plain(getattr(self, name), name))
        # what cannot be read back must not be written
        _check_types(vars(self))
        result = Metrics(self.result)
        result.recipe, result.seed = self.recipe, self.seed
        object.__setattr__(self, "result", result)


def key(recipe: dict[str, Any]) -> str:
    """Name of a recipe: 16 hexadecimal digits of the sha256 of its canonical JSON.

    Equal recipes have equal keys: the order of names does not matter, nor 1 against 1.0.

    >>> key({"lr": 1.0, "heads": 2}) == key({"heads": 2, "lr": 1})
    True
    """
    canonical = _canonical(plain(recipe, "recipe"), "recipe")
    text = json.dumps(canonical, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:16]


def to_plain(record: Record) -> dict[str, Any]:
    """The record as a JSON-able dict."""
    return asdict(record)


def from_plain(raw: dict[str, Any]) -> Record:
    """Inverse of `to_plain`, for records of this schema and all earlier ones."""
    raw = _upgraded(raw)
    if raw.keys() != TYPES.keys():
        odd = ", ".join(sorted(raw.keys() ^ TYPES.keys()))
        raise ValueError(f"a record with missing or unknown fields: {odd}")
    return Record(**raw)


def _upgraded(raw: dict[str, Any]) -> dict[str, Any]:
    schema = raw.get("schema")
    if not isinstance(schema, int):
        raise ValueError(f"a record must name its schema, got {schema!r}")
    if schema > SCHEMA:
        raise NewerSchema(f"a record of schema {schema}; this lohe reads up to {SCHEMA}")
    for version in range(schema, SCHEMA):
        if version not in UPGRADES:
            raise ValueError(f"a record of schema {schema}, which no released lohe wrote")
        raw = UPGRADES[version](raw) | {"schema": version + 1}
    return raw


TYPES: dict[str, type | tuple[type, ...]] = {
    "recipe": dict,
    "seed": int,
    "code_version": str,
    "data_checksum": str,
    "environment": dict,
    "result": dict,
    "wall_seconds": (int, float),
    "curve": list,
    "notes": dict,
    "schema": int,
}


def _check_types(fields: dict[str, Any]) -> None:
    for name, kind in TYPES.items():
        if not _is(fields[name], kind):
            raise ValueError(f"a record whose {name} is a {type(fields[name]).__name__}")
    for name, value in fields["result"].items():
        if not isinstance(value, int | float):
            raise ValueError(f"a record whose result {name!r} is {value!r}, not a number")
    for epoch in fields["curve"]:
        if not isinstance(epoch, dict):
            raise ValueError(f"a record whose curve holds a {type(epoch).__name__}, not a dict")


def _is(value: Any, kind: type | tuple[type, ...]) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


def _canonical(value: Any, where: str) -> Any:
    match value:
        case float() if not math.isfinite(value):
            raise ValueError(f"{where} is {value}; a recipe has finite numbers, or None for 'no'.")
        case float() if value.is_integer():
            return int(value)
        case list():
            return [_canonical(item, f"{where}[{i}]") for i, item in enumerate(value)]
        case dict():
            return {name: _canonical(v, f"{where}[{name!r}]") for name, v in value.items()}
    return value
