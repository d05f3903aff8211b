"""`lohe contest choose` in processes of its own, on the short contest."""

import os
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest
import torch

import short_contest
from lohe import contest_cli
from lohe.experiments import runner
from lohe.experiments.store.records import key


def choose(store: Path, data: Path, log: Path, start: Barrier | None = None) -> None:
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
    contest_cli.contest_command("choose", store, "cpu", data)
