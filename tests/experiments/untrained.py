"""A bench with models that nobody trained, and records of what is measured on it."""

from pathlib import Path

import torch

from lohe.experiments.evidence import Evidence
from lohe.experiments.measures import Bench, measure_recipe
from lohe.experiments.setting import Setting
from lohe.experiments.store.records import Record
from lohe.experiments.store.store import Store

SMOKE = Setting("smoke")


class Untrained(Bench):
    """A bench without a store."""

    def __init__(self):
        super().__init__(Store(Path("no store")))

    def model(self, run):
        rng = torch.Generator().manual_seed(run.seed)
        return run.model.build(self.data(run), rng).eval()


def recorded(measure, result, curve=()):
    """A record as if the measure had been taken."""
    return Record(
        recipe=measure_recipe(measure),
        seed=measure.run.seed,
        code_version="0",
        data_checksum="",
        environment={},
        result=result,
        wall_seconds=0.0,
        curve=list(curve),
    )


def evidence(*records, setting=SMOKE):
    return Evidence(records, setting)
