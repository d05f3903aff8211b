"""Tokens whose drive nearly vanishes, and with it the force that settles their oscillators."""

import math
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import fmean

import numpy as np
import torch

from lohe.experiments.evidence import Evidence
from lohe.experiments.item import Figure, Item
from lohe.experiments.measures import Bench, Measure, Taken
from lohe.experiments.reported import published
from lohe.experiments.setting import READINGS, Setting
from lohe.experiments.store.records import Record
from lohe.experiments.studies.robust.observed import observe, real_tokens
from lohe.experiments.studies.robust.physics import SCALES, spaced
from lohe.experiments.studies.robust.subjects import (
    KWS,
    ONE_READING,
    SUBJECTS,
    SVA,
    TINYSTORIES,
    Subject,
    carrier,
    keyword_set,
)
from lohe.experiments.tables import Table
from lohe.experiments.verdicts import (
    Agreement,
    Claim,
    Line,
    Verdict,
    bound,
    counts,
    exactly,
    margin,
)
from lohe.train import Run

WEAK = 0.01  # ‖h‖ below this is degenerate
BATCH = 250
FEW = 5  # models, whose lines can be told apart
THRESHOLDS = tuple(10 ** (k / 4) for k in range(-28, 17))  # of the distribution that is kept


@dataclass(frozen=True)
class DriveNorms:
    """‖h‖ of every oscillator, all layers and heads, that does not belong to padding.

    On `examples` of the validation split, evenly spaced.
    """

    run: Run
    examples: int

    def take(self, bench: Bench) -> Taken:
        model = bench.model(self.run)
        split = spaced(bench.data(self.run).valid, self.examples).to(bench.device)
        norms = []
        for start in range(0, len(split), BATCH):
            part = split.take(slice(start, start + BATCH))
            real = real_tokens(part)
            for layer in observe(model, **part.inputs)[1]:
                norm = layer.drive.norm(dim=-1)  # (batch, heads, tokens)
                norms.append(norm[real[:, None].expand_as(norm)].cpu())
        norm = torch.cat(norms)
        result = {
            "oscillators": len(norm),
            "fraction": (norm < WEAK).double().mean().item(),
            "smallest": norm.min().item(),
            "median": norm.median().item(),
            "largest": norm.max().item(),
        }
        below = [{"below": x, "count": int((norm < x).sum())} for x in THRESHOLDS]
        return Taken(result, below)


def measures(setting: Setting) -> list[Measure]:
    """The models of the robustness study."""
    return [
        DriveNorms(run, subject.examples(setting))
        for subject in SUBJECTS
        for reading in subject.readings
        for run in subject.runs(setting, reading)
    ]


def taken(evidence: Evidence, subject: Subject, reading: str) -> list[Record]:
    """What was found on each model of the task, in order of seed."""
    if reading not in subject.readings:
        return []
    setting = evidence.setting
    run = subject.runs(setting, reading)[0]
    return evidence.measured_seeds(DriveNorms(run, subject.examples(setting)))


def table(evidence: Evidence) -> Table:
    """Fraction of weakly driven oscillators, smallest and median norm; paper's rows below."""
    rows = []
    for subject in SUBJECTS:
        for reading in subject.readings:
            if found := [record.result for record in taken(evidence, subject, reading)]:
                fractions = [100 * one["fraction"] for one in found]
                rows.append(
                    (
                        f"{subject.name}, {reading}",
                        str(len(found)),
                        f"{fmean(fractions):.3f}",
                        f"{min(fractions):.3f}-{max(fractions):.3f}",
                        f"{min(one['smallest'] for one in found):.2g}",
                        f"{fmean(one['median'] for one in found):.3g}",
                    )
                )
    for row in published("claim-degenerate")["rows"]:
        cells = (f"{100 * row['fraction']:.3f}", "", f"{row['smallest']:.2g}")
        rows.append((f"{row['task']}, paper", "1", *cells, f"{row['median']:.3g}"))
    notes = [
        f"Oscillators with ‖h‖ < {WEAK}, in percent, mean and range over models; all layers and "
        f"heads, no padding. KWS: {keyword_set(evidence.setting)}. {ONE_READING}",
        "Both keyword rows of the paper are models without positional encoding, two runs of one "
        "configuration and seed: the fraction varies 17-fold between them (D9).",
    ]
    if not any(taken(evidence, s, r) for s in SUBJECTS for r in s.readings):
        notes.append(evidence.setting.none_yet("claim-degenerate"))
    columns = ("task", "models", "weak %", "range", "smallest", "median ‖h‖")
    return Table("Weakly driven oscillators", columns, rows, notes)


def lines(evidence: Evidence) -> list[Line]:
    """The claim for all tasks together, then each printed fraction."""
    found = []
    for reading in READINGS:
        found += [_claim(evidence, reading), _locking(evidence, reading)]
        for row in published("claim-degenerate")["rows"]:
            subject = {"SVA": SVA, "KWS": KWS}.get(row["task"], carrier(evidence.setting, reading))
            found.append(_line(evidence, subject, reading, row["as_printed"], row["label"]))
    return found


def _claim(evidence: Evidence, reading: str) -> Line:
    language = carrier(evidence.setting, reading)
    there, said, lacks = [], [], []
    for subject in (SVA, KWS, language):
        fractions = [r.result["fraction"] for r in taken(evidence, subject, reading)]
        if not fractions:
            lacks.append(subject.name)
            continue
        there.append(fmean(fractions))
        text = f"mean {_percent(fractions)}, largest {100 * max(fractions):.3f} %"
        said.append(f"{subject.name} {text}")
    holds = False if any(x >= bound("degenerate") for x in there) else None if lacks else True
    claim = Claim("degenerate", holds, "; ".join(said), lacks=", ".join(lacks))
    most = f"{100 * max(there):.3g} % at most" if there else "no records"
    value: Verdict = "not reported" if there else "no records"
    return Line("all tasks", "0.43 % at most", most, value, claim, reading)


def _locking(evidence: Evidence, reading: str) -> Line:
    """On the circle an oscillator locks if its rate is below its drive ‖h‖."""
    records = taken(evidence, KWS, reading)
    deviation = SCALES[-1] / (math.sqrt(2) if reading == "as published" else 1)  # D11
    shares = [unlocked(record, deviation) for record in records if record.curve]
    holds, said = None, "no records"
    if shares:
        holds = fmean(shares) < bound("robust-locking")
        said = f"rates of deviation {deviation:.2f}: {100 * fmean(shares):.2f} % exceed their drive"
        said += f", {100 * max(shares):.2f} % at most in a model"
    return Line(
        f"KWS, oscillators that do not lock at frequency disorder {SCALES[-1]:g}",
        "none",
        f"{100 * fmean(shares):.2f} %" if shares else "no records",
        "not reported" if shares else "no records",
        Claim("robust-locking", holds, said),
        reading,
    )


def unlocked(record: Record, deviation: float) -> float:
    """Expected share of oscillators whose normal rate exceeds their drive, by recorded norms.

    A norm between two recorded thresholds counts as the geometric mean of these.
    """
    ends = [(row["below"], row["count"]) for row in record.curve]
    share = ends[0][1]  # the weakest never lock
    for (low, below), (high, upto) in pairwise(ends):
        share += (upto - below) * math.erfc(math.sqrt(low * high / 2) / deviation)
    return share / record.result["oscillators"]


def _line(evidence: Evidence, subject: Subject, reading: str, paper: str, label: str) -> Line:
    fractions = [r.result["fraction"] for r in taken(evidence, subject, reading)]
    what = f"{subject.name} for {label}" if subject.language and label != subject.name else label
    if not fractions:
        return Line(what, paper, "no records", "no records", reading=reading)
    note = _spread(fractions)
    value: Agreement | Verdict = "not comparable"
    if subject is SVA:
        theirs = published("claim-degenerate")["rows"][0]
        found = [r.result for r in taken(evidence, subject, reading)]
        seen = sum(round(one["oscillators"]) for one in found)
        weak = sum(round(one["oscillators"] * one["fraction"]) for one in found)
        weak_there = round(theirs["oscillators"] * theirs["fraction"])
        value = Agreement(exactly(0.0), margin("exact"))
        if weak or weak_there:
            value = counts(weak, seen, weak_there, theirs["oscillators"], margin("exact"))
            value = replace(value, difference=replace(value.difference, seeds=0))  # of tokens
        note += f"; {weak} of {seen:,}, the paper {weak_there} of {theirs['oscillators']:,}"
    else:
        note = f"{note}; no margin for a number that varies 17-fold between two published runs"
    if subject.language and subject is not TINYSTORIES:
        trend = [r.result["fraction"] for r in taken(evidence, TINYSTORIES, reading)]
        note += f"; TinyStories itself, a trend: {_percent(trend)}" if trend else ""
    return Line(what, paper, _percent(fractions), value, reading=reading, note=note)


def _spread(fractions: list[float]) -> str:
    low, high = min(fractions), max(fractions)
    said = f"{len(fractions)} models, {100 * low:.3f} to {100 * high:.3f} %"
    return f"{said}, {high / low:.1f}-fold" if low > 0 else said


def _percent(fractions: list[float]) -> str:
    mean = 100 * fmean(fractions)
    return "none" if mean == 0 else f"{mean:.3g} %"


def figure(evidence: Evidence) -> Figure:
    """The distribution of ‖h‖ over oscillators: a line for each model, many models as a band."""
    import matplotlib.pyplot as plt

    from lohe.viz import curves, rates, style

    drawn, ax = plt.subplots(figsize=(7.4, 4.2), layout="constrained")
    palette = (style.BLUE, style.GREEN, style.RED, style.PURPLE)
    colors = {subject.name: color for subject, color in zip(SUBJECTS, palette, strict=True)}
    for subject in SUBJECTS:
        for reading in subject.readings:
            models = [record for record in taken(evidence, subject, reading) if record.curve]
            below = [row["below"] for row in models[0].curve] if models else []
            fractions = [
                [row["count"] / record.result["oscillators"] for row in record.curve]
                for record in models
            ]
            look = (colors[subject.name], "-" if reading == "as published" else ":")
            label = f"{subject.name}, {reading}"
            if len(models) > FEW:
                curves.band(ax, below, np.array(fractions), *look, f"{label}: {len(models)} models")
                continue
            for n, row in enumerate(fractions):
                curves.cumulative(ax, below, row, *look, label if n == 0 else None)
    rows = [row for row in published("claim-degenerate")["rows"] if row["fraction"] > 0]
    for task in dict.fromkeys(row["task"] for row in rows):
        fractions = [row["fraction"] for row in rows if row["task"] == task]
        where = [WEAK] * len(fractions)
        curves.hollow(ax, where, fractions, color=colors[task], label=f"{task}, paper")
    rates.mark(ax, WEAK, f"weakly driven:\n‖h‖ < {WEAK}", left=True)
    # one oscillator of WikiText-2's millions has its place
    ax.set(xlabel="drive norm ‖h‖", ylabel="fraction of oscillators below", ylim=(1e-7, 1.2))
    said = f"one line per model;\nmore than {FEW}: band from the\nleast to the greatest"
    ax.legend(title=said, loc="upper left", bbox_to_anchor=(1.0, 1.0), alignment="left")
    return drawn


ITEMS = {
    "claim-degenerate": Item(
        title="Weakly driven oscillators",
        measures=measures,
        table=table,
        figure=figure,
        lines=lines,
    ),
}
