"""`lohe data list | import | fetch | verify`: the corpora, from the command line."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as Bars
from rich.table import Table

from lohe.tasks.archives import import_corpus
from lohe.tasks.fetch import fetch_corpus
from lohe.tasks.progress import Progress
from lohe.tasks.root import data_root
from lohe.tasks.sources import SOURCES
from lohe.tasks.verify import Check, Corpus, list_corpora, unofficial, verify_corpus

app = typer.Typer(no_args_is_help=True, help="List, import, fetch and verify the corpora.")

Root = Annotated[
    Path | None,
    typer.Option("--root", help="Data root; else $LOHE_DATA, else the platform's cache folder."),
]
Name = Annotated[str, typer.Argument(help=f"One of {', '.join(SOURCES)}.")]


@app.command("list")
def list_(root: Root = None) -> None:
    """Shows the corpora, what of them is there, and where."""
    console = Console()
    table = Table("corpus", "state", "what it is")
    table.add_row("sva", "generated", "Subject-verb agreement: generated, nothing to fetch")
    for corpus in list_corpora(root):
        table.add_row(corpus.source.name, _state(corpus), corpus.source.about)
    console.print(f"data root: {data_root(root)}", soft_wrap=True)
    console.print(table)


@app.command("import")
def import_(
    corpus: Name,
    path: Annotated[Path, typer.Argument(help="A folder, .zip, .tar.gz or file that you have.")],
    root: Root = None,
) -> None:
    """Brings a copy that you have into the data root."""
    with _plain_errors(), _reporting(bytes_=True) as progress:
        items = import_corpus(corpus, path, root, progress)
    typer.echo(f"{corpus}: {len(items)} items in {items[0].parent}")
    for check in unofficial(corpus, root):
        typer.echo(f"{corpus}  {check.item}  sha256 {check.found}{_origin(check)}")


@app.command()
def fetch(corpus: Name, root: Root = None) -> None:
    """Downloads a corpus from its official address; an interrupted download goes on."""
    with _plain_errors(), _reporting(bytes_=True) as progress:
        items = fetch_corpus(corpus, root, progress)
    typer.echo(f"{corpus}: {len(items)} items in {items[0].parent}")


@app.command()
def verify(
    corpus: Annotated[
        str | None, typer.Argument(help="All that are there, if none is named.")
    ] = None,
    root: Root = None,
    record: Annotated[
        bool, typer.Option("--record", help="Accept what is there now as what it should be.")
    ] = False,
) -> None:
    """Compares checksums with the pinned and the recorded ones; exit status 1 if one differs."""
    there = [c.source.name for c in list_corpora(root) if c.state != "absent"]
    names = [corpus] if corpus is not None else there
    with _plain_errors(), _reporting(bytes_=False) as progress:
        checks = {
            name: verify_corpus(name, root, record=record, progress=progress) for name in names
        }
    for name, found in checks.items():
        for check in found:
            typer.echo(f"{name}  {check.item}  {_verdict(check)}")
    if not checks:
        typer.echo(f"Nothing to verify: {data_root(root)} holds no corpus.")
    if any(check.state in ("changed", "missing") for found in checks.values() for check in found):
        raise typer.Exit(1)


def _state(corpus: Corpus) -> str:
    lacking = f": no {', '.join(corpus.missing)}" if corpus.state == "incomplete" else ""
    return corpus.state + lacking


def _verdict(check: Check) -> str:
    return {
        "changed": f"CHANGED: sha256 {check.found}, expected {check.expected}",
        "ok": f"ok {check.found}",
        "new": f"not pinned, not recorded: sha256 {check.found} (--record keeps it)",
        "missing": "MISSING",
    }[check.state] + _origin(check)


def _origin(check: Check) -> str:
    """A remark on a text of one's own in the release's place, which is allowed."""
    return f"; not the official release, which has {check.official}" if check.official else ""


@contextmanager
def _plain_errors() -> Iterator[None]:
    """What the user can mend is a message, not a traceback."""
    try:
        yield
    except (ValueError, OSError) as error:
        typer.echo(f"Error: {error}", err=True)
        raise typer.Exit(1) from None


@contextmanager
def _reporting(*, bytes_: bool) -> Iterator[Progress]:
    """Bars on a terminal; one line for each thing begun elsewhere."""
    console = Console(stderr=True)
    amount = DownloadColumn() if bytes_ else MofNCompleteColumn()
    columns = (TextColumn("{task.description}"), BarColumn(), amount, TimeRemainingColumn())
    lines = not console.is_terminal or console.is_dumb_terminal  # which draws bars at the end only
    with Bars(*columns, console=console, disable=lines) as bars:
        begun = {}

        def report(what: str, done: int, of: int | None) -> None:
            if what not in begun:
                begun[what] = bars.add_task(what, total=of)
                if lines:
                    console.print(f"{what} ...")
            bars.update(begun[what], completed=done, total=of)

        yield report
