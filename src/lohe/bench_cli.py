"""`lohe bench`: time it here, against the best that PyTorch has."""

import datetime
import math
import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from lohe.bench import report, rows
from lohe.bench.contest import Setup
from lohe.bench.machine import machine
from lohe.bench.rows import Row
from lohe.bench.sets import MECHANISMS, SETS, Choice
from lohe.cli_common import console, refusals
from lohe.viz.style import check_format, drawing, save

DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}
BACKENDS = ("auto", "triton", "chunked")


def bench_command(
    set_: Annotated[str, typer.Option("--set", help=f"One of {', '.join(SETS)}.")] = "quick",
    backend: Annotated[str, typer.Option(help=f"Ours: {', '.join(BACKENDS)}.")] = "auto",
    dtype: Annotated[
        str, typer.Option(help=f"One of {', '.join(DTYPES)}. [bfloat16 on CUDA, else float32]")
    ] = "",
    tokens: Annotated[
        str, typer.Option(help="Sequence lengths, e.g. 1024,4096. [the set's own]")
    ] = "",
    batch: Annotated[int | None, typer.Option(min=1, help="Sequences. [the set's own]")] = None,
    heads: Annotated[int | None, typer.Option(min=1, help="Of attention. [the set's own]")] = None,
    width: Annotated[int | None, typer.Option(min=1, help="Of a head. [the set's own]")] = None,
    mechanisms: Annotated[
        list[str] | None,
        typer.Option(
            "--mechanism", help=f"One of {', '.join(MECHANISMS)}; again for more. [the set's own]"
        ),
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, or auto.")] = "auto",
    seconds: Annotated[float, typer.Option(help="For each measurement, about.")] = 0.1,
    flex: Annotated[
        bool,
        typer.Option(
            "--flex/--no-flex",
            help="With FlexAttention (it compiles first), in table, heads128 and decode.",
        ),
    ] = True,
    seed: Annotated[int | None, typer.Option(help="Of the inputs. [a fresh one]")] = None,
    json: Annotated[Path | None, typer.Option(help="Write every result here, one a line.")] = None,
    figure: Annotated[Path | None, typer.Option(help="Draw ratio against T here.")] = None,
    read: Annotated[
        Path | None, typer.Option("--read", help="Show results of --json; time nothing.")
    ] = None,
) -> None:
    """Oscillator attention against the best softmax attention of PyTorch, in one run.

    A ratio is the time of the fastest SDPA kernel over ours: above 1, ours is faster. Every
    kernel of ours first has to agree with the float64 reference, in output and gradients; if
    one does not, it is not timed, and the exit code is 1.

    \b
    Sets: quick     table on CUDA; on a CPU a minute of small cases
          table     16k tokens in all, T = 1k to 16k, 32 heads x 64
          heads128  the same with 16 heads x 128
          decode    a new token after 32k, for 1, 8 and 64 sequences
          long      T = 128k, forward and backward
          step      training a 12-layer language model (8,192 words), T = 4096
          all       all of them

    \b
    Examples:
      lohe bench
      lohe bench --set table --json h200.jsonl --figure h200.png
      lohe bench --set table --mechanism relu --tokens 4096 --no-flex
      lohe bench --set table --tokens 4096 --batch 2 --heads 12 --width 64
      lohe bench --read h200.jsonl --figure h200.png
    """
    kept = f"and is in {json}" if json else "--json FILE would have kept it"
    with refusals(f"What was printed was measured, {kept}."):
        if figure is not None:
            check_format(figure)
        if read is not None:
            header, found = rows.read(read)
        else:
            header, setup = _setup(set_, backend, dtype, device, seconds, seed)
            choice = _choice(tokens, mechanisms or [])
            choice = replace(choice, flex=flex, batch=batch, heads=heads, width=width)
            found = _measure(header, setup, choice, json)
        out = console()
        for table in report.tables(found):
            out.print(table)
        refused = [row for row in found if row.kind == "ours" and row.status != "timed"]
        for row in refused:
            out.print(f"{row.name}, {row.case}: {row.status}. {row.note}")
        if figure is not None:
            with drawing():
                save(report.figure(found, header["gpu"] or header["processor"]), figure)
            typer.echo(f"wrote {figure}", err=True)
    if refused:
        raise typer.Exit(1)


def _setup(
    name: str, backend: str, dtype: str, device: str, seconds: float, seed: int | None
) -> tuple[dict[str, Any], Setup]:
    """What was asked for, in words for the file and in values for the races."""
    if not 0 <= seconds < math.inf:
        raise ValueError(f"seconds={seconds}: give a time from 0 on; the default is 0.1.")
    if seed is not None and not -(2**63) <= seed < 2**64:
        raise ValueError(f"seed={seed}: give one that fits into 64 bits, or none.")
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if device not in ("cpu", "cuda") or (device == "cuda" and not torch.cuda.is_available()):
        raise ValueError(f"device={device!r} is not here. Choose cpu, cuda, or auto.")
    if backend == "triton" and device == "cpu":
        raise ValueError('backend="triton" needs a CUDA device; on a CPU choose auto or chunked.')
    dtype = dtype or ("bfloat16" if device == "cuda" else "float32")
    _known(set=(name, SETS), backend=(backend, BACKENDS), dtype=(dtype, DTYPES))
    generator = torch.Generator(device)
    seed = generator.seed() if seed is None else generator.manual_seed(seed).initial_seed()
    cores = os.cpu_count() or 1
    if device == "cpu" and hasattr(os, "getloadavg") and os.getloadavg()[0] > cores / 2:
        load = f"load {os.getloadavg()[0]:.1f} on {cores} cores"
        said = f"The machine is busy ({load}): ratios will not be those of an idle one."
        typer.echo(said, err=True)
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    header = {"date": now, "set": name, "backend": backend, "device": device, "seed": seed}
    place = torch.device(device)
    return header | machine(), Setup(name, place, DTYPES[dtype], backend, seconds, generator)


def _choice(tokens: str, mechanisms: list[str]) -> Choice:
    for name in mechanisms:
        _known(mechanism=(name, MECHANISMS))
    lengths = list(dict.fromkeys(part.strip() for part in tokens.split(",") if part.strip()))
    if not all(part.isdecimal() and int(part) > 1 for part in lengths):
        raise ValueError(f"tokens={tokens!r}: write lengths of at least 2 as 1024,4096.")
    return Choice(tuple(map(int, lengths)), tuple(mechanisms))


def _known(**asked: tuple[str, Iterable[str]]) -> None:
    for option, (given, known) in asked.items():
        if given not in known:
            raise ValueError(f"{option}={given!r} is not known. Choose from {', '.join(known)}.")


def _measure(header: dict[str, Any], setup: Setup, choice: Choice, path: Path | None) -> list[Row]:
    """Every row is printed and written as soon as it is there: nothing is lost by an end."""
    found: list[Row] = []
    if path is not None:
        rows.start(path, header)
    versions = f"torch {header['torch']}, triton {header['triton']}"
    typer.echo(f"{header['gpu'] or header['processor']}, {versions}, {header['date']}")
    for row in SETS[setup.set](setup, choice):
        if not found or found[-1].case != row.case:
            typer.echo(f"\n{row.case}")
        if row.status == "timed" or not any(_same(row, r) for r in found):
            typer.echo(f"  {report.line(row)}")
        found.append(row)
        if path is not None:
            rows.append(path, row)
    return found


def _same(row: Row, other: Row) -> bool:
    """Whether it is absent again, for a reason that was told already."""
    return (row.name, row.status, row.note) == (other.name, other.status, other.note)
