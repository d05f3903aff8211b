"""All that is known when a table is written: the records, found by what they are records of."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from lohe.experiments.measures import Measure, measure_recipe
from lohe.experiments.setting import Setting
from lohe.experiments.store.records import Record, key
from lohe.train import Run


class Evidence:
    """Records of a store under one setting. Items are pure functions of this."""

    def __init__(self, records: Iterable[Record], setting: Setting):
        self.setting = setting
        self._by_key: dict[str, dict[int, Record]] = {}
        self._keys: dict[Run, str] = {}  # of recipes that were asked for: a key takes a while
        for record in records:
            self._by_key.setdefault(key(record.recipe), {})[record.seed] = record

    def all(self) -> list[Record]:
        """Every record, in no order."""
        return [record for found in self._by_key.values() for record in found.values()]

    def records(self, run: Run) -> list[Record]:
        """Records of the run's recipe, whatever the seed, in order of seed."""
        found = self._of(run)
        return [found[seed] for seed in sorted(found)]

    def recorded(self, run: Run) -> Record | None:
        """The record of this very seed; None where it is not trained yet."""
        return self._of(run).get(run.seed)

    def values(self, run: Run, metric: str) -> list[float]:
        """A metric of the run's recipe, e.g. "valid.perplexity", in order of seed."""
        return [record.result[metric] for record in self.records(run)]

    def measured(self, measure: Measure) -> Record | None:
        """What was found when the measure was taken; None where it was not yet."""
        return self._taken(measure).get(measure.run.seed if measure.run else 0)

    def measured_seeds(self, measure: Measure) -> list[Record]:
        """The same measure on every seed on which it was taken, in order of seed."""
        found = self._taken(measure)
        return [found[seed] for seed in sorted(found)]

    def of(self, runs: Sequence[Run]) -> list[Record]:
        """Records of these very seeds of one recipe, in order of seed."""
        wanted = {run.seed for run in runs}
        return [record for record in self.records(runs[0]) if record.seed in wanted]

    def _of(self, run: Run) -> dict[int, Record]:
        recipe = replace(run, seed=0)
        if recipe not in self._keys:
            self._keys[recipe] = key(recipe.recipe())
        return self._by_key.get(self._keys[recipe], {})

    def _taken(self, measure: Measure) -> dict[int, Record]:
        return self._by_key.get(key(measure_recipe(measure)), {})


def seeded(runs: Iterable[Run], seeds: Iterable[int] | None) -> list[Run]:
    """The same recipes with other seeds; as they are where none are given."""
    runs = list(runs)
    if seeds is None:
        return runs
    recipes = {key(run.recipe()): run for run in runs}
    return [replace(run, seed=seed) for run in recipes.values() for seed in seeds]
