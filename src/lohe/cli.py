"""The command `lohe`: it reads options and prints; the work is done by the modules it calls."""

import io
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from lohe import __version__, bench_cli, contest_cli, cost, data_cli, run_cli
from lohe.cli_common import console

if TYPE_CHECKING:
    from lohe.doctor import Finding, Report

app = typer.Typer(
    name="lohe",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help and one-line errors, the same in a terminal and in a pipe
)

app.add_typer(data_cli.app, name="data")
app.command("run")(run_cli.run_command)
app.command("show")(run_cli.show_command)
app.command("compare")(run_cli.compare_command)
app.command("bench")(bench_cli.bench_command)
app.command("contest")(contest_cli.contest_command)

Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
COLOUR = {"ok": "green", "absent": "yellow", "failed": "red"}


def main() -> None:
    """What `lohe.__main__` calls once everything is imported."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a screen without ± shows ?, which is no error
    try:
        app(prog_name="lohe")
    except OSError as error:  # of commands that only print: a full disk behind >
        typer.echo(f"Error: {error}", err=True)
        sys.exit(1)


def _print_version(wanted: bool) -> bool:
    if wanted:
        typer.echo(f"lohe {__version__}")
        raise typer.Exit
    return wanted


@app.callback()
def lohe(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Attention by synchronization: check the paper (compare, show, run), try it (demo), time it
    (bench), count it (cost), and see what runs here (doctor, data)."""


@app.command("cost")
def cost_command(
    tokens: Annotated[int | None, typer.Option(help="Sequence length T.")] = None,
    heads: Annotated[int | None, typer.Option(help="Attention heads. [1]")] = None,
    d_osc: Annotated[int | None, typer.Option(help="Oscillator dimension. [2]")] = None,
    coupling: Annotated[
        str | None, typer.Option(help=f"One of {', '.join(cost.COUPLINGS)}. [relu]")
    ] = None,
    causal: Annotated[bool, typer.Option("--causal", help="A token sees only its past.")] = False,
    as_json: Json = False,
) -> None:
    """Operations per attention layer: the paper's tables, or your layer.

    Without options, Tables 7, 10 and 11 with the published numbers beside ours, and the number
    of oscillators each task needs. With --tokens, the counts of one layer.

    \b
    Examples:
      lohe cost
      lohe cost --tokens 1024 --heads 8 --d-osc 4 --coupling softplus --causal
      lohe cost --json
    """
    if tokens is not None:
        layer = cost.Configuration(
            tokens=tokens,
            heads=1 if heads is None else heads,
            d_osc=2 if d_osc is None else d_osc,
            causal=causal,
        )
        try:
            counts = _layer_counts(layer, "relu" if coupling is None else coupling)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None
        _print_json(counts) if as_json else _print_layer(counts)
    elif causal or any(option is not None for option in (heads, d_osc, coupling)):
        raise typer.BadParameter("counting one layer needs its sequence length: add --tokens T.")
    elif as_json:
        _print_json(_paper_counts())
    else:
        _print_paper()


@app.command("doctor")
def doctor_command(as_json: Json = False) -> None:
    """What lohe can do here, what is missing, and how to fix it.

    Shows versions, devices, backends, optional packages and where data is looked for, and checks
    every backend against the float64 reference. Exits with 1 if one of them gives wrong numbers.

    \b
    Examples:
      lohe doctor
      lohe doctor --json
    """
    from lohe import doctor

    report = doctor.examine()
    if as_json:
        _print_json({**asdict(report), "healthy": report.healthy})
    else:
        _print_report(report)
    if not report.healthy:
        raise typer.Exit(1)


@app.command("demo")
def demo_command(
    out: Annotated[
        Path, typer.Option(file_okay=False, help="Folder for the report, models and records.")
    ] = Path("demo"),
    quick: Annotated[
        bool, typer.Option("--quick", help="Only the settling, the picture and the cost.")
    ] = False,
) -> None:
    """Oscillators learn and meet imperfect hardware: about four minutes on two cores.

    Trains softmax and oscillators on subject-verb agreement by the published recipe, runs the
    trained oscillators by exact physics, and writes OUT/report.html. Nothing is downloaded.
    Ctrl-C, or worse, loses at most the current epoch: the same command continues.

    \b
    Examples:
      lohe demo
      lohe demo --quick
      lohe demo --out elsewhere
    """
    from lohe.demo import main as run

    try:
        run(out, quick=quick)
    except KeyboardInterrupt:
        typer.echo("\nStopped. The same command continues from the last epoch.", err=True)
        raise typer.Exit(130) from None
    except (RuntimeError, OSError) as error:
        typer.echo(f"Error: {error}", err=True)
        raise typer.Exit(1) from None


# Printing. Nothing below computes.


def _print_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2))


def _layer_counts(layer: cost.Configuration, coupling: str) -> dict[str, Any]:
    counts = cost.operations(layer.tokens, layer.heads, layer.d_osc, coupling, layer.causal)
    return {
        **asdict(layer),
        "coupling": coupling,
        "operations": asdict(counts),
        "reduction": {name: counts.reduction(name) for name in cost.LABELS},
        "oscillators": cost.oscillators(layer.tokens, layer.heads, layer.d_osc),
    }


def _paper_counts() -> dict[str, Any]:
    tables = {"table7": cost.table_7(), "table10": cost.table_10(), "table11": cost.table_11()}
    return {
        "layers": [
            {"task": task, **_layer_counts(layer, coupling)}
            for coupling in ("relu", "softplus")
            for task, layer in cost.TASKS.items()
        ],
        **{
            name: [{**asdict(row), "agrees": row.agrees} for row in rows]
            for name, rows in tables.items()
        },
    }


def _print_layer(counts: dict[str, Any]) -> None:
    out = console()
    out.print(
        f"tokens {counts['tokens']:,}, heads {counts['heads']:,}, d_osc {counts['d_osc']:,}, "
        f"{counts['coupling']} coupling, {'causal' if counts['causal'] else 'bidirectional'}"
    )
    out.print(f"\n{'':24}{'operations':>22}{'reduction':>12}", style="bold")
    for name, label in cost.LABELS.items():
        operations, reduction = counts["operations"][name], counts["reduction"][name]
        out.print(f"{label:24}{operations:>22,}{reduction:>12.2f}")
    out.print(f"\n{'Oscillators needed':24}{counts['oscillators']:>22,}")


def _print_paper() -> None:
    absolute = cost.table_11()
    relu = [cost.Row(row.label, row.ours[:3], row.paper[:3]) for row in absolute]
    softplus = [cost.Row(row.label, row.ours[3:], row.paper[3:]) for row in absolute]
    _print_table("Table 7. Reduction relative to softmax, ReLU coupling", cost.table_7(), ".1f")
    _print_table("Table 10. Reduction, softplus coupling", cost.table_10(), ".1f")
    _print_table("Table 11. Operations per attention layer, ReLU coupling", relu, ",")
    _print_table("Table 11. Operations per attention layer, softplus coupling", softplus, ",")
    out = console()
    out.print("Oscillators: heads x tokens x (d_osc - 1)", style="bold")
    for task, layer in cost.TASKS.items():
        factors = f"{layer.heads} x {layer.tokens} x {layer.d_osc - 1}"
        budget = cost.oscillators(layer.tokens, layer.heads, layer.d_osc)
        out.print(f"{task:24}{factors:>12} = {budget:,}")


def _print_table(title: str, rows: list[cost.Row], number: str) -> None:
    out = console()
    out.print(title, style="bold")
    out.print(f"{'':24}{'ours':>8}{'':16}{'paper':>9}", style="dim")
    out.print(f"{'':24}{'KWS':>8}{'SVA':>7}{'TS':>9}{'KWS':>9}{'SVA':>6}{'TS':>8}", style="dim")
    for row in rows:
        a, b, c = (format(x, number) for x in row.ours)
        d, e, f = (format(x, number) for x in row.paper)
        verdict = "agrees" if row.agrees else "DIFFERS"
        out.print(f"{row.label:24}{a:>8}{b:>7}{c:>9}{d:>9}{e:>6}{f:>8} {verdict}")
    out.print()


def _print_report(report: "Report") -> None:
    out = console()
    out.print("Versions", style="bold")
    for name, version in report.versions.items():
        out.print(f"  {name:12} {version or 'not installed'}")
    _print_findings("Devices", report.devices)
    _print_findings("Backends", report.backends)
    _print_findings("Optional packages", report.optional)
    _print_findings("Data", [report.data])
    if fixes := [finding for finding in report.findings if finding.fix]:
        out.print("\nTo fix what is missing", style="bold")
        for finding in fixes:
            out.print(f"  {finding.fix}", soft_wrap=True)
    if report.healthy:
        out.print("\nlohe works here.", style="green")
    else:
        out.print("\nThe self-test FAILED: do not trust results from here.", style="red")


def _print_findings(title: str, findings: list["Finding"]) -> None:
    table = Table.grid(padding=(0, 2, 0, 0))
    for finding in findings:
        status = Text(finding.status, style=COLOUR[finding.status])
        table.add_row("", status, finding.name, finding.detail)
    out = console()
    out.print(f"\n{title}", style="bold")
    out.print(table)
