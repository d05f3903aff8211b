"""`lohe run | show | compare`: train what is missing, and print what the records say."""

import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from lohe.cli_common import damaged_keys, device_name, quietly, readable_records, refusals
from lohe.experiments import (
    PAPER,
    all_measures,
    all_runs,
    chosen,
    cpu,
    item,
    provenance,
    report,
    terminal,
)
from lohe.experiments.deadline import Deadline
from lohe.experiments.estimates import Estimates, duration
from lohe.experiments.evidence import Evidence, seeded
from lohe.experiments.measures import (
    Bench,
    Measure,
    measure_name,
    measure_recipe,
    model_runs,
    untaken,
)
from lohe.experiments.report import Section
from lohe.experiments.runner import Logger, Pack, complete, missing
from lohe.experiments.setting import COMPACT, CORPORA, PAPERS, Corpora, Setting
from lohe.experiments.store.records import Record, key
from lohe.experiments.store.store import Store
from lohe.experiments.tables import verdict_table
from lohe.tasks import data_root, wikitext2
from lohe.tasks.sources import find_source
from lohe.train import PRECISIONS, Run, check_precision
from lohe.viz.style import check_format, drawing, save

RESULTS = Path("results")  # where records are, unless told otherwise
MOST_SEEDS = 100_000
SMOKE = Path("results-smoke")  # those of smoke scale, which say nothing; git ignores it
ItemNames = Annotated[
    list[str], typer.Argument(metavar="ITEM", help=f"Of {', '.join(PAPER)}, or all.")
]
NAMES = f"One of auto, {', '.join(CORPORA)}."
CorpusToTrain = Annotated[
    str,
    typer.Option(help=f"{NAMES} auto: paper where the raw WikiText-2 is there, else compact."),
]
CorpusToShow = Annotated[str, typer.Option(help=f"{NAMES} auto: the one with more records.")]
Scale = Annotated[
    str,
    typer.Option(
        help="full: every run of the study. quick: the same runs at two to five seeds, which count "
        "for full as well. smoke: two epochs on a little generated data; nothing is judged."
    ),
]
Precision = Annotated[
    str,
    typer.Option(
        help=f"Of the products in training: {', '.join(PRECISIONS)}. Each has records of its own; "
        "those that we quote are float32."
    ),
]
RootOfScale = Annotated[
    Path | None,
    typer.Option(
        "--store",
        file_okay=False,
        help=f"Folder of the records. [{RESULTS}; of smoke scale {SMOKE}]",
    ),
]


def run_command(
    names: ItemNames,
    scale: Scale = "full",
    seeds: Annotated[str, typer.Option(help="Seeds, e.g. 0-49 or 0,3,7. [the item's own]")] = "",
    device: Annotated[str, typer.Option(help="cpu, cuda, or auto.")] = "auto",
    store: RootOfScale = None,
    corpus: CorpusToTrain = "auto",
    precision: Precision = "float32",
    pack: Annotated[int, typer.Option(help="Seeds trained at once.", min=1)] = 10,
    data: Annotated[Path | None, typer.Option(help="Data root; else $LOHE_DATA.")] = None,
    minutes: Annotated[
        float | None, typer.Option(help="Begin nothing that may end after so many.", min=0)
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would run.")] = False,
    tensorboard: Annotated[
        Path | None, typer.Option(help="Folder for TensorBoard's curves, if it is installed.")
    ] = None,
) -> None:
    """Train and measure what items of the paper need and the store does not have yet.

    Ctrl-C, or worse, loses the current epoch and on a GPU at most half a minute more: the same
    command continues.

    \b
    Examples:
      lohe run all --scale smoke
      lohe run table2 --seeds 0-4 --device cpu
      lohe run table4 figure6 --device cuda --pack 5 --dry-run
      lohe run table4 --device cuda --pack 5 --minutes 55
      lohe run table4 --device cuda --pack 5 --precision tf32
    """
    with refusals():
        items, records = chosen(names), Store(_root(store, scale))
        setting = Setting(scale, _corpora(corpus, data), precision)
        where = device_name(device)
        check_precision(precision, where)
        wanted, damaged = _seeds(seeds), damaged_keys(records)
        asked = seeded(all_runs(items.values(), setting), wanted)
        runs = [run for run in asked if key(run.recipe()) not in damaged]
        every = all_measures(items.values(), setting)
        whole = [m for m in every if key(measure_recipe(m)) not in damaged]
        measures = [
            m
            for m in untaken(whole, records)
            if wanted is None or m.run is None or m.run.seed in wanted
        ]
        models = [run for run in model_runs(measures) if key(run.recipe()) not in damaged]
        said = ""
        if dry_run:
            _plan(runs, models, measures, records, pack, where)
        else:
            if where == "cpu":
                cpu.get_ready()
            deadline = Deadline(minutes, _guess(records, where))
            with _logger(tensorboard) as log:
                held = _train(runs + models, models, records, where, pack, data, log, deadline)
            with refusals("The same command continues with this measurement."):
                terminal.take_aloud(measures, Bench(records, where, data), deadline)
            evidence = Evidence(quietly(records), setting)
            _show(report.sections(items, evidence), evidence)
            late = deadline.late or deadline.over  # what is left is ours, for another time
            left = {"seeds": held, "measurements": 0 if late else len(untaken(measures, records))}
            if said := " and ".join(f"{n} {what}" for what, n in left.items() if n):
                typer.echo(
                    f"{said} are left to others, who have not recorded them yet: the same command "
                    "continues.",
                    err=True,
                )
        if len(runs) < len(asked) or len(whole) < len(every) or said:
            raise typer.Exit(1)  # not all that was asked for


def show_command(
    names: ItemNames,
    scale: Scale = "full",
    store: RootOfScale = None,
    corpus: CorpusToShow = "auto",
    precision: Precision = "float32",
    figure: Annotated[
        Path | None, typer.Option(help="Write the figure of the item to this file.")
    ] = None,
) -> None:
    """Print items of the paper from the records, without training.

    \b
    Examples:
      lohe show table2
      lohe show table4 figure6
      lohe show figure6 --figure figure6.png
    """
    with refusals():
        items = chosen(names)
        if figure:
            check_format(figure)
            if len(items) > 1:
                raise ValueError(f"--figure {figure} takes one item, got {len(items)}.")
            if item(names[0]).figure is None:
                raise ValueError(f"{names[0]} has no figure: leave --figure out.")
        evidence = _evidence(store, scale, corpus, precision)
        _show(report.sections(items, evidence), evidence)
        if figure:
            _draw(names[0], figure, evidence)


def compare_command(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="ITEM", help="Only these items.")
    ] = None,
    brief: Annotated[bool, typer.Option("--brief", help="Only the summary.")] = False,
    html: Annotated[
        Path | None, typer.Option(file_okay=False, help="Write a page with figures here.")
    ] = None,
    scale: Scale = "full",
    store: RootOfScale = None,
    corpus: CorpusToShow = "auto",
    precision: Precision = "float32",
) -> None:
    """Our numbers beside the paper's, with verdicts: a summary, the headlines, every item.

    \b
    Examples:
      lohe compare
      lohe compare --brief
      lohe compare table2 figure6
      lohe compare --html report
    """
    with refusals():
        asked = chosen(names or ["all"])
        evidence = _evidence(store, scale, corpus, precision)
        if html:
            from lohe.experiments import page

            typer.echo(f"wrote {page.write(html, asked, evidence)}", err=True)
            return
        found = report.sections(asked, evidence)
        Console(highlight=False).print(f"{report.overall(found)}\n")
        for note in report.mixed(report.used(found, evidence)):
            typer.echo(f"{note}\n")
        for table in (report.values(found), report.claims(found)):
            terminal.show(table)
        if headlines := report.headlines(found):
            terminal.show_headlines(headlines)
        terminal.show(report.times(found, evidence))
        if not brief:
            _show(found, evidence)


def _root(store: Path | None, scale: str) -> Path:
    """The folder that was asked for; else the scale's own."""
    return store or (SMOKE if scale == "smoke" else RESULTS)


def _evidence(store: Path | None, scale: str, corpus: str, precision: str) -> Evidence:
    """What to show; the default folder may be missing still, one that was asked for may not."""
    root = _root(store, scale)
    records = readable_records(Store(root))
    evidence = Evidence(records, _setting(scale, corpus, precision, records))
    if store and not store.is_dir():
        raise ValueError(f"--store {store} is no folder: lohe run --store {store} makes it.")
    if not records:
        typer.echo(
            f"No records in {root.absolute()}: what follows is what needs none. Those of the full "
            "runs are in results/ of a clone of the repository; --store names another folder.",
            err=True,
        )
    return evidence


def _corpora(name: str, root: Path | None) -> Corpora:
    """The corpora by name; `auto`: the paper's where WikiText-2's raw release is there."""
    if name == "auto":
        raw = find_source(wikitext2.SOURCES["raw"])
        return COMPACT if raw.missing(data_root(root)) else PAPERS
    if name not in CORPORA:
        raise ValueError(f"--corpus takes auto, {', '.join(CORPORA)}; got {name!r}.")
    return CORPORA[name]


def _setting(scale: str, corpus: str, precision: str, records: list[Record]) -> Setting:
    """The setting to show; `auto`: the corpora of which there are more records."""
    if corpus != "auto":
        return Setting(scale, _corpora(corpus, None), precision)
    keys = {key(record.recipe) for record in records}

    def recorded(corpora: Corpora) -> int:
        runs = all_runs(PAPER.values(), Setting(scale, corpora, precision))
        recipes = {replace(run, seed=0) for run in runs}
        return sum(key(run.recipe()) in keys for run in recipes)

    return Setting(scale, max((COMPACT, PAPERS), key=recorded), precision)


def _seeds(text: str) -> list[int] | None:
    """0-4,7 as a list; None where nothing was asked for."""
    if not text:
        return None
    found: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part.strip())
        numbers = range(int(match[1]), int(match[2] or match[1]) + 1) if match else ()
        if not numbers:
            raise ValueError(f"--seeds takes numbers and ranges, 0-4,7; got {text!r}.")
        if numbers[-1] >= 2**63 or len(found) + numbers[-1] - numbers[0] >= MOST_SEEDS:
            raise ValueError(
                f"--seeds takes seeds below 2^63, and at most {MOST_SEEDS:,} of them; got {text!r}."
            )
        found += numbers
    if len(set(found)) != len(found):
        raise ValueError(f"--seeds takes each seed once; got {text!r}.")
    return found


def _plan(
    runs: list[Run],
    models: list[Run],
    measures: list[Measure],
    store: Store,
    size: int,
    device: str,
) -> None:
    """What is cached, what is not, and what it may take, from what such runs took before."""
    wanted = list(dict.fromkeys(runs + models))
    todo = missing(wanted, store, size, models)
    waiting = sum(len(p.seeds) for p in todo)
    (estimates, by), console = _estimates(store, device), Console(highlight=False, markup=False)
    console.print(
        f"{len(wanted)} runs, {len(wanted) - waiting} cached, {waiting} to train", style="bold"
    )
    if by != store.root:
        console.print(f"{store.root} has no times on {device}: by those of {by}")
    known, unknown = [], 0
    for pack in todo:
        guess = estimates.pack(pack)
        known += [guess[0]] if guess else []
        unknown += 0 if guess else len(pack.seeds)
        how = "" if guess is None or guess[1] else ", by a similar run"
        said = f"{_about(guess[0] if guess else None)}{how}"
        console.print(f"  {pack.name}: {pack.run.epochs} epochs, {said}", soft_wrap=True)
    if measures:
        console.print(f"{len(measures)} measurements to take", style="bold")
    for measure in measures:
        seconds = estimates.measure(measure)
        known += [] if seconds is None else [seconds]
        unknown += seconds is None
        console.print(f"  {measure_name(measure)}: {_about(seconds)}", soft_wrap=True)
    if len(todo) + len(measures) > 1:
        things = "runs or measurements" if measures else "runs"
        at_least = "at least" if unknown else "about"
        total = [f"{at_least} {duration(sum(known))} on {device}"] if known else []
        total += [f"{things} of unknown time: {unknown}"] if unknown else []
        console.print(f"In all {', '.join(total)}")


def _estimates(store: Store, device: str) -> tuple[Estimates, Path]:
    """By the times of the store; where it has none on this kind of device, by those of `results`;
    and whose they are."""
    own = Estimates(quietly(store), device)
    if own or not RESULTS.is_dir():
        return own, store.root
    others = Estimates(quietly(Store(RESULTS)), device)
    return (others, RESULTS) if others else (own, store.root)


def _guess(store: Store, device: str) -> Callable[[Pack], float | None]:
    """Seconds that a pack may take, by what such packs took before."""
    estimates, _ = _estimates(store, device)
    return lambda pack: (estimates.pack(pack) or (None,))[0]


def _about(seconds: float | None) -> str:
    return "time unknown" if seconds is None else f"about {duration(seconds)}"


def _show(found: Sequence[Section], evidence: Evidence) -> None:
    for section in found:
        one, judged = section.item, section.judged
        mixed = report.mixed(report.used([section], evidence))
        if one.table:
            table = one.table(evidence)
            terminal.show(replace(table, notes=[*table.notes, *mixed]))
        if judged and evidence.setting.scale != "smoke":
            about = provenance.notes(one.measures(evidence.setting), evidence)
            about += [] if one.table else mixed
            terminal.show(verdict_table(one.title, judged, about))


def _draw(name: str, path: Path, evidence: Evidence) -> None:
    draw = item(name).figure
    assert draw is not None
    with drawing():
        save(draw(evidence), path)
    typer.echo(f"wrote {path}", err=True)


def _logger(folder: Path | None) -> AbstractContextManager[Logger]:
    """Curves for TensorBoard where they are asked for."""
    if folder is None:
        return nullcontext(lambda pack, epoch, metrics: None)
    from lohe.experiments.tensorboard import Scalars

    return closing(Scalars(folder))


def _train(
    runs: list[Run],
    models: list[Run],
    store: Store,
    device: str,
    size: int,
    data: Path | None,
    log: Logger,
    deadline: Deadline,
) -> int:
    """Train what is missing; how many seeds others hold, who have not recorded them by the end."""
    with terminal.bars() as shown:
        shown.expect(missing(runs, store, size, models))
        for pack in complete(
            runs,
            store,
            device=device,
            size=size,
            root=data,
            progress=shown.loading,
            listen=shown.training,
            with_weights=models,
            log=log,
            allowed=deadline.allows,
        ):
            shown.finished(pack)
            deadline.finished(pack)
    if deadline.late:
        typer.echo(
            f"{deadline.late} packs may not end in {deadline.minutes:g} minutes: not begun. "
            "The same command continues.",
            err=True,
        )
    left = {run for p in missing(runs, store, size, models) for run in p.runs}
    return len(shown.told & left)
