"""What the commands share: errors in one line, devices by name, records that can be read."""

import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from lohe.experiments.store.records import Record
from lohe.experiments.store.store import Store

Root = Annotated[Path, typer.Option("--store", file_okay=False, help="Folder of the records.")]


@contextmanager
def refusals(stopped: str = "The same command continues.") -> Iterator[None]:
    """What a user can cause, in one line: 2 for what was asked, 1 for what is not there and for the
    disk, 130 for Ctrl-C."""
    try:
        yield
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    except ImportError as error:
        typer.echo(f"Error: {error}", err=True)
        raise typer.Exit(1) from None
    except OSError as error:
        about = f"{error.filename}: " if error.filename else ""
        typer.echo(f"Error: {about}{error.strerror or error}", err=True)
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        typer.echo(f"\nStopped. {stopped}", err=True)
        raise typer.Exit(130) from None


def console() -> Console:
    """For stdout: in a pipe nothing is wrapped, since a program or grep reads it."""
    # stdout is None where it was closed (>&-); markup off: "lohe[ode]" is no style
    width = None if sys.stdout and sys.stdout.isatty() else 200
    return Console(width=width, markup=False, highlight=False, emoji=False)


def device_name(name: str) -> str:
    import torch

    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if not re.fullmatch(r"cpu|cuda(:\d+)?", name):
        raise ValueError(f"--device takes cpu, cuda, cuda:N or auto; got {name!r}.")
    if name != "cpu" and int(name[5:] or 0) >= torch.cuda.device_count():
        raise ValueError(
            f"--device {name} was asked for, but torch sees {torch.cuda.device_count()} CUDA "
            "devices: see `lohe doctor`."
        )
    return name


def readable_records(store: Store) -> list[Record]:
    """All that can be read; the rest is named, and stays as it is."""
    damaged_keys(store)
    return quietly(store)


def damaged_keys(store: Store) -> set[str]:
    """Names the files that cannot be read; the keys of their recipes, which are left alone too."""
    problems = store.problems()
    for problem in problems:
        typer.echo(f"left alone: {problem}", err=True)
    return {problem.path.stem.rpartition("-")[2] for problem in problems}


def quietly(store: Store) -> list[Record]:
    """The readable records, where the others have been named before."""
    with warnings.catch_warnings(action="ignore"):
        return list(store.all())
