"""What every benchmark needs: a clock, the machine in words, and a place for the result."""

import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch

RESULTS = Path(__file__).parent / "results"


def seconds(run: Callable[[], object], repeats: int) -> list[float]:
    """Wall-clock time of each run, after two that are not counted."""
    return in_turns([run], repeats)[0]


def in_turns(runs: list[Callable[[], object]], repeats: int) -> list[list[float]]:
    """Times of several things, in turns, so that a busy moment of the machine hits all of them."""
    times: list[list[float]] = [[] for _ in runs]
    for _ in range(repeats + 2):
        for run, kept in zip(runs, times, strict=True):
            start = time.perf_counter()
            run()
            kept.append(time.perf_counter() - start)
    return [kept[2:] for kept in times]


def spread(times: list[float]) -> dict[str, float]:
    """Median and quartiles."""
    quarter, median, three_quarters = statistics.quantiles(times, n=4)
    return {"median": median, "quartile_1": quarter, "quartile_3": three_quarters}


def machine() -> dict[str, object]:
    """Processor, cores and versions."""
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return {
        "processor": _cpu_name(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "gpu": gpu,
        "platform": platform.platform(),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def save(name: str, result: dict[str, object]) -> Path:
    """Write `results/NAME.json`, the machine first."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps({"machine": machine(), **result}, indent=1) + "\n")
    return path


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((x.split(":", 1)[1].strip() for x in lines if x.startswith("model name")), "?")
