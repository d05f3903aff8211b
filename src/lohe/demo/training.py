"""The packs of the plan, each trained in a process of its own; killed, they continue.

OUT/store     records, and checkpoints of what is under way
OUT/models    the selected parameters of each pack, (seeds, ...), as safetensors
"""

import json
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from lohe.demo.plan import Plan
from lohe.experiments import cpu
from lohe.experiments.runner import Pack, complete, file_name, records
from lohe.experiments.store import files
from lohe.experiments.store.locks import Busy, Lost
from lohe.experiments.store.records import Record, key
from lohe.experiments.store.store import Store
from lohe.experiments.studies.robust.physics import scores
from lohe.experiments.tables import seed_ranges
from lohe.tasks import Data
from lohe.train import Outcome, Run, Trained, train

POLL_S = 0.5
SAME = 0.05  # percentage points: rounding may turn two of 4,000 sentences
FAILED = "failed"

# the pack's name, what happened, epochs done, of how many
Heard = Callable[[str, str, int, int], None]


@dataclass(frozen=True)
class Job:
    """One pack, and the folder that keeps what comes of it."""

    name: str
    run: Run
    seeds: tuple[int, ...]
    out: Path

    @property
    def store(self) -> Store:
        return Store(self.out / "store")

    @property
    def recipe(self) -> dict:
        return self.run.recipe()

    @property
    def file(self) -> Path:
        name = f"{file_name(self.run)}-{key(self.recipe)}-seeds-{seed_ranges(self.seeds)}"
        return self.out / "models" / f"{name}.safetensors"

    @property
    def finished(self) -> bool:
        return not self.store.missing(self.recipe, self.seeds) and self.parameters() is not None

    def parameters(self) -> dict[str, Tensor] | None:
        """What `keep` wrote; None if there is nothing, or it is not whole."""
        try:
            return safetensors.torch.load(self.file.read_bytes())
        except (FileNotFoundError, safetensors.SafetensorError):
            return None

    def keep(self, trained: Trained) -> None:
        """Write the parameters, whole or not at all."""
        self.file.parent.mkdir(parents=True, exist_ok=True)
        # one entry: safetensors writes several in any order, and the same models are the same file
        about = {"lohe": json.dumps({"seeds": self.seeds, "recipe": self.recipe})}
        owned = {name: p.detach().cpu().contiguous() for name, p in trained.parameters.items()}
        files.write(self.file, safetensors.torch.save(owned, metadata=about))


@dataclass(frozen=True)
class Learned:
    """A pack at the end: a record and a model for each seed."""

    records: list[Record]
    models: dict[int, nn.Module]

    @property
    def first(self) -> nn.Module:
        return next(iter(self.models.values()))

    @property
    def seconds(self) -> float:
        """What the pack took to train, whenever that was."""
        return sum(record.wall_seconds for record in self.records)


def jobs(plan: Plan, out: Path) -> list[Job]:
    return [Job(name, run, plan.seeds, out) for name, run in plan.runs().items()]


def learned(job: Job, data: Data) -> Learned:
    """What a finished job left in its folder."""
    found, parameters = job.store.load(job.recipe), job.parameters()
    assert parameters is not None
    outcomes = [Outcome(seed) for seed in job.seeds]
    whole = Trained(job.run, outcomes, parameters, 0.0)
    models = {seed: whole.model(data, seed) for seed in job.seeds}
    for seed, model in models.items():
        then = found[seed].result["valid.overall"]
        now = scores(model, job.run.task, job.run.limited(data).valid)
        if abs(then - now["overall"]) > SAME:
            raise RuntimeError(
                f"{job.file} does not hold the models of {job.store.root}: seed {seed} has "
                f"accuracy {now['overall']:.2f} %, its record {then:.2f} %. Delete {job.file} and "
                "run again: it will be trained anew."
            )
    return Learned([found[seed] for seed in job.seeds], models)


def finish(job: Job, heard: Heard = lambda name, what, done, of: None) -> None:
    """Train the pack until its records and its models are there; waits for others who do."""

    waiting = False

    def listen(what: str, pack: Pack, done: int, of: int) -> None:
        nonlocal waiting
        if not (waiting and what.startswith("left to others")):  # once is enough
            heard(job.name, what, done, of)
        waiting = what.startswith("left to others")

    def keep(pack: Pack, trained: Trained) -> None:
        if tuple(pack.seeds) == job.seeds:  # part of a pack is no pack: `_again` trains it whole
            job.keep(trained)

    runs = [replace(job.run, seed=seed) for seed in job.seeds]
    while not job.finished:
        if job.store.missing(job.recipe, job.seeds):
            done = list(complete(runs, job.store, size=len(runs), listen=listen, keep=keep))
        else:
            done = _again(job, listen)
        if not done:
            time.sleep(POLL_S)


def _again(job: Job, listen: Callable[[str, Pack, int, int], None]) -> bool:
    """Records without models, say after somebody tidied up: train once more, same numbers."""
    pack = Pack(job.run, list(job.seeds))
    try:
        with job.store.claim(job.recipe, job.seeds) as claim:
            data = job.run.task.load()
            checkpoint = job.store.checkpoint(job.recipe, job.seeds, claim.check)
            trained = train(
                job.run,
                pack.seeds,
                data,
                checkpoint=checkpoint,
                report=lambda epoch, _: listen("training", pack, epoch + 1, job.run.epochs),
            )
            claim.check()
            job.keep(trained)
            job.store.add(records(pack, trained, data, "cpu"), replace=True)
            checkpoint.clear()
            return True
    except (Busy, Lost) as theirs:
        listen(f"left to others: {theirs}", pack, 0, job.run.epochs)
        return False


def side_by_side(jobs: list[Job], heard: Heard) -> None:
    """Finish every job, each in a process with one thread; they end when this one does."""
    context = multiprocessing.get_context("spawn")
    running: dict[Any, tuple[Job, SpawnProcess]] = {}  # by our end of its pipe
    try:
        with _deaf_to_interrupts():
            for job in jobs:
                ours, theirs = context.Pipe(duplex=False)
                process = context.Process(target=_work, args=(job, theirs))
                process.start()
                theirs.close()
                running[ours] = job, process
        while running:
            ready: list[Any] = wait(list(running))
            for pipe in ready:
                job, process = running[pipe]
                try:
                    what, done, of = pipe.recv()
                except EOFError:
                    process.join()
                    _check(job, process.exitcode)
                    del running[pipe]
                    continue
                if what == FAILED:
                    raise RuntimeError(f"Training {job.name} stopped: {done}")
                heard(job.name, what, done, of)
    finally:
        for _, process in running.values():
            process.terminate()
            process.join()


def _work(job: Job, pipe: Connection) -> None:
    """In the process of one job."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(1)
    cpu.get_ready()
    try:
        finish(job, lambda name, what, done, of: pipe.send((what, done, of)))
    except Exception as error:
        pipe.send((FAILED, f"{type(error).__name__}: {error}", 0))


def _end_with_parent() -> None:
    """A parent that was killed takes its children along; what they were at is resumed."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _check(job: Job, exitcode: int | None) -> None:
    if exitcode:
        raise RuntimeError(
            f"The process that trained {job.name} ended with code {exitcode}; -9 often means that "
            "memory ran out. The same command continues from the last epoch."
        )


@contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """Processes started here ignore Ctrl-C: their parent hears it, and ends them quietly."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
