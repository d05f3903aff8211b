"""`lohe demo`: nine oscillators settle, learn a task beside softmax, and meet imperfect hardware.

nine        closed form, exact flow and a solver agree; the cost
training    both mechanisms on subject-verb agreement, by the published recipe
verdicts    ours against published, as tables; the physics is experiments.studies.robust
report      the tables and pictures as one page, OUT/report.html
"""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import torch
from rich.console import Console

from lohe.demo import figures, nine, report, sentence, terminal, training, verdicts
from lohe.demo.plan import OSCILLATOR, Plan
from lohe.demo.report import Part
from lohe.demo.training import Learned
from lohe.experiments import cpu
from lohe.experiments.store import files
from lohe.experiments.studies.robust import physics
from lohe.experiments.studies.robust.physics import Measured
from lohe.experiments.tables import Table
from lohe.tasks import SVA, Data
from lohe.version import __version__

Seconds = dict[str, float]


def main(out: Path, *, quick: bool = False, plan: Plan | None = None) -> None:
    """Everything, or with `quick` only what takes seconds."""
    plan, console = plan or Plan(), terminal.console()
    seconds: Seconds = {}
    with clock(seconds, "settling"):
        settled = nine.settle(torch.Generator().manual_seed(4))
        routes, costs = nine.routes(settled), nine.costs()
        for table in (routes, costs):
            terminal.show(console, table)
        console.print(f"Picture: {nine.draw(settled, out / 'settling.png')}\n")
    if quick:
        return
    cpu.get_ready()
    with clock(seconds, "training"):
        train(plan, out, console)
    with clock(seconds, "physics"), one_thread():
        data = SVA().load()
        packs = {job.name: training.learned(job, data) for job in training.jobs(plan, out)}
        measured = measure(packs[OSCILLATOR], data, plan, console)
        means = {
            name: sentence.mean_attention(pack.models.values(), data)
            for name, pack in packs.items()
        }
        one = sentence.settling(packs[OSCILLATOR].first, data)
    records = {name: pack.records for name, pack in packs.items()}
    tables = {
        "training": verdicts.training(records, plan),
        "settling": verdicts.settling(measured, plan),
        "robustness": verdicts.robustness(measured, plan),
    }
    for table in tables.values():
        terminal.show(console, table)
    with clock(seconds, "figures"):
        folder = out / "figures"
        pictures = {
            "nine": nine.panels(settled, folder),
            "training": figures.training(records, folder),
            "settling": figures.settling(measured, folder),
            "robustness": figures.robustness(measured, folder),
            "verb": figures.attention(means, one, folder),
        }
    summary = summarise(packs, tables, plan)
    parts = [
        Part(
            "Nine oscillators settle",
            "One head of an untrained layer reads nine tokens. Each oscillator on the circle is "
            "pulled by nine anchors and comes to rest where the closed form says; the exact flow "
            "and an adaptive solver (RK45) go there by the same path.",
            pictures["nine"],
            "Phases over time, distance to rest, and the weights that the settled state gives.",
            [routes, costs],
        ),
        Part(
            "They learn",
            f"Does the verb agree with its subject? {len(plan.seeds)} seeds of each mechanism on "
            "the smallest hardware of the paper: one layer, one head, nine oscillators. Published "
            "recipe: 20 epochs of 625 steps, the last epoch counts. fish and deer have one form "
            "for both numbers, so about 97.8 % is the best one can expect.",
            pictures["training"],
            "Every seed of both mechanisms, epoch by epoch.",
            [tables["training"]],
        ),
        Part(
            "They need time",
            "The trained oscillators start anywhere and have until the horizon to settle, by the "
            "exact solution of their equation of motion. A long horizon gives the closed form.",
            pictures["settling"],
            "Accuracy at a horizon minus that of the closed form, on the same sentences.",
            [tables["settling"]],
        ),
        Part(
            "They are imperfect",
            "Couplings off by random factors, noise on the settled states, and oscillators that "
            "would each rotate at a rate of their own.",
            pictures["robustness"],
            "Accuracy on an imperfect device minus that of the ideal one. Crosses are another "
            "task, keyword spotting: the paper has no such figure for this one.",
            [tables["robustness"]],
        ),
        Part(
            "What the verb looks at",
            "In a hard sentence the noun nearer to the verb, the distractor, has the other number "
            f"than the subject. One of them: “{one.text}”",
            pictures["verb"],
            "First: the mean over all hard validation sentences and over seeds. Second: that one "
            f"sentence, seed {plan.seeds[0]}, at a horizon the mean over {sentence.STARTS} random "
            "starts; single sentences differ from the mean, and from each other.",
            [],
        ),
    ]
    page = report.page(parts, summary, seconds, f"lohe demo --out {out}")
    files.write(out / "report.html", page.encode())
    files.write(out / "results.json", results(packs, measured, tables, seconds).encode())
    for line in summary:
        console.print(f"- {line}", soft_wrap=True)
    took = ", ".join(f"{what} {s:.0f} s" for what, s in seconds.items())
    console.print(f"\nReport: {out / 'report.html'}\n({took})", soft_wrap=True)


def train(plan: Plan, out: Path, console: Console) -> None:
    """Train the packs that are not there yet, side by side."""
    jobs = training.jobs(plan, out)
    todo = [job for job in jobs if not job.finished]
    for job in jobs:
        if job not in todo:
            console.print(f"{job.name}: trained before, loaded from {job.file}", soft_wrap=True)
    if todo:
        console.print(
            f"Training {len(plan.seeds)} seeds of each: about four minutes on two cores. Ctrl-C "
            "is fine: the same command continues."
        )
        with terminal.progress(console) as bars:
            training.side_by_side(todo, bars.heard)


def measure(pack: Learned, data: Data, plan: Plan, console: Console) -> list[Measured]:
    """The oscillator models by exact physics."""
    with terminal.progress(console, every=50) as bars:
        of = len(pack.models) * len(physics.GRID) * plan.draws
        done = iter(range(1, of + 1))
        return physics.measure(
            pack.models,
            SVA(),
            data.valid.take(slice(plan.sentences)),
            draws=plan.draws,
            heard=lambda: bars.heard("devices", "measuring", next(done), of),
        )


def summarise(packs: dict[str, Learned], tables: dict[str, Table], plan: Plan) -> list[str]:
    """The outcome in a few lines."""
    seconds = ", ".join(f"{name} {pack.seconds:.0f} s" for name, pack in packs.items())
    said = [f"Trained {len(plan.seeds)} seeds of each mechanism at once: {seconds}."]
    welch, ranks = (
        counted(tables["training"], column, verdicts.CONSISTENT)
        for column in (verdicts.BY_WELCH, verdicts.BY_RANKS)
    )
    settled = [
        counted(tables["settling"], verdicts.VERDICT, what)
        for what in (verdicts.REPRODUCED, verdicts.DIFFERS)
    ]
    said += [
        f"Accuracy, consistent with the published: {welch} by Welch's interval, {ranks} by ranks. "
        "With so few seeds Welch raises false alarms, and the table says how often.",
        f"Settling cut short, against the published changes: reproduced at {settled[0]} horizons, "
        f"different at {settled[1]}; at the others {len(plan.seeds)} seeds cannot tell.",
        f"{len(plan.seeds)} seeds cannot test the paper's claim about training failures; "
        "`lohe run table2 --seeds 0-49` runs the published cohort.",
    ]
    return said if plan.published else [verdicts.CUT_SHORT, *said]


def counted(table: Table, column: str, what: str) -> str:
    """How many rows have this verdict in this column, in words."""
    found = [row[table.columns.index(column)] for row in table.rows]
    return f"{found.count(what)} of {len(found)}"


def results(
    packs: dict[str, Learned], measured: list[Measured], tables: dict[str, Table], seconds: Seconds
) -> str:
    """The numbers behind the page, for programs."""
    found = {
        "lohe": __version__,
        "seconds": seconds,
        "accuracy": {
            name: {record.seed: record.result for record in pack.records}
            for name, pack in packs.items()
        },
        "physics": [asdict(m) for m in measured],
        "tables": {name: asdict(table) for name, table in tables.items()},
    }
    return json.dumps(found, indent=1) + "\n"


@contextmanager
def one_thread() -> Iterator[None]:
    """Work this small is not worth sharing: on a busy machine two threads wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def clock(seconds: Seconds, stage: str) -> Iterator[None]:
    started = time.perf_counter()
    yield
    seconds[stage] = time.perf_counter() - started
