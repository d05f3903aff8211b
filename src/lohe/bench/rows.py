"""A measurement as a value, and a file of them: JSON, one a line, the machine in the first."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np

Kind = Literal["ours", "sdpa", "flex"]
Status = Literal["timed", "left out", "wrong"]


@dataclass(frozen=True)
class Spread:
    """Median and quartiles."""

    median: float
    quartile_1: float
    quartile_3: float

    @classmethod
    def of(cls, values: Sequence[float] | np.ndarray) -> Self:
        quarter, median, three_quarters = np.quantile(values, [0.25, 0.5, 0.75]).tolist()
        return cls(median, quarter, three_quarters)


@dataclass(frozen=True)
class Case:
    """What every contestant of a race computes."""

    batch: int
    heads: int
    tokens: int
    d_h: int
    dtype: str
    causal: bool

    def __str__(self) -> str:
        direction = "causal" if self.causal else "bidirectional"
        size = f"{self.batch} x {self.tokens} tokens, {self.heads} heads x {self.d_h}"
        return f"{size}, {direction}, {self.dtype}"


@dataclass(frozen=True)
class Row:
    """One contestant of one race.

    `ratio` is the time of the fastest rival over this one's, round by round: above 1 this one is
    faster. `errors` are what the gate found, relative, by name. `peak_bytes` is memory above the
    inputs.
    """

    set: str
    measure: str
    name: str
    kind: Kind
    case: Case
    status: Status = "timed"
    seconds: Spread | None = None
    ratio: Spread | None = None
    rival: str = ""
    rounds: int = 0
    errors: dict[str, float] | None = None
    peak_bytes: int | None = None
    cache_bytes: int | None = None
    note: str = ""

    @property
    def bytes_per_token(self) -> float | None:
        """Of peak memory."""
        tokens = self.case.batch * self.case.tokens
        return None if self.peak_bytes is None else self.peak_bytes / tokens


def start(path: Path, header: dict[str, Any]) -> None:
    """A new file that begins with the machine."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(header) + "\n")


def append(path: Path, row: Row) -> None:
    """One more line; what is unset is left out."""
    told = {name: value for name, value in asdict(row).items() if value not in (None, "", 0)}
    with path.open("a") as file:
        file.write(json.dumps(told) + "\n")


def read(path: Path) -> tuple[dict[str, Any], list[Row]]:
    """The header and the rows of a file."""
    text = path.read_text()
    try:
        header, *lines = map(json.loads, text.splitlines())
        if not {"gpu", "processor"} <= header.keys():
            raise ValueError("its first line does not say the machine")
        return header, [_row(line) for line in lines]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} was not written by `lohe bench --json`: {error}.") from None


def _row(told: dict[str, Any]) -> Row:
    known = {field.name for field in fields(Row)}
    if extra := told.keys() - known:
        raise ValueError(f"Not a row of `lohe bench`: it has {', '.join(sorted(extra))}.")
    values: dict[str, Any] = {"measure": "", **told, "case": Case(**told["case"])}
    for name in {"seconds", "ratio"} & told.keys():
        values[name] = Spread(**told[name])
    return Row(**values)
