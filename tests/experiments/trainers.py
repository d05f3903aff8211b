"""Training in processes of its own, to be killed there."""

import os
from dataclasses import replace
from multiprocessing.synchronize import Barrier
from pathlib import Path

import torch

import short_sva
from lohe.experiments.runner import Pack, complete
from lohe.experiments.store.store import Store
from lohe.models import Oscillator
from lohe.train import Run, Trained

EPOCHS = 16


def runs(epochs: int = EPOCHS) -> list[Run]:
    """Two recipes of three seeds: in twos, four packs."""
    small = {"d_model": 8, "d_ff": 8, "epochs": epochs, "select": "highest overall"}
    recipes = (short_sva.run(**small), short_sva.run(Oscillator(), **small))
    return [replace(recipe, seed=seed) for recipe in recipes for seed in range(3)]


def train(root: Path, log: Path, start: Barrier | None = None) -> None:
    """Complete the runs; `log` gets a line when an epoch is done, and one when a pack is."""
    torch.set_num_threads(1)

    def listen(what: str, pack: Pack, done: int, of: int) -> None:
        _append(log, f"{what.split(':')[0]} {pack.name} {done}")

    def keep(pack: Pack, trained: Trained) -> None:
        _append(log, f"kept {pack.name}")

    if start:
        start.wait()
    for _ in complete(runs(), Store(root), size=2, listen=listen, load=short_sva.load, keep=keep):
        pass


def _append(log: Path, line: str) -> None:
    """Whole or not at all: one write, at the end of the file."""
    file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, f"{line}\n".encode())
    os.close(file)
