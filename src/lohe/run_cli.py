"""`lohe run | show | compare`: train what is missing, and print what the records say."""

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer
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

from lohe.experiments import PAPER, item
from lohe.experiments.recipes import SCALES
from lohe.experiments.runner import Pack, complete, missing
from lohe.experiments.store import Store
from lohe.experiments.tables import Table
from lohe.train import Run

ItemName = Annotated[str, typer.Argument(help=f"One of {', '.join(PAPER)}.")]
Scale = Annotated[str, typer.Option(help=f"One of {', '.join(SCALES)}.")]
Root = Annotated[Path, typer.Option("--store", help="Folder of the records.")]


def run_command(
    name: ItemName,
    scale: Scale = "full",
    seeds: Annotated[str, typer.Option(help="Seeds, e.g. 0-49 or 0,3,7. [the item's own]")] = "",
    device: Annotated[str, typer.Option(help="cpu, cuda, or auto.")] = "auto",
    store: Root = Path("results"),
    pack: Annotated[int, typer.Option(help="Seeds trained at once.", min=1)] = 10,
    data: Annotated[Path | None, typer.Option(help="Data root; else $LOHE_DATA.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would run.")] = False,
) -> None:
    """Train what an item of the paper needs and the store does not have yet.

    Ctrl-C, or worse, loses at most the current epoch: the same command continues.

    \b
    Examples:
      lohe run table2 --scale smoke
      lohe run table2 --seeds 0-4 --device cpu
      lohe run table4 --device cuda --pack 5 --dry-run
    """
    try:
        runs = item(name).runs(scale, _seeds(seeds))
        records = Store(store)
        if dry_run:
            _plan(runs, records, pack)
            return
        _train(runs, records, _device(device), pack, data)
        _print(item(name).table(records.all(), scale))
    except (ValueError, FileNotFoundError) as error:
        raise typer.BadParameter(str(error)) from None
    except KeyboardInterrupt:
        typer.echo("\nStopped. The same command continues from the last epoch.", err=True)
        raise typer.Exit(130) from None


def show_command(name: ItemName, scale: Scale = "full", store: Root = Path("results")) -> None:
    """Print an item of the paper from the records, without training.

    \b
    Examples:
      lohe show table2
    """
    try:
        _print(item(name).table(Store(store).all(), scale))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def compare_command(store: Root = Path("results")) -> None:
    """Print every item that has records, ours beside the published.

    \b
    Examples:
      lohe compare
    """
    records = list(Store(store).all())
    for problem in Store(store).problems():
        typer.echo(f"left alone: {problem}", err=True)
    for name in PAPER:
        _print(item(name).table(records, "full"))


def _seeds(text: str) -> list[int] | None:
    """0-4,7 as a list; None where nothing was asked for."""
    if not text:
        return None
    found: list[int] = []
    try:
        for part in text.split(","):
            first, _, last = part.partition("-")
            found += range(int(first), int(last or first) + 1)
    except ValueError:
        raise ValueError(f"--seeds takes numbers and ranges, 0-4,7; got {text!r}.") from None
    if not found or len(set(found)) != len(found):
        raise ValueError(f"--seeds needs seeds, each once; got {text!r}.")
    return found


def _device(name: str) -> str:
    import torch

    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise ValueError("--device cuda was asked for, but torch sees no CUDA device: lohe doctor.")
    if name.split(":")[0] not in ("cpu", "cuda"):
        raise ValueError(f"--device takes cpu, cuda or auto; got {name!r}.")
    return name


def _plan(runs: list[Run], store: Store, size: int) -> None:
    """What is cached, what is not, and what it may take, from what such runs took before."""
    todo = missing(runs, store, size)
    waiting = sum(len(p.seeds) for p in todo)
    console = Console(highlight=False)
    console.print(
        f"{len(runs)} runs, {len(runs) - waiting} cached, {waiting} to train", style="bold"
    )
    for pack in todo:
        took = [r.wall_seconds for r in store.load(pack.run.recipe()).values()]
        guess = f"about {sum(took) / len(took) * len(pack.seeds):.0f} s" if took else "time unknown"
        console.print(f"  {pack.name}: {pack.run.epochs} epochs, {guess}", soft_wrap=True)


def _train(runs: list[Run], store: Store, device: str, size: int, data: Path | None) -> None:
    shown = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    console, quiet = Console(stderr=True), not sys.stderr.isatty()
    with Progress(*shown, TimeRemainingColumn(), console=console, disable=quiet) as bars:
        ids: dict[str, TaskID] = {}

        def listen(what: str, pack: Pack, done: int, of: int) -> None:
            if bars.disable:
                if what != "training" or done in (0, of):
                    typer.echo(f"{what} {done}/{of} {pack.name}", err=True)
                return
            if pack.name not in ids:
                ids[pack.name] = bars.add_task(pack.name, total=of)
            bars.update(ids[pack.name], completed=done)

        for _ in complete(runs, store, device=device, size=size, root=data, listen=listen):
            pass


def _print(table: Table) -> None:
    console = Console(highlight=False)
    shown = RichTable(title=table.title, title_justify="left")
    for n, column in enumerate(table.columns):
        shown.add_column(column, justify="right" if n else "left", overflow="fold")
    for row in table.rows:
        shown.add_row(*row)
    console.print(shown)
    _notes(console, table.notes)


def _notes(console: Console, notes: Iterable[str]) -> None:
    for note in notes:
        console.print(f"- {note}", soft_wrap=True)
    console.print()
