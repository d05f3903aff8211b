"""Who goes on: trials, then a search of learning rates, judged on the first half of the articles.

What is compared is the mean over seeds of log perplexity on `valid`, at the epoch that was best for
the seed. A run that diverged counts as infinitely bad. Nothing here reads another split.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from statistics import fmean

from lohe.experiments.contest.divergence import has_diverged
from lohe.experiments.contest.stages import Chosen
from lohe.experiments.contest.trials import (
    COMPARED_AT,
    FAMILIES,
    OURS,
    RATES,
    RIVALS,
    SHARED,
    STAGES,
    TRIED,
    Configuration,
    RunsOf,
    configured,
    trial_runs,
    trials,
)
from lohe.experiments.evidence import Evidence
from lohe.train import Run

JUDGED = "valid.nats"


@dataclass(frozen=True)
class Standing:
    """A configuration and what it reached: log perplexity by seed, of so many."""

    configuration: Configuration
    nats: tuple[float, ...]
    seeds: int

    @property
    def complete(self) -> bool:
        return len(self.nats) == self.seeds

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


def all_tried(evidence: Evidence, family: str) -> bool:
    """Whether all trials of the family are recorded."""
    return not missing(evidence, trial_runs(family))


def settings(evidence: Evidence, family: str) -> list[Configuration]:
    """Where the family's search begins: the best setting of its trials, or every setting where
    trials were given up; none before they are complete."""
    dropout = min(SHARED["dropout"])
    if family in TRIED:
        if not all_tried(evidence, family):
            return []
        found = [in_trials(evidence, family)[0].configuration]
    else:
        choices = FAMILIES[family].choices
        found = [
            configured(family, dict(zip(choices, values, strict=True)))
            for values in product(*choices.values())
        ]
    return [replace(c, learning_rate=COMPARED_AT, dropout=dropout) for c in found]


class Search:
    """What is tried, in that order, and the best of it; what is not there yet has no nats."""

    def __init__(self, evidence: Evidence, runs_of: RunsOf) -> None:
        self.evidence, self.runs_of = evidence, runs_of
        self.found: dict[Configuration, Standing] = {}

    def at(self, c: Configuration) -> None:
        """Try this, too."""
        self.found[c] = standing(self.evidence, c, self.runs_of(c))

    @property
    def done(self) -> bool:
        return all(s.complete for s in self.found.values())

    @property
    def best(self) -> Configuration:
        """Of equals the one of the smaller learning rate, then of the smaller dropout."""
        return min(self.found.values(), key=rank).configuration

    def rates(self, c: Configuration, rates: Sequence[float], first: int = 0) -> None:
        """Two learning rates that are neighbours, and the next on the side where the last one is
        the best."""
        by_rate = [replace(c, learning_rate=rate) for rate in rates]
        low, high = first, first + 1
        self.at(by_rate[low])
        self.at(by_rate[high])
        while self.done and self.best == by_rate[high] and high + 1 < len(rates):
            high += 1
            self.at(by_rate[high])
        while self.done and self.best == by_rate[low] and low > 0:
            low -= 1
            self.at(by_rate[low])

    def dropouts(self, rates: Sequence[float]) -> None:
        """The larger dropout at the best learning rate, and beyond it as long as the last is the
        best of all."""
        if not self.done:
            return
        by_now = self.best
        for rate in rates[rates.index(by_now.learning_rate) :]:
            last = replace(by_now, learning_rate=rate, dropout=max(SHARED["dropout"]))
            self.at(last)
            if not (self.done and self.best == last):
                break


@lru_cache(maxsize=16)
def searched(evidence: Evidence, family: str) -> tuple[Standing, ...]:
    """All that is tried of a family, as far as it is known to be needed.

    Several settings are compared at one learning rate. The best is trained at learning rates that
    double as long as the last is the best; then with the larger dropout.
    """
    search = Search(evidence, STAGES["rates"].runs)
    if first := settings(evidence, family):
        if len(first) > 1:
            for c in first:
                search.at(c)
        if search.done:
            search.rates(search.best if search.found else first[0], RATES)
            search.dropouts(RATES)
    return tuple(search.found.values())


def rank(s: Standing) -> tuple[float, float, float]:
    return s.mean, s.configuration.learning_rate, s.configuration.dropout


def in_search(evidence: Evidence, family: str) -> list[Standing]:
    """What the family's search has tried, best first; those that are recorded."""
    return sorted((s for s in searched(evidence, family) if s.nats), key=rank)


def settled(evidence: Evidence, family: str) -> bool:
    """Whether the family's search is at its end."""
    found = searched(evidence, family)
    return bool(found) and all(s.complete for s in found)


def known_runs(evidence: Evidence) -> list[Run]:
    """Trials, and of the search what is known by now; a family waits for no other."""
    drawn = [run for family in TRIED for run in trial_runs(family)]
    tried = (s.configuration for family in FAMILIES for s in searched(evidence, family))
    return drawn + [run for c in tried for run in STAGES["rates"].runs(c)]


@lru_cache(maxsize=4)
def chosen(evidence: Evidence) -> Chosen | None:
    """The best of each family; None before all of them are settled."""
    if not all(settled(evidence, family) for family in FAMILIES):
        return None
    first = {family: in_search(evidence, family)[0] for family in FAMILIES}
    rivals = sorted(RIVALS, key=lambda name: first[name].mean)
    return Chosen(
        ours=first[OURS].configuration,
        softmaxes=tuple((name, first[name].configuration) for name in rivals),
    )


def standing(evidence: Evidence, configuration: Configuration, runs: list[Run]) -> Standing:
    """What was recorded of these runs of it."""
    there = _by_seed(evidence, runs[0])
    nats = tuple(there[r.seed] for r in runs if r.seed in there)
    return Standing(configuration, nats, len(runs))


def _by_seed(evidence: Evidence, run: Run) -> dict[int, float]:
    return {
        record.seed: math.inf if has_diverged(record, "valid.") else record.result[JUDGED]
        for record in evidence.records(run)
    }
