"""What every benchmark needs: a clock, and a place for the result with the machine in words."""

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from lohe.bench.clock import HostClock, in_turns
from lohe.bench.machine import machine
from lohe.bench.rows import Spread

RESULTS = Path(__file__).parent / "results"


def seconds(run: Callable[[], object], repeats: int) -> list[float]:
    """Wall-clock time of each run, after two that are not counted."""
    return in_turns([(run,)], HostClock(), repeats + 2)[0][2:, 0].tolist()


def spread(times: list[float]) -> dict[str, float]:
    """Median and quartiles."""
    return asdict(Spread.of(times))


def save(name: str, result: dict[str, object]) -> Path:
    """Write `results/NAME.json`, the machine first."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps({"machine": machine(), **result}, indent=1) + "\n")
    return path


def saved(name: str) -> dict[str, Any]:
    """What `save` wrote last, without the machine; nothing where there is no such file."""
    path = RESULTS / f"{name}.json"
    found = json.loads(path.read_text()) if path.exists() else {}
    return {key: value for key, value in found.items() if key != "machine"}
