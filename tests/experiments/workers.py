"""What the tests run in processes of their own, to be killed there."""

import os
import signal
import sys
import time
from dataclasses import dataclass
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import torch

from lohe.experiments.measures import Bench, Measure, Taken, take
from lohe.experiments.store.checkpoints import Checkpoint
from lohe.experiments.store.locks import Busy
from lohe.experiments.store.records import Record
from lohe.experiments.store.store import Store
from lohe.train import Run

RECIPE = {"task": {"name": "sva"}, "lr": 1e-3, "epochs": 2}


def record(seed: int, **changes: Any) -> Record:
    fields = {
        "recipe": RECIPE,
        "seed": seed,
        "code_version": "0.1.0",
        "data_checksum": "sha256:00",
        "environment": {"device": "cpu", "torch": "2.13.0", "tf32": False},
        "result": {"hard": 0.1 * seed, "easy": 0.99},
        "wall_seconds": 1.5,
        "curve": [{"epoch": e, "loss": 1.0 / (e + 1)} for e in range(2)],
    }
    return Record(**fields | changes)


# --- records


def add_one_by_one(root: Path, seeds: range, start: Barrier) -> None:
    store = Store(root)
    start.wait()
    for seed in seeds:
        store.add([record(seed)])


def add(root: Path, seeds: list[int]) -> None:
    Store(root).add([record(seed) for seed in seeds])


# --- claims


def try_to_claim(root: Path, start: Barrier, tried: Barrier, answers: Queue) -> None:
    start.wait()
    try:
        with Store(root).claim(RECIPE, [0, 1, 2]):
            answers.put("won")
            tried.wait()
    except Busy as busy:
        answers.put(str(busy))
        tried.wait()


def hold(root: Path, seeds: list[int], answers: Queue) -> None:
    with Store(root).claim(RECIPE, seeds, heartbeat_s=0.05, stale_after_s=0.2):
        answers.put(os.getpid())
        time.sleep(60)


def take_turns(root: Path, turns: int, start: Barrier) -> None:
    """Claim seed 0 again and again; a second holder would trip over the flag."""
    start.wait()
    while turns:
        try:
            with Store(root).claim(RECIPE, [0]):
                os.close(os.open(root / "flag", os.O_CREAT | os.O_EXCL))
                time.sleep(0.002)
                (root / "flag").unlink()
                turns -= 1
        except Busy:
            time.sleep(0.001)


def run_all(root: Path, seeds: list[int]) -> None:
    """What `lohe run` does: claim, see what is missing, train, record; wait where others work."""
    store = Store(root)
    while store.missing(RECIPE, seeds):
        for seed in seeds:
            try:
                with store.claim(RECIPE, [seed]):
                    for todo in store.missing(RECIPE, [seed]):
                        with open(root / "trained.log", "a") as log:
                            log.write(f"{todo}\n")
                        time.sleep(0.02)
                        store.add([record(todo)])
            except Busy:
                time.sleep(0.005)


# --- checkpoints


def walk(folder: Path, steps: int) -> None:
    """A resumable run: a random walk that saves each step. Its tensors say which step they are."""
    checkpoint = Checkpoint(folder)
    saved = checkpoint.load()
    step, x, rng = 0, torch.zeros(5000, dtype=torch.float64), torch.Generator().manual_seed(0)
    if saved is not None:
        tensors, state = saved
        step, x = state["step"], tensors["x"]
        rng.set_state(tensors["rng"])
    while step < steps:
        step += 1
        x += torch.randn(x.shape, generator=rng, dtype=x.dtype)
        tensors = {"x": x, "rng": rng.get_state(), "step": torch.tensor(step)}
        checkpoint.save(tensors, {"step": step})


def save(folder: Path, step: int) -> None:
    Checkpoint(folder).save({"step": torch.full((100,), step)}, {"step": step})


# --- dying


def killed_before(n: int, root: Path, act: Any, *args: Any) -> None:
    """act(*args), killed before the n-th time it touches the file system under `root`."""
    left = n

    def count() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def watch(event: str, arguments: tuple) -> None:
        # os.replace is audited as os.rename
        if event in ("open", "os.rename", "os.remove", "os.mkdir"):
            path = arguments[0]
            if isinstance(path, str | Path) and str(path).startswith(str(root)):
                count()

    fsync = os.fsync

    def watched_fsync(descriptor: int) -> None:
        count()
        fsync(descriptor)

    os.fsync = watched_fsync
    sys.addaudithook(watch)
    act(*args)


# --- measures


@dataclass(frozen=True)
class Counted:
    """A number, and a line in a file each time that it is taken; dies there if it is told to."""

    number: int
    log: str
    deadly: str = ""
    run: Run | None = None

    def take(self, bench: Bench) -> Taken:
        with open(self.log, "a") as file:
            file.write(f"{self.number}\n")
        if self.deadly and not Path(self.deadly).exists():
            Path(self.deadly).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return Taken({"number": self.number})


def take_all(root: Path, wanted: list[Measure]) -> None:
    for _ in take(wanted, Bench(Store(root))):
        pass
