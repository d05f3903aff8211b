"""Who goes on: trials of 10 epochs, finals of 30, judged on the first half of the articles.

What is compared is the mean over seeds of log perplexity on `valid`, at the epoch that was best for
the seed. A run that diverged counts as infinitely bad. Nothing here reads another split.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from statistics import fmean

from lohe.experiments.contest.divergence import has_diverged
from lohe.experiments.contest.trials import (
    FAMILIES,
    FINALISTS,
    MATCHED,
    OURS,
    RIVALS,
    ROTARY,
    STAGES,
    Chosen,
    Configuration,
    trial_runs,
    trials,
)
from lohe.experiments.evidence import Evidence
from lohe.train import Run

JUDGED = "valid.nats"


@dataclass(frozen=True)
class Standing:
    """A configuration and what it reached: log perplexity by seed."""

    configuration: Configuration
    nats: tuple[float, ...]

    @property
    def mean(self) -> float:
        values = [x if math.isfinite(x) else math.inf for x in self.nats]
        return fmean(values) if values else math.inf


def missing(evidence: Evidence, runs: Iterable[Run]) -> list[Run]:
    """Those without a record."""
    return [run for run in runs if evidence.recorded(run) is None]


@lru_cache(maxsize=16)
def in_trials(evidence: Evidence, family: str) -> tuple[Standing, ...]:
    """The family's settings, best first; a setting that was drawn again has more seeds."""
    seeds: dict[Configuration, list[int]] = {}
    for trial in trials(family):
        seeds.setdefault(trial.configuration, []).extend(trial.seeds)
    stage = STAGES["trials"]
    found = [standing(evidence, c, stage.runs(c, s)) for c, s in seeds.items()]
    return tuple(sorted(found, key=lambda s: s.mean))


@lru_cache(maxsize=16)
def finalists(evidence: Evidence, family: str) -> tuple[Configuration, ...] | None:
    """The best few of the trials; None before all of them are recorded.

    The last place is that of the best with a dropout that the others lack, if they lack one.
    """
    if missing(evidence, trial_runs(family)):
        return None
    ordered = [s.configuration for s in in_trials(evidence, family)]
    first, others = ordered[: FINALISTS - 1], ordered[FINALISTS - 1 :]
    there = {c.dropout for c in first}
    last = [c for c in others if c.dropout not in there] or others
    return (*first, *last[:1])


def known_finals(evidence: Evidence) -> list[Run]:
    """The finals of the families whose own trials are complete: they wait for no other family."""
    known = (finalists(evidence, family) or () for family in FAMILIES)
    return [run for chosen in known for c in chosen for run in STAGES["finals"].runs(c)]


def final_runs(evidence: Evidence) -> list[Run] | None:
    """What the finals need; None before the trials of all families are complete."""
    if any(finalists(evidence, family) is None for family in FAMILIES):
        return None
    return known_finals(evidence)


def in_finals(evidence: Evidence, family: str) -> list[Standing]:
    """The family's finalists, best first; those that are recorded."""
    stage = STAGES["finals"]
    chosen = finalists(evidence, family) or ()
    found = [standing(evidence, c, stage.runs(c)) for c in chosen]
    return sorted((s for s in found if s.nats), key=lambda s: s.mean)


@lru_cache(maxsize=4)
def chosen(evidence: Evidence) -> Chosen | None:
    """The winners of the finals; None before these are complete."""
    runs = final_runs(evidence)
    if runs is None or missing(evidence, runs):
        return None
    first = {family: in_finals(evidence, family)[0] for family in FAMILIES}
    family = min(RIVALS, key=lambda name: first[name].mean)
    return Chosen(
        ours=first[OURS].configuration,
        best=first[family].configuration,
        family=family,
        matched=first[MATCHED].configuration,
        rotary=first[ROTARY].configuration,
    )


def standing(evidence: Evidence, configuration: Configuration, runs: list[Run]) -> Standing:
    """What was recorded of these runs of it."""
    there = _by_seed(evidence, runs[0])
    return Standing(configuration, tuple(there[r.seed] for r in runs if r.seed in there))


def _by_seed(evidence: Evidence, run: Run) -> dict[int, float]:
    return {
        record.seed: math.inf if has_diverged(record) else record.result[JUDGED]
        for record in evidence.records(run)
    }
