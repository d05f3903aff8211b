"""What the looks at language models share: runs as in the contest, and what is found.

A look is one seed or two of models of WikiText-2, in float32 on a CPU and for 10 epochs, as in the
trials, if nothing else is said; measured on the second half of validation. No part of the contest:
no test article is read.
"""

import argparse
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness import saved
from lohe.bench.machine import processor
from lohe.experiments import cpu
from lohe.experiments.contest.trials import STAGES, Configuration
from lohe.experiments.measures import Bench, Measure, measure_recipe, take
from lohe.experiments.runner import complete
from lohe.experiments.store.records import Record
from lohe.experiments.store.store import Store
from lohe.experiments.studies.rank.concentration import Concentration
from lohe.models import Mechanism
from lohe.models.positions import Positions
from lohe.train import Run

RATE, DROPOUT = 1e-3, 0.1  # which lead the trials


def run_of(
    mechanism: Mechanism,
    seed: int = 0,
    positions: Positions = "sinusoidal",
    rate: float = RATE,
) -> Run:
    stage = replace(STAGES["trials"], precision="float32")
    return stage.runs(Configuration(mechanism, rate, DROPOUT, positions), seeds=[seed])[0]


def parser(about: str | None) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=(about or "").partition("\n")[0])
    made.add_argument("--store", type=Path, required=True, help="records and weights, to resume")
    made.add_argument("--data", type=Path, help="data root; else $LOHE_DATA")
    return made


def look(
    file: str,
    runs: Mapping[str, Run],
    measures: Callable[[Run], Mapping[str, Measure]],
    store: Store,
    data: Path | None,
) -> dict[str, Any]:
    """Train each run and take its measures, as far as nobody else does; what was found, by name.

    What the results file `file` has already is taken from there: a run is known by its name, and to
    train it again, take it out. Stopped at any moment, it continues; started twice, two processes
    share the work.
    """
    cpu.get_ready()
    bench, before = Bench(store, "cpu", data), saved(file)
    todo = {name: run for name, run in runs.items() if name not in before}
    wanted = {name: measures(run) for name, run in todo.items()}
    for name, run in todo.items():
        for _ in complete([run], store, root=data, with_weights=[run]):
            print("trained", name, flush=True)
        if not store.missing(run.recipe(), [run.seed]):
            for measure in take(wanted[name].values(), bench):
                print("measured", type(measure).__name__, "of", name, flush=True)
    found, lacking = {}, []
    for name, run in todo.items():
        recipes = {what: measure_recipe(measure) for what, measure in wanted[name].items()}
        recipes = {"trained": run.recipe(), **recipes}
        if any(store.missing(recipe, [run.seed]) for recipe in recipes.values()):
            lacking.append(name)
            continue
        shown = {what: _shown(store.load(r)[run.seed]) for what, r in recipes.items()}
        found[name] = {"processor": processor(), **shown}
    if lacking:
        print(f"Not here yet, or left to another process: {'; '.join(lacking)}. Run it again.")
    found = saved(file) | found  # by now others may have written theirs
    return {name: found[name] for name in runs if name in found}


def concentration(run: Run) -> dict[str, Measure]:
    """How much of the attention one key gets."""
    return {"concentration": Concentration(run)}


def _shown(record: Record) -> dict[str, object]:
    """What was found, by which code and where."""
    kept = ("result", "curve", "wall_seconds", "code_version", "data_checksum", "environment")
    return {name: getattr(record, name) for name in kept}
