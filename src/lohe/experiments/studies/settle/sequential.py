"""Does it help to start where the previous token came to rest? Section 4.4."""

from dataclasses import dataclass
from statistics import fmean

import torch

from lohe.dynamics import flow, settling_error
from lohe.dynamics.settling import CONVERGED_BELOW
from lohe.experiments.evidence import Evidence
from lohe.experiments.item import Item
from lohe.experiments.measures import Bench, Measure, Taken
from lohe.experiments.reported import published
from lohe.experiments.setting import Setting
from lohe.experiments.store.records import Record
from lohe.experiments.studies.robust.subjects import ONE_READING
from lohe.experiments.studies.settle.drives import COHORTS, Cohort, drives
from lohe.experiments.tables import Table
from lohe.experiments.verdicts import Claim, Line, bound
from lohe.substrates import SequentialStart, UniformStart
from lohe.train import Run

D_OSC = (2, 8, 32)
NOISE = 0.05  # on each component of the start
# d_osc -> claim of rules.json about the ratio of mean errors
CLAIMS = {2: "settle-sequential", 32: "settle-sequential-32"}


@dataclass(frozen=True)
class Starts:
    """Mean error at the horizon from uniform starts, and from the previous token's fixed point.

    Last layer, tokens that are no padding, the published sample; a row for each draw.
    """

    run: Run
    chunks: int = 32
    draws: int = 5
    horizon: float = 30.0
    noise: float = NOISE
    seed: int = 0

    def take(self, bench: Bench) -> Taken:
        rng = torch.Generator().manual_seed(self.seed)
        found = drives(bench, self.run, self.chunks)
        h = found.layers[-1]
        kinds = {"uniform": UniformStart(rng), "sequential": SequentialStart(self.noise, rng)}
        curve = []
        for draw in range(self.draws):
            row: dict[str, float] = {"draw": draw}
            for name, start in kinds.items():
                error = settling_error(flow(start(h), h, self.horizon), h)[found.valid]
                row[f"{name}.mean_error"] = error.mean().item()
                row[f"{name}.converged"] = (error < CONVERGED_BELOW).double().mean().item()
            curve.append(row)
        names = [name for name in curve[0] if name != "draw"]
        return Taken({name: fmean(row[name] for row in curve) for name in names}, curve)


def measures(setting: Setting) -> list[Measure]:
    """Every cohort and d_osc."""
    return [starts(setting, cohort, d) for cohort in COHORTS for d in D_OSC]


def starts(setting: Setting, cohort: Cohort, d_osc: int) -> Starts:
    run = cohort.run(setting, d_osc)
    return Starts(run, chunks=2, draws=2) if setting.scale == "smoke" else Starts(run)


def ratio(record: Record) -> float:
    """Mean error from uniform starts over that from sequential ones; NaN where both are 0."""
    uniform, sequential = (
        record.result[f"{name}.mean_error"] for name in ("uniform", "sequential")
    )
    return uniform / sequential if sequential else float("nan")


def table(evidence: Evidence) -> Table:
    """Mean errors from both kinds of start."""
    rows = []
    for cohort in COHORTS:
        for d in D_OSC:
            record = evidence.measured(starts(evidence.setting, cohort, d))
            if record is not None:
                x = record.result
                errors = [x[f"{name}.mean_error"] for name in ("uniform", "sequential")]
                settled = [x[f"{name}.converged"] for name in ("uniform", "sequential")]
                rows.append(
                    (
                        f"{cohort.name(evidence.setting)}, {cohort.reading}",
                        str(d),
                        *(f"{error:.5f}" for error in errors),
                        f"{ratio(record):.2f}",
                        *(f"{100 * share:.2f}" for share in settled),
                    )
                )
    ours = len(rows)
    for d, x in published("table6")["sequential"].items():
        errors = (f"{x['uniform']:.5f}", f"{x['sequential']:.5f}")
        rows.append(("TinyStories, paper", d, *errors, f"{_published_ratio(d):.2f}", "", ""))
    notes = [
        "Mean error at T = 30 from uniform starts and from the previous token's fixed point with "
        f"noise {NOISE}, their ratio, and % converged; last layer, exact flow. {ONE_READING}",
    ]
    if not ours:
        notes.append(evidence.setting.none_yet("claim-sequential"))
    columns = ("model", "d", "uniform", "sequential", "ratio", "unif. %", "seq. %")
    return Table("Sequential starts (Section 4.4)", columns, rows, notes)


def lines(evidence: Evidence) -> list[Line]:
    """The ratio of mean errors; the paper prints 4.6, and calls that at d_osc = 32 negligible."""
    return [_line(evidence, cohort, d) for cohort in COHORTS for d in D_OSC]


def _line(evidence: Evidence, cohort: Cohort, d_osc: int) -> Line:
    record = evidence.measured(starts(evidence.setting, cohort, d_osc))
    theirs = published("table6")["sequential"][str(d_osc)]
    found, holds = "no records", None
    if record is not None:
        uniform, sequential = (
            record.result[f"{name}.mean_error"] for name in ("uniform", "sequential")
        )
        found = f"mean errors {uniform:.5f} and {sequential:.5f}, ratio {ratio(record):.2f}; "
        found += f"published {theirs['uniform']:.5f} and {theirs['sequential']:.5f}"
        holds = _holds(d_osc, ratio(record))
    claim = Claim(CLAIMS[d_osc], holds, found) if d_osc in CLAIMS else None
    return Line(
        f"{cohort.name(evidence.setting)}, d_osc = {d_osc}: uniform over sequential mean error",
        f"{_published_ratio(str(d_osc)):.1f}{', called negligible' if d_osc == 32 else ''}"
        f"{cohort.elsewhere}",
        "" if record is None else f"{ratio(record):.2f}",
        "no records" if record is None else "not comparable",
        claim,
        cohort.reading,
    )


def _holds(d_osc: int, found: float) -> bool | None:
    if found != found:
        return None
    if d_osc not in CLAIMS:
        return None
    allowed = bound(CLAIMS[d_osc])
    return found >= allowed if d_osc == 2 else found < allowed


def _published_ratio(d_osc: str) -> float:
    x = published("table6")["sequential"][d_osc]
    return x["uniform"] / x["sequential"]


ITEMS: dict[str, Item] = {
    "claim-sequential": Item(
        title="Sequential starts reduce the settling error",
        measures=measures,
        table=table,
        lines=lines,
    ),
}
