"""`lohe contest`: oscillators against every softmax, by a protocol committed before the runs."""

import time
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Annotated

import typer

from lohe.experiments import terminal
from lohe.experiments.contest import choose, page, tables
from lohe.experiments.contest.trials import (
    FAMILIES,
    Configuration,
    confirm_runs,
    control_runs,
    law_runs,
    length_runs,
    scale_runs,
    seconds,
    trial_runs,
)
from lohe.experiments.estimates import duration
from lohe.experiments.evidence import Evidence
from lohe.experiments.runner import Pack, complete, missing
from lohe.experiments.setting import Setting
from lohe.experiments.store.store import Store
from lohe.run_cli import Root, device_name, readable_records, refusals
from lohe.tasks import Data, Task
from lohe.train import Run

LATER: dict[str, Callable[[Configuration, Configuration], list[Run]]] = {
    "confirm": confirm_runs,
    "controls": lambda ours, best: control_runs(ours),
    "law": law_runs,
    "length": length_runs,
    "scale": scale_runs,
}
STAGES = ("choose", *LATER, "page")
SIZE = 10  # seeds trained at once


def contest_command(
    stage: Annotated[str, typer.Argument(help=f"One of {', '.join(STAGES)}.")],
    store: Root = Path("results"),
    device: Annotated[str, typer.Option(help="cpu, cuda, or auto.")] = "auto",
    data: Annotated[Path | None, typer.Option(help="Data root; else $LOHE_DATA.")] = None,
    minutes: Annotated[
        float | None, typer.Option(help="Start nothing that may end after so many.")
    ] = None,
    out: Annotated[Path, typer.Option(help="The page; its figure goes beside it.")] = Path(
        "docs/beyond_softmax.md"
    ),
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would run.")] = False,
) -> None:
    """Does oscillator attention beat softmax at language modelling, on the sphere?

    Trains what a stage of the protocol needs and the store does not have yet, and says what
    remains. The same command continues; records are what counts.

    \b
    choose    trials of all families, then the best three of each; no test
    confirm   the chosen ones, ten fresh seeds, test scored once; after choose
    controls  the chosen oscillator with one part changed; after confirm
    law       perplexity against d_osc; after choose, like length and scale
    length    windows of 128 and 256 words
    scale     six layers, d_model 384
    page      write the page and its figure from the records; trains nothing

    \b
    Examples:
      lohe contest choose --dry-run
      lohe contest choose --device cuda --minutes 9
      lohe contest page --out docs/beyond_softmax.md
    """
    with refusals():
        records = Store(store)
        if stage not in STAGES:
            raise ValueError(f"{stage!r} is no stage. Choose from {', '.join(STAGES)}.")
        if stage == "page":
            for path in page.write(out, _evidence(records)):
                typer.echo(f"wrote {path}", err=True)
            return
        _runs(stage, _evidence(records))  # refuses what is too early
        if not dry_run:
            _train(stage, records, device_name(device), data, minutes)
        _report(stage, records)


def _evidence(store: Store) -> Evidence:
    return Evidence(readable_records(store), Setting())


def _runs(stage: str, evidence: Evidence) -> list[Run]:
    """What the stage needs, as far as it is known by now."""
    if stage == "choose":
        drawn = [run for family in FAMILIES for run in trial_runs(family)]
        return drawn + (choose.final_runs(evidence) or [])
    chosen = choose.chosen(evidence)
    if chosen is None:
        raise ValueError(
            f"{stage} is for what was chosen, and choosing is not complete. "
            f"{tables.progress(evidence)} Continue it with `lohe contest choose`."
        )
    if stage == "controls":
        first = confirm_runs(chosen.ours, chosen.best)
        if left := len(choose.missing(evidence, first)):
            raise ValueError(
                f"controls are scored on test after the confirmation, which lacks {left} of "
                f"{len(first)} models. Continue it with `lohe contest confirm`."
            )
    return LATER[stage](chosen.ours, chosen.best)


def _train(stage: str, store: Store, device: str, root: Path | None, minutes: float | None) -> None:
    """Pack after pack until nothing is missing, or the next may end too late."""

    @cache
    def load(task: Task) -> Data:
        return task.load(root)

    started, expected = time.monotonic(), 0.0
    tried: set[tuple[Run, tuple[int, ...]]] = set()  # what others are training is not tried twice
    with terminal.bars() as shown:
        # when the trials are complete, the finals are missing
        while todo := [p for p in _missing(stage, store) if (p.run, (*p.seeds,)) not in tried]:
            for pack in todo:
                spent, guess = time.monotonic() - started, seconds(pack.run, len(pack.seeds))
                pace = spent / expected if expected else 1.0  # of this device, by what it has done
                if minutes is not None and spent + pace * guess > 60 * minutes:
                    return
                runs = [replace(pack.run, seed=seed) for seed in pack.seeds]
                how = {"device": device, "size": SIZE, "load": load, "listen": shown.training}
                for _ in complete(runs, store, **how):
                    expected += guess
                tried.add((pack.run, (*pack.seeds,)))


def _missing(stage: str, store: Store) -> list[Pack]:
    return missing(_runs(stage, _evidence(store)), store, SIZE)


def _report(stage: str, store: Store) -> None:
    """What is there, what remains, and how long it may take on the protocol's GPU."""
    runs, todo = _runs(stage, _evidence(store)), _missing(stage, store)
    waiting = sum(len(pack.seeds) for pack in todo)
    typer.echo(f"{stage}: {len(runs)} models, {len(runs) - waiting} recorded, {waiting} to train")
    for pack in todo:
        about, run = duration(seconds(pack.run, len(pack.seeds))), pack.run
        how = f"learning rate {run.optimizer.lr:g}, dropout {run.model.dropout:g}"
        typer.echo(f"  {pack.name}, {how}, {run.epochs} epochs: about {about}")
    if todo:
        whole = duration(sum(seconds(pack.run, len(pack.seeds)) for pack in todo))
        typer.echo(f"In all about {whole} on an H200")
    if stage == "choose" and choose.final_runs(_evidence(store)) is None:
        typer.echo("The finals follow when the trials are complete.")
    terminal.show(tables.chosen_table(_evidence(store)))
