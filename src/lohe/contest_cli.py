"""`lohe contest`: oscillators against every softmax, by a protocol committed before the runs."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Annotated

import typer

from lohe.cli_common import Root, damaged_keys, device_name, quietly, refusals
from lohe.experiments import cpu, terminal, weights
from lohe.experiments.contest import choose, measured, page, tables
from lohe.experiments.contest.later import LATER_STAGES, later_runs, more_follow
from lohe.experiments.contest.plan import seconds, seconds_in_all
from lohe.experiments.deadline import Deadline
from lohe.experiments.estimates import Estimates, duration
from lohe.experiments.evidence import Evidence
from lohe.experiments.measures import Bench, Measure, measure_name, model_runs, untaken
from lohe.experiments.runner import Pack, complete, missing
from lohe.experiments.setting import Setting
from lohe.experiments.store.store import Store
from lohe.tasks import Data, Task, load_aloud
from lohe.train import Run

WORK = ("choose", *LATER_STAGES, "measure")  # in the order in which `all` does it
STAGES = (*WORK, "all", "page")
# in which order the test articles are opened
AFTER = {
    "controls": "confirm",
    "published": "confirm",
    "scale": "confirm",
    "rotary": "controls",
}
SIZE = 10  # seeds trained at once
FOLLOWING = "More models follow when those before them are there."
POLL_S = 5.0  # between looks at what others have finished


def contest_command(
    stage: Annotated[str, typer.Argument(help=f"One of {', '.join(STAGES)}.")],
    store: Root = Path("results"),
    device: Annotated[str, typer.Option(help="cpu, cuda, or auto.")] = "auto",
    data: Annotated[Path | None, typer.Option(help="Data root; else $LOHE_DATA.")] = None,
    minutes: Annotated[
        float | None, typer.Option(help="Start nothing that may end after so many.", min=0)
    ] = None,
    out: Annotated[Path, typer.Option(help="The page; figures and protocol go beside it.")] = Path(
        "docs/beyond_softmax.md"
    ),
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would run.")] = False,
) -> None:
    """Does oscillator attention beat softmax at language modelling, on the sphere?

    Trains what a stage of the protocol needs and the store does not have yet, and says what
    remains. The same command continues; records are what counts. Started several times, on one
    device or many, the processes share the work.

    \b
    choose     trials, then each family's learning rate; no test
    confirm    ours and every softmax, test scored once; after choose
    controls   the chosen oscillator with one part changed; after confirm
    law        perplexity against d_osc; after choose
    length     128 and 256 inputs, and 48 to compare with; after choose
    epochs     30 epochs of ours and the best softmax; after choose
    rotary     ours with rotary positions in its couplings; after controls
    published  softmax and oscillator as published, 30 epochs; after confirm
    scale      all of them at six layers, d_model 384; after confirm
    measure    rank, gain, imperfect devices, longer windows; after confirm
    all        these in order; models are measured once they are confirmed
    page       write the page, its figures and the protocol from the records

    \b
    Examples:
      lohe contest choose --dry-run
      lohe contest choose --device cuda --minutes 9
      lohe contest all --device cuda
      lohe contest page --out docs/beyond_softmax.md
    """
    with refusals():
        records = Store(store)
        if stage not in STAGES:
            raise ValueError(f"{stage!r} is no stage. Choose from {', '.join(STAGES)}.")
        damaged = damaged_keys(records)  # names what cannot be read, once
        if stage == "page":
            if damaged:
                raise ValueError(
                    f"The page would be made without {len(damaged)} of the files in {store}, and "
                    "not say so. Bring them back (git checkout), or take them away."
                )
            if not store.is_dir():
                raise ValueError(f"--store {store} is no folder: there is nothing to make it of.")
            for path in page.write(out, _evidence(records)):
                typer.echo(f"wrote {path}", err=True)
            return
        if stage != "all":
            _runs(stage, _evidence(records))  # refuses what is too early
        failed: list[Measure] = []
        if not dry_run:
            where = device_name(device)
            deadline = Deadline(minutes, _guesses(records, where))
            worker = Worker(records, where, data, deadline, failed=failed)
            if worker.device == "cpu":
                cpu.get_ready()
            if stage == "all":
                _work_all(worker)
            else:
                _work(stage, worker)
        evidence = _evidence(records)
        for one in WORK if stage == "all" else (stage,):
            _report(one, records, evidence)
        terminal.show(tables.chosen_table(evidence))
        for measure in failed:
            typer.echo(f"Not measured, it failed as said above: {measure_name(measure)}", err=True)
        if failed:
            raise typer.Exit(1)


def _evidence(store: Store) -> Evidence:
    return Evidence(quietly(store), Setting())


class TooEarly(ValueError):
    """A stage before what it follows from is complete."""


@dataclass(frozen=True)
class Worker:
    """Where this process trains and measures, and until when."""

    store: Store
    device: str
    root: Path | None
    deadline: Deadline
    told: set[Run] = field(default_factory=set)  # which, as was said, others train
    failed: list[Measure] = field(default_factory=list)


def _work_all(worker: Worker) -> None:
    """Every stage that is open, and again while others train what the next one waits for."""
    while True:
        held = False  # by others; what is too late for this process opens nothing
        for stage in WORK:
            try:
                _runs(stage, _evidence(worker.store))
            except TooEarly:
                continue
            late = _work(stage, worker)
            left = _missing(stage, worker.store, _evidence(worker.store))
            held = held or any(not late.issuperset(pack.runs) for pack in left)
            if stage in ("confirm", "controls"):  # while weights are there: the machine may be lent
                _measure(worker)
        if not held or worker.deadline.over:
            return
        time.sleep(POLL_S)


def _work(stage: str, worker: Worker) -> set[Run]:
    """What the stage needs, as far as nobody else does it and the time allows; which runs it does
    not allow."""
    late = _train(stage, worker)
    if stage == "measure":
        _measure(worker)
    return late


def _runs(stage: str, evidence: Evidence) -> list[Run]:
    """What the stage needs, as far as it is known by now."""
    if stage == "choose":
        return choose.known_runs(evidence)
    chosen = choose.chosen(evidence)
    if chosen is None:
        raise TooEarly(
            f"{stage} is for what was chosen, and choosing is not complete. "
            f"{tables.progress(evidence)} Continue it with `lohe contest choose`."
        )
    if before := AFTER.get(stage):
        first = later_runs(before, evidence, chosen)
        if left := len(choose.missing(evidence, first)):
            raise TooEarly(
                f"{stage} is scored on test after {before}, which lacks {left} of {len(first)} "
                f"models. Continue it with `lohe contest {before}`."
            )
    if stage == "measure":
        there = [run for run in measured.kept_runs(chosen) if evidence.recorded(run)]
        if not there:
            raise TooEarly(
                "measure looks at models of the confirmation and the controls, and none is "
                "recorded. Continue with `lohe contest confirm`."
            )
        return there
    return later_runs(stage, evidence, chosen)


def _train(stage: str, worker: Worker) -> set[Run]:
    """Pack after pack until nothing is missing that nobody trains; which runs would end too late.

    What is trained again for its weights alone does not see the test articles, which its record has
    been scored on.
    """
    store, deadline, late = worker.store, worker.deadline, set[Run]()

    def allowed(pack: Pack) -> bool:
        in_time = deadline.allows(pack)
        late.update(() if in_time else pack.runs)
        return in_time

    with terminal.bars(worker.told) as shown:

        @cache
        def load(task: Task) -> Data:
            data = load_aloud(task, worker.root, shown.loading)
            if stage != "measure":
                return data
            return replace(data, splits={k: x for k, x in data.splits.items() if k != "test"})

        how = {"device": worker.device, "size": SIZE, "load": load, "allowed": allowed}
        while todo := (
            _missing(stage, store, evidence := _evidence(store))
            # again: somebody may have finished, and opened more, since the evidence was read
            or _missing(stage, store, evidence := _evidence(store))
        ):
            runs = [run for pack in todo for run in pack.runs]
            taken, keep = 0, _kept(stage, evidence)
            late.clear()
            shown.expect(todo)
            # what others hold is left to them, and nothing comes back
            for pack in complete(runs, store, listen=shown.training, with_weights=keep, **how):
                shown.finished(pack)
                deadline.finished(pack)
                taken += 1
            if not taken:  # others train what is left
                if late or deadline.over or not _more_follow(stage, evidence):
                    break
                time.sleep(POLL_S)
    return late


def _missing(stage: str, store: Store, evidence: Evidence) -> list[Pack]:
    """Without a record; for measurements that are not taken, without weights."""
    runs, keep = _runs(stage, evidence), []
    if stage == "measure":
        wanted = model_runs(untaken(_measures(evidence), store))
        runs = keep = [run for run in runs if run in wanted]
    return missing(runs, store, SIZE, keep)


def _guesses(store: Store, device: str) -> Callable[[Pack], float]:
    """Seconds that a pack may take: on a CPU by what such packs took on one, if any is there."""
    if device != "cpu":
        return _guess
    there = Estimates(quietly(store), device)
    return lambda pack: (there.pack(pack) or (_guess(pack),))[0]


def _guess(pack: Pack) -> float:
    """Seconds that a pack may take, by the speed that the protocol states for its GPU."""
    return seconds(pack.run, len(pack.seeds))


def _more_follow(stage: str, evidence: Evidence) -> bool:
    """Whether what is trained now makes further runs of the stage known."""
    chosen = choose.chosen(evidence)
    if chosen is None:
        return stage == "choose"
    return more_follow(stage, evidence, chosen)


def _kept(stage: str, evidence: Evidence) -> list[Run]:
    """Runs whose weights are kept as they are trained: something will be measured on them."""
    chosen = None if stage == "choose" else choose.chosen(evidence)
    return measured.kept_runs(chosen) if chosen else []


def _measures(evidence: Evidence) -> list[Measure]:
    chosen = choose.chosen(evidence)
    return measured.measures(chosen) if chosen else []


def _measure(worker: Worker) -> None:
    """Take what is not taken yet, as far as there are weights and time. One that fails costs the
    others nothing, and is not tried again."""
    store, failed = worker.store, worker.failed
    todo = untaken(_measures(_evidence(store)), store)
    there = [m for m in todo if m.run and weights.kept(store, m.run) and m not in failed]
    bench = Bench(store, worker.device, worker.root)
    terminal.take_aloud(there, bench, worker.deadline, failed.append)


def _report(stage: str, store: Store, evidence: Evidence) -> None:
    """What is there, what remains, and how long it may take."""
    try:
        runs, todo = _runs(stage, evidence), _missing(stage, store, evidence)
    except TooEarly:
        typer.echo(f"{stage}: not open yet")
        return
    waiting = sum(len(pack.seeds) for pack in todo)
    typer.echo(f"{stage}: {len(runs)} models, {len(runs) - waiting} recorded, {waiting} to train")
    for pack in todo:
        run = pack.run
        how = f"learning rate {run.optimizer.lr:g}, dropout {run.model.dropout:g}"
        typer.echo(f"  {pack.name}, {how}, {run.epochs} epochs: about {duration(_guess(pack))}")
    if todo:
        whole = duration(seconds_in_all((pack.run, len(pack.seeds)) for pack in todo))
        typer.echo(f"  {stage} takes about {whole} on an H200")
    if _more_follow(stage, evidence):
        typer.echo(FOLLOWING)
    if stage == "measure":
        wanted = _measures(evidence)
        left = len(untaken(wanted, store))
        typer.echo(f"{len(wanted)} measurements, {len(wanted) - left} taken, {left} to take")
