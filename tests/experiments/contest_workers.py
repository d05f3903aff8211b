"""`lohe contest` in processes of its own, on the short contest."""

import os
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest
import torch

import short_contest
from lohe import contest_cli
from lohe.experiments import runner
from lohe.experiments.contest.stages import LATER_RUNS
from lohe.experiments.store.records import key


def choose(store: Path, data: Path, log: Path, start: Barrier | None = None) -> None:
    contest("choose", store, data, log, start)


def scale(store: Path, data: Path, log: Path) -> None:
    """The stage alone, as if the confirmation was there."""
    pytest.MonkeyPatch().delitem(contest_cli.AFTER, "scale")
    contest("scale", store, data, log)


def whole(store: Path, data: Path, log: Path, minutes: float | None = None) -> None:
    """`all`: choose, two packs to confirm and a control, nothing measured."""
    patch = pytest.MonkeyPatch()
    few = {
        "confirm": lambda won: LATER_RUNS["confirm"](won)[::2][:2],
        "controls": lambda won: LATER_RUNS["controls"](won)[:1],
    }
    patch.setattr(contest_cli, "later_runs", lambda stage, evidence, won: few[stage](won))
    patch.setattr(contest_cli, "WORK", ("choose", *few))
    patch.setattr(contest_cli, "_measure", lambda worker: None)
    contest("all", store, data, log, minutes=minutes)


def contest(
    stage: str,
    store: Path,
    data: Path,
    log: Path,
    start: Barrier | None = None,
    minutes: float | None = None,
) -> None:
    """What the command does; `log` gets a line for every pack that is trained, and by whom."""
    torch.set_num_threads(1)
    patch = pytest.MonkeyPatch()
    short_contest.shorten(patch)
    patch.setattr(contest_cli, "POLL_S", 0.05)
    train = runner.train

    def logged(run, seeds, *args, **options):
        line = f"{os.getpid()} {key(run.recipe())} {seeds}\n"
        file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(file, line.encode())
        os.close(file)
        return train(run, seeds, *args, **options)

    patch.setattr(runner, "train", logged)
    if start:
        start.wait()
    contest_cli.contest_command(stage, store, "cpu", data, minutes)
