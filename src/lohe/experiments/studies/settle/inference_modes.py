"""Perplexity when the oscillators really settle: closed form, random starts, passed-on states."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from lohe.attention import OscillatorAttention
from lohe.dynamics import flow
from lohe.experiments.evidence import Evidence
from lohe.experiments.item import Item
from lohe.experiments.measures import Bench, Measure, Taken
from lohe.experiments.reported import published
from lohe.experiments.setting import Setting
from lohe.experiments.store.records import Record
from lohe.experiments.studies.robust.physics import Physics, on, scores, settling
from lohe.experiments.studies.settle.drives import AS_DEFINED, AS_PUBLISHED, Cohort
from lohe.experiments.tables import Table, plus_minus
from lohe.experiments.verdicts import (
    Agreement,
    Claim,
    Estimate,
    Line,
    bound,
    exactly,
    margin,
    of_sample,
)
from lohe.measure.significance import mean_std
from lohe.substrates import UniformStart
from lohe.train import Run

COHORTS = (AS_PUBLISHED, AS_DEFINED)  # the paper has WikiText-2 only
D_OSC = (2, 8, 32)
HORIZON = 30.0
MODES = ("uniform", "sequential")
SPLITS = {"published": "valid_published", "strict": "valid_strict"}
BATCH = 128  # chunks: their logits are 250 MB


@dataclass(frozen=True)
class PassedOn:
    """Each token starts where the one before it was at the horizon; the first starts anywhere.

    A device that is driven by one token after the other, without a reset. Exact flow; tokens are
    the last axis but one, and the cost is one flow a token, one after the other.
    """

    within_sequence: ClassVar[bool] = True  # it cannot be given one token at a time

    horizon: float
    generator: torch.Generator = field(repr=False)

    def __call__(
        self, h: Float[Tensor, "*batch tokens d_osc"]
    ) -> Float[Tensor, "*batch tokens d_osc"]:
        z = UniformStart(self.generator)(h[..., 0, :])
        states = []
        for drive in h.unbind(dim=-2):
            z = flow(z, drive, self.horizon)
            states.append(z)
        return torch.stack(states, dim=-2)


def passed_on(horizon: float) -> Physics:
    """Settling to the horizon, token after token."""

    def change(layer: OscillatorAttention, rng: torch.Generator) -> None:
        layer.settle = PassedOn(horizon, rng)

    return Physics("passed on", horizon, change)


@dataclass(frozen=True)
class InferenceModes:
    """Validation perplexity by closed form and by the exact flow in every layer, both protocols.

    The curve has a row for each protocol, mode and draw; the closed form needs no draw.
    """

    run: Run
    draws: int = 5
    horizon: float = HORIZON

    def take(self, bench: Bench) -> Taken:
        model, data = bench.model(self.run), bench.data(self.run)
        modes = {"uniform": settling(self.horizon), "sequential": passed_on(self.horizon)}
        result, curve = {}, []
        for protocol, name in SPLITS.items():
            split = data.splits[name].to(bench.device)
            ideal = scores(model, self.run.task, split, BATCH)["perplexity"]
            result[f"{protocol}.closed_form"] = ideal
            for mode, physics in modes.items():
                for draw in range(self.draws):
                    with on(model, physics, torch.Generator().manual_seed(draw)):
                        found = scores(model, self.run.task, split, BATCH)["perplexity"]
                    curve.append(
                        {"protocol": protocol, "mode": mode, "draw": draw, "perplexity": found}
                    )
        return Taken(result, curve)


def measures(setting: Setting) -> list[Measure]:
    """Both readings, every d_osc."""
    return [modes(setting, cohort, d) for cohort in COHORTS for d in D_OSC]


def modes(setting: Setting, cohort: Cohort, d_osc: int) -> InferenceModes:
    run = cohort.run(setting, d_osc)
    return InferenceModes(run, draws=2) if setting.scale == "smoke" else InferenceModes(run)


def changes(record: Record, protocol: str, mode: str) -> list[float]:
    """Change of the log perplexity from the closed form, by draw."""
    ideal = record.result[f"{protocol}.closed_form"]
    rows = [r for r in record.curve if (r["protocol"], r["mode"]) == (protocol, mode)]
    return [math.log(row["perplexity"] / ideal) for row in rows]


def published_changes(mode: str) -> list[float]:
    """The same of the published model."""
    paper = published("claim-inference-modes")
    found = paper[mode] if isinstance(paper[mode], list) else [paper[mode]]
    return [math.log(x / paper["closed_form"]) for x in found]


def table(evidence: Evidence) -> Table:
    """Perplexity by mode."""
    rows = []
    for cohort in COHORTS:
        for d in D_OSC:
            record = evidence.measured(modes(evidence.setting, cohort, d))
            if record is not None:
                rows += [(f"{cohort.reading}, {p}", str(d), *_row(record, p)) for p in SPLITS]
    notes = [
        "Exact flow to T = 30 in every layer; changes from the closed form, mean ± deviation over "
        "draws of the starts. Sequential: each token starts from the previous one's state.",
    ] + ([] if rows else [evidence.setting.none_yet("claim-inference-modes")])
    ideal = published("claim-inference-modes")["closed_form"]
    shown = [_in_perplexity(ideal, published_changes(mode)) for mode in MODES]
    rows.append(("paper", "2", f"{ideal:.2f}", *shown))
    columns = ("reading, protocol", "d", "closed form", "uniform starts", "sequential")
    return Table("WikiText-2 perplexity by inference mode (Section 4.4)", columns, rows, notes)


def _row(record: Record, protocol: str) -> tuple[str, ...]:
    ideal = record.result[f"{protocol}.closed_form"]
    return f"{ideal:.2f}", *(_in_perplexity(ideal, changes(record, protocol, m)) for m in MODES)


def _in_perplexity(ideal: float, logs: Sequence[float]) -> str:
    if not all(map(math.isfinite, logs)):
        return "not finite"
    mean, std = mean_std([ideal * math.expm1(x) for x in logs])
    return f"{'+' if mean >= 0 else ''}{plus_minus(mean, std, 3)}"


def lines(evidence: Evidence) -> list[Line]:
    """Changes of perplexity by mode, protocol, reading and d_osc; the paper has d_osc = 2."""
    found = []
    for cohort in COHORTS:
        for d in D_OSC:
            record = evidence.measured(modes(evidence.setting, cohort, d))
            for protocol in SPLITS:
                found += [_line(cohort, d, record, protocol, mode) for mode in MODES]
    return found


def _line(cohort: Cohort, d_osc: int, record: Record | None, protocol: str, mode: str) -> Line:
    papers = d_osc == 2 and protocol == "published"  # what the paper did, up to the anchors
    value, ours, theirs = "not reported", "", ""
    if papers:
        closed = published("claim-inference-modes")["closed_form"]
        theirs = _in_perplexity(closed, published_changes(mode))
    if record is None:
        value = "no records"
    else:
        logs = changes(record, protocol, mode)
        ours = _in_perplexity(record.result[f"{protocol}.closed_form"], logs)
        if not all(map(math.isfinite, logs)):
            value = "inconclusive"
        elif papers:
            paper = _mean(published_changes(mode))
            value = Agreement(_mean(logs) - paper, margin("robust_perplexity"), effect=paper.value)
    claim = _claim(record, protocol, mode) if d_osc == 2 else None
    return Line(
        f"d_osc = {d_osc}, {protocol} protocol: {mode} starts, change of perplexity",
        theirs,
        ours,
        value,
        claim,
        cohort.reading,
        "the log perplexity is compared, over draws of starts of one model" if papers else "",
    )


def _claim(record: Record | None, protocol: str, mode: str) -> Claim:
    name = {"uniform": "lm-finite-horizon", "sequential": "lm-sequential"}[mode]
    if record is None:
        return Claim(name, None, "no records")
    uniform, sequential = (fmean(changes(record, protocol, m)) for m in MODES)
    little = bound("lm-finite-horizon")
    ideal = record.result[f"{protocol}.closed_form"]
    said = [f"{ideal * math.expm1(x):+.2f} ({x:+.5f} of its log)" for x in (uniform, sequential)]
    found = f"perplexity {said[0]} with uniform, {said[1]} with sequential starts"
    if mode == "uniform":
        most = ideal * math.expm1(little)
        found += f", where {most:+.2f}, {little:+} of the log, is allowed"
    if protocol == "published":
        closed = published("claim-inference-modes")["closed_form"]
        theirs = (closed * math.expm1(fmean(published_changes(m))) for m in MODES)
        found += f"; the paper: {' and '.join(f'{x:+.2f}' for x in theirs)}"
    holds = uniform < little if mode == "uniform" else sequential < uniform
    return Claim(name, holds if math.isfinite(uniform + sequential) else None, found)


def _mean(sample: Sequence[float]) -> Estimate:
    """With the spread over draws, where there is more than one."""
    return of_sample(sample) if len(sample) > 1 else exactly(sample[0])


ITEMS: dict[str, Item] = {
    "claim-inference-modes": Item(
        title="Perplexity by inference mode, WikiText-2",
        measures=measures,
        table=table,
        lines=lines,
    ),
}
