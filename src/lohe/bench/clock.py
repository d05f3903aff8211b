"""Times of several things in turns, so that a busy moment or a sinking clock rate hits all of them.

A run is a sequence of stages, called one after the other and timed each by itself, such as the
forward and the backward pass.
"""

import gc
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from jaxtyping import Float

Run = Sequence[Callable[[], object]]
Times = Float[np.ndarray, "rounds stages"]  # seconds

LEAST, MOST = 5, 100  # rounds
COLD = 2**30  # bytes to overwrite: more than a cache holds, and longer than a call takes to be made
LONG_S, LEAST_LONG = 2.0, 3  # a round that takes so long is repeated less


class Clock(Protocol):
    def prepare(self) -> None: ...
    def mark(self) -> Any: ...
    def finish(self) -> None: ...
    def seconds(self, begin: Any, end: Any) -> float: ...


class HostClock:
    """Wall-clock time on the CPU."""

    def prepare(self) -> None:
        pass

    def mark(self) -> float:
        return time.perf_counter()

    def finish(self) -> None:
        pass

    def seconds(self, begin: float, end: float) -> float:
        return end - begin


class CudaClock:
    """Time on the GPU, by events that are queued with the work."""

    def __init__(self, device: torch.device):
        self.cold = torch.empty(COLD, dtype=torch.int8, device=device)

    def prepare(self) -> None:
        """Nothing of what is timed next is in a cache, and the host gets ahead of the GPU."""
        self.cold.zero_()

    def mark(self) -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def finish(self) -> None:
        torch.cuda.synchronize()

    def seconds(self, begin: torch.cuda.Event, end: torch.cuda.Event) -> float:
        return begin.elapsed_time(end) / 1e3


def clock(device: torch.device) -> Clock:
    """The one that this device is timed by."""
    return CudaClock(device) if device.type == "cuda" else HostClock()


def in_turns(runs: Sequence[Run], clock: Clock, rounds: int) -> list[Times]:
    """Seconds of each stage of each run, all runs in every round."""
    marks: list[list[list[tuple[Any, Any]]]] = [[] for _ in runs]
    for _ in range(rounds):
        for run, kept in zip(runs, marks, strict=True):
            kept.append([])
            for stage in run:
                clock.prepare()
                begin = clock.mark()
                stage()
                kept[-1].append((begin, clock.mark()))
    clock.finish()
    return [np.array([[clock.seconds(*ab) for ab in row] for row in rows]) for rows in marks]


def timed(runs: Sequence[Run], clock: Clock, budget: float) -> list[Times]:
    """As many rounds as give each run about `budget` seconds, after one that is not counted."""
    total = sum(times.sum() for times in in_turns(runs, clock, 1))
    least = LEAST if total < LONG_S else LEAST_LONG
    wanted = budget * len(runs) / max(total, 1e-9)
    return in_turns(runs, clock, round(np.clip(wanted, least, MOST)))


def captured(stages: Run, device: torch.device) -> list[Callable[[], object]]:
    """The same work replayed from CUDA graphs, without the time that Python takes to ask for it.

    Stages follow each other on one stream and share their memory: a backward pass runs where its
    forward pass did. Raises RuntimeError where the work cannot be captured.
    """
    side = torch.cuda.Stream(device)
    side.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(side):
        for stage in stages:
            stage()
    torch.cuda.current_stream(device).wait_stream(side)
    pool, replays = torch.cuda.graph_pool_handle(), []
    for stage in stages:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool, stream=side):
            stage()
        replays.append(graph.replay)
    return replays


def waited_for(stage: Callable[[], object]) -> Callable[[], object]:
    """The same work with the time that Python takes to ask for it, for which the GPU waits."""

    def eager() -> None:
        torch.cuda.synchronize()
        stage()

    return eager


def peak_bytes(run: Run, device: torch.device) -> int | None:
    """GPU memory that a run needs above what is held before it, its results included."""
    if device.type != "cuda":
        return None
    gc.collect()
    torch.cuda.synchronize(device)
    torch.empty(1, device=device)  # what other streams have let go of is counted until someone asks
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    for stage in run:
        stage()
    torch.cuda.synchronize(device)
    return torch.cuda.max_memory_allocated(device) - before
