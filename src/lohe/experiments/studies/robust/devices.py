"""Trained models on imperfect devices: what is measured, and what was published of it."""

import math
from dataclasses import dataclass
from statistics import fmean

from lohe.experiments.evidence import Evidence
from lohe.experiments.measures import Bench, Measure, Taken
from lohe.experiments.reported import published
from lohe.experiments.setting import Setting
from lohe.experiments.store.records import Record
from lohe.experiments.studies.robust.physics import (
    GRID,
    HORIZONS,
    SCALES,
    Physics,
    measure,
    rotation,
    scores,
    spaced,
)
from lohe.experiments.studies.robust.subjects import SUBJECTS, SVA, Subject
from lohe.experiments.verdicts import Estimate, exactly, of_sample, ours
from lohe.models import LanguageModel
from lohe.tasks import Split
from lohe.train import Run

BATCH = 1000  # examples at once
CHUNKS = 250  # of a language model, for the memory of its logits
DRAWS = 5  # of the published runs, on the published subset


@dataclass(frozen=True)
class RobustnessGrid:
    """Change of the task's metrics on `draws` devices of every kind and size.

    On `examples` of the validation split, evenly spaced. Draws differ between examples, layers and
    batches.
    """

    run: Run
    draws: int
    examples: int

    def take(self, bench: Bench) -> Taken:
        split, grid = bench.data(self.run).valid, (*GRID, *map(rotation, SCALES))
        return on_devices(self.run, bench, split, self.draws, self.examples, grid)


def on_devices(
    run: Run, bench: Bench, split: Split, draws: int, examples: int, grid: tuple[Physics, ...]
) -> Taken:
    """The run's model on `draws` devices of every kind in `grid`; `examples` evenly spaced."""
    model, task = bench.model(run), run.task
    split = spaced(split, examples).to(bench.device)
    batch = CHUNKS if isinstance(run.model, LanguageModel) else BATCH
    measured = measure({run.seed: model}, task, split, grid, draws, batch=batch)
    ideal = scores(model, task, split, batch)
    curve = []
    for physics in grid:
        here = [m for m in measured if (m.name, m.level) == (physics.name, physics.level)]
        changes = {name: [float(f"{m.change[name]:.6g}") for m in here] for name in ideal}
        curve.append({"physics": physics.name, "level": physics.level, **changes})
    return Taken({"examples": len(split), **ideal}, curve)


def whole(subject: Subject, setting: Setting, run: Run) -> RobustnessGrid:
    """On the whole validation split."""
    smoke = setting.scale == "smoke"
    return RobustnessGrid(run, 1 if smoke else subject.draws, subject.examples(setting))


def on_subset(subject: Subject, setting: Setting, run: Run) -> RobustnessGrid | None:
    """As published, on few examples, where the published runs evaluated few."""
    if subject.subset is None or setting.scale == "smoke":
        return None
    return RobustnessGrid(run, DRAWS, subject.subset)


def measures(setting: Setting) -> list[Measure]:
    """Every model on the whole split, and the published one of each task on the subset too."""
    found: list[Measure] = []
    for subject in SUBJECTS:
        for reading in subject.readings:
            found += [whole(subject, setting, run) for run in subject.runs(setting, reading)]
        first = on_subset(subject, setting, subject.runs(setting, "as published")[0])
        found += [first] if first else []
    return found


class Changes:
    """Measured changes of one task's models in one reading: by kind and size, an estimate.

    In percentage points of accuracy, or in nats, where a change is the logarithm of a ratio of
    perplexities. The standard error is that over models; with a single model, that over draws.
    """

    def __init__(self, evidence: Evidence, subject: Subject, reading: str, subset: bool = False):
        self.subject = subject
        run = subject.runs(evidence.setting, reading)[0]
        grid = (on_subset if subset else whole)(subject, evidence.setting, run)
        self.records: list[Record] = []
        if grid is not None and reading in subject.readings:
            self.records = evidence.measured_seeds(grid)

    def by_seed(self, kind: str, level: float) -> list[list[float]]:
        """For each model, the change on each draw."""
        return [
            row[self.subject.metric]
            for record in self.records
            for row in record.curve
            if (row["physics"], row["level"]) == (kind, level)
        ]

    def at(self, kind: str, level: float) -> Estimate | None:
        """None where nothing is recorded; one draw alone, or nonsense, has an infinite error."""
        draws = self.by_seed(kind, level)
        if not all(math.isfinite(x) for d in draws for x in d):
            return Estimate(math.nan, math.inf)
        if len(draws) > 1:
            return ours([fmean(d) for d in draws])
        if draws and len(draws[0]) > 1:
            return of_sample(draws[0])
        return Estimate(draws[0][0], math.inf) if draws else None


def reported(subject: Subject, kind: str, level: float) -> Estimate | None:
    """The published change, its error that over draws of one model; None: not published."""
    kind = "frequency" if kind == "rotation" else kind
    if subject is SVA:
        pp = dict(zip(HORIZONS, published("table9")["sva_pp"], strict=True))
        return exactly(pp[level]) if kind == "settling" else None
    task = "tinystories" if subject.language else "kws"
    if kind == "settling":
        source = published("table9")["per_draw"][task]
        draws = source["settling"][f"{level:g}"]
    else:
        source = published("figure8")[task][kind]
        draws = source.get("per_draw", {}).get(f"{level:g}")
    ideal = source["closed_form"]
    if draws is None:  # frequency disorder: mean and standard deviation, the latter with n
        at = SCALES.index(level)
        mean, error = source["mean"][at], source["std"][at] / math.sqrt(DRAWS - 1)
        if subject.language:
            return Estimate(math.log(mean / ideal), error / mean, DRAWS - 1)
        return Estimate(mean - ideal, error, DRAWS - 1)
    return of_sample([math.log(x / ideal) if subject.language else x - ideal for x in draws])


def in_unit(change: Estimate, subject: Subject) -> tuple[float, float]:
    """Change and error in percentage points, or in percent of perplexity."""
    if not subject.language:
        return change.value, change.se
    return 100 * math.expm1(change.value), 100 * math.exp(change.value) * change.se


def shown(change: Estimate | None, subject: Subject, error: bool = True) -> str:
    """+0.13±0.05, in percentage points or in percent of perplexity."""
    if change is None:
        return ""
    value, spread = in_unit(change, subject)
    value = round(value, 2) + 0.0  # no -0.00
    known = error and change.dof is not None and math.isfinite(spread)
    return f"{value:+.2f}±{spread:.2f}" if known else f"{value:+.2f}"


def unit(subject: Subject) -> str:
    """Percent of perplexity, or percentage points of accuracy."""
    return "%" if subject.language else "pp"
