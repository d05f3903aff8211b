"""`lohe run | show | compare`: train what is missing, and print what the records say."""

import re
import sys
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table as RichTable

from lohe.experiments import PAPER, all_measures, all_runs, chosen, item
from lohe.experiments.evidence import Evidence, seeded
from lohe.experiments.item import Item
from lohe.experiments.measures import Bench, Measure, measure_name, model_runs, take, untaken
from lohe.experiments.recipes import SCALES
from lohe.experiments.records import Record, key
from lohe.experiments.runner import Pack, complete, missing
from lohe.experiments.setting import COMPACT, CORPORA, PAPERS, Corpora, Setting
from lohe.experiments.store import Store
from lohe.experiments.tables import Table, verdict_table
from lohe.experiments.verdicts import judge
from lohe.tasks import data_root, wikitext2
from lohe.train import Run
from lohe.viz.style import drawing, save

ItemName = Annotated[str, typer.Argument(help=f"One of {', '.join(PAPER)}, or all.")]
CorpusName = Annotated[str, typer.Option(help=f"One of auto, {', '.join(CORPORA)}.")]
Scale = Annotated[str, typer.Option(help=f"One of {', '.join(SCALES)}.")]
Root = Annotated[Path, typer.Option("--store", help="Folder of the records.")]
LINE_EVERY_S = 30.0  # of progress, where there is no terminal to draw a bar in


def run_command(
    name: ItemName,
    scale: Scale = "full",
    seeds: Annotated[str, typer.Option(help="Seeds, e.g. 0-49 or 0,3,7. [the item's own]")] = "",
    device: Annotated[str, typer.Option(help="cpu, cuda, or auto.")] = "auto",
    store: Root = Path("results"),
    corpus: CorpusName = "auto",
    pack: Annotated[int, typer.Option(help="Seeds trained at once.", min=1)] = 10,
    data: Annotated[Path | None, typer.Option(help="Data root; else $LOHE_DATA.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would run.")] = False,
) -> None:
    """Train and measure what an item of the paper needs and the store does not have yet.

    Ctrl-C, or worse, loses at most the current epoch: the same command continues.

    \b
    Examples:
      lohe run all --scale smoke
      lohe run table2 --seeds 0-4 --device cpu
      lohe run table4 --device cuda --pack 5 --dry-run
    """
    with _refusals():
        items, records = chosen(name), Store(store)
        setting, where = Setting(scale, _corpora(corpus, data)), _device(device)
        runs = seeded(all_runs(items.values(), setting), _seeds(seeds))
        measures = untaken(all_measures(items.values(), setting), records)
        models = model_runs(measures)
        if dry_run:
            _plan(runs, models, measures, records, pack)
            return
        _train(runs + models, models, records, where, pack, data)
        _measure(measures, Bench(records, where, data))
        _show(items, Evidence(_records(records), setting))


def show_command(
    name: ItemName,
    scale: Scale = "full",
    store: Root = Path("results"),
    corpus: CorpusName = "auto",
    figure: Annotated[Path | None, typer.Option(help="Write the figure to this file.")] = None,
) -> None:
    """Print an item of the paper from the records, without training.

    \b
    Examples:
      lohe show table2
      lohe show figure6 --figure figure6.png
    """
    with _refusals():
        records = _records(Store(store))
        evidence = Evidence(records, _setting(scale, corpus, records))
        _show(chosen(name), evidence)
        if figure:
            _draw(name, figure, evidence)


def compare_command(store: Root = Path("results"), corpus: CorpusName = "auto") -> None:
    """Print every item at full scale, ours beside the published, with verdicts.

    \b
    Examples:
      lohe compare
    """
    with _refusals():
        records = _records(Store(store))
        _show(PAPER, Evidence(records, _setting("full", corpus, records)))


def _corpora(name: str, root: Path | None) -> Corpora:
    """The corpora by name; `auto`: the paper's where WikiText-2's raw release is there."""
    if name == "auto":
        raw = data_root(root) / wikitext2.FOLDERS["raw"]
        return PAPERS if raw.is_dir() else COMPACT
    if name not in CORPORA:
        raise ValueError(f"--corpus takes auto, {', '.join(CORPORA)}; got {name!r}.")
    return CORPORA[name]


def _setting(scale: str, corpus: str, records: list[Record]) -> Setting:
    """The setting to show; `auto`: the corpora of which there are more records."""
    if corpus != "auto":
        return Setting(scale, _corpora(corpus, None))
    keys = {key(record.recipe) for record in records}

    def recorded(corpora: Corpora) -> int:
        setting = Setting(scale, corpora)
        return sum(key(run.recipe()) in keys for run in all_runs(PAPER.values(), setting))

    return Setting(scale, max((COMPACT, PAPERS), key=recorded))


@contextmanager
def _refusals() -> Iterator[None]:
    """What a user can cause, in one line: 2 for what was asked, 1 for the disk, 130 for Ctrl-C."""
    try:
        yield
    except (ValueError, FileNotFoundError) as error:
        raise typer.BadParameter(str(error)) from None
    except OSError as error:
        about = f"{error.filename}: " if error.filename else ""
        typer.echo(f"Error: {about}{error.strerror or error}", err=True)
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        typer.echo("\nStopped. The same command continues from the last epoch.", err=True)
        raise typer.Exit(130) from None


def _records(store: Store) -> list[Record]:
    """All that can be read; the rest is named, and stays as it is."""
    for problem in store.problems():
        typer.echo(f"left alone: {problem}", err=True)
    with warnings.catch_warnings(action="ignore"):  # the same problems again
        return list(store.all())


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
        found += numbers
    if len(set(found)) != len(found):
        raise ValueError(f"--seeds takes each seed once; got {text!r}.")
    return found


def _device(name: str) -> str:
    import torch

    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if not re.fullmatch(r"cpu|cuda(:\d+)?", name):
        raise ValueError(f"--device takes cpu, cuda, cuda:N or auto; got {name!r}.")
    if name != "cpu" and int(name[5:] or 0) >= torch.cuda.device_count():
        raise ValueError(
            f"--device {name} was asked for, but torch sees {torch.cuda.device_count()} CUDA "
            "devices: lohe doctor."
        )
    return name


def _plan(
    runs: list[Run], models: list[Run], measures: list[Measure], store: Store, size: int
) -> None:
    """What is cached, what is not, and what it may take, from what such runs took before."""
    wanted = list(dict.fromkeys(runs + models))
    todo = missing(wanted, store, size, models)
    waiting = sum(len(p.seeds) for p in todo)
    console = Console(highlight=False)
    console.print(
        f"{len(wanted)} runs, {len(wanted) - waiting} cached, {waiting} to train", style="bold"
    )
    for pack in todo:
        took = [r.wall_seconds for r in store.load(pack.run.recipe()).values()]
        guess = f"about {sum(took) / len(took) * len(pack.seeds):.0f} s" if took else "time unknown"
        console.print(f"  {pack.name}: {pack.run.epochs} epochs, {guess}", soft_wrap=True)
    if measures:
        console.print(f"{len(measures)} measurements to take", style="bold")
        for measure in measures:
            console.print(f"  {measure_name(measure)}", soft_wrap=True)


def _measure(measures: list[Measure], bench: Bench) -> None:
    for n, measure in enumerate(measures):
        typer.echo(f"measuring {n + 1}/{len(measures)} {measure_name(measure)}", err=True)
        for _ in take([measure], bench):
            pass


def _show(items: Mapping[str, Item], evidence: Evidence) -> None:
    for one in items.values():
        if one.table:
            _print(one.table(evidence))
        judged = judge(one.lines(evidence))
        if judged and evidence.setting.scale != "smoke":
            _print(verdict_table(one.title, judged))


def _draw(name: str, path: Path, evidence: Evidence) -> None:
    draw = item(name).figure
    if draw is None:
        raise ValueError(f"{name} has no figure: leave --figure out.")
    with drawing():
        save(draw(evidence), path)
    typer.echo(f"wrote {path}", err=True)


def _train(
    runs: list[Run], models: list[Run], store: Store, device: str, size: int, data: Path | None
) -> None:
    shown = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    console, quiet = Console(stderr=True), not sys.stderr.isatty()
    with Progress(*shown, TimeRemainingColumn(), console=console, disable=quiet) as bars:
        ids: dict[str, TaskID] = {}
        said = time.monotonic()

        def listen(what: str, pack: Pack, done: int, of: int) -> None:
            nonlocal said
            if bars.disable:
                if what != "training" or done in (0, of) or time.monotonic() - said > LINE_EVERY_S:
                    typer.echo(f"{what} {done}/{of} {pack.name}", err=True)
                    said = time.monotonic()
                return
            if what.startswith("left to others"):
                console.print(f"{pack.name}: {what}", markup=False)
                return
            if pack.name not in ids:
                ids[pack.name] = bars.add_task(pack.name, total=of)
            bars.update(ids[pack.name], completed=done)

        how = {"device": device, "size": size, "root": data, "listen": listen}
        for _ in complete(runs, store, **how, with_weights=models):
            pass


def _print(table: Table) -> None:
    console = Console(highlight=False)
    # no frame: Table 2 fits in 80 columns
    shown = RichTable(
        title=table.title,
        title_justify="left",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, 0, 0, 1),
    )
    for n, column in enumerate(table.columns):
        shown.add_column(column, justify="right" if n else "left", overflow="fold")
    for row in table.rows:
        shown.add_row(*row)
    console.print(shown)
    for note in table.notes:
        console.print(f"- {note}", soft_wrap=True)
    console.print()
