"""The trained models that are run as physics: four tasks, each in both readings."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from lohe.experiments.setting import READINGS, Setting
from lohe.experiments.studies.sva import agreement_cohort
from lohe.train import Run

D_OSC = 8  # of the language models
MOST = 5000  # examples: more than any validation split has but TinyStories' own

Recipe = Callable[[Setting, str, int], Run]


@dataclass(frozen=True)
class Subject:
    """A task, with the number of trained models and of devices that are looked at.

    `metric` is the task's; language models are compared in nats, the logarithm of perplexity.
    `seeds` models are put on `draws` devices each. `subset`: how many examples the published runs
    evaluated, where these were fewer than all; `few`: examples at smoke scale.
    """

    name: str
    recipe: Recipe
    metric: str
    seeds: int
    draws: int
    subset: int | None
    few: int
    readings: tuple[str, ...] = tuple(READINGS)

    @property
    def language(self) -> bool:
        return self.metric == "nats"

    def runs(self, setting: Setting, reading: str) -> list[Run]:
        return [self.recipe(setting, reading, seed) for seed in setting.seeds(self.seeds)]

    def examples(self, setting: Setting) -> int:
        """How many are evaluated: all but in smoke runs, and at most `MOST`."""
        return self.few if setting.scale == "smoke" else MOST


def keyword_set(setting: Setting) -> str:
    """The set of keywords that is looked at: the first."""
    return next(iter(setting.corpora.keywords))


def keywords(setting: Setting, reading: str, seed: int) -> Run:
    """Keyword spotting without positional encoding."""
    return setting.keyword_spotting(keyword_set(setting), READINGS[reading], seed=seed)


def sentences(setting: Setting, reading: str, seed: int) -> Run:
    """Subject-verb agreement; as published, padding is read."""
    return setting.agreement(agreement_cohort.READINGS[reading], seed)


def articles(setting: Setting, reading: str, seed: int) -> Run:
    """WikiText-2."""
    return setting.wikitext2(replace(READINGS[reading], d_osc=D_OSC), seed)


def stories(setting: Setting, reading: str, seed: int) -> Run:
    """TinyStories."""
    return setting.tinystories(replace(READINGS[reading], d_osc=D_OSC), seed)


# Published: one model of each task and 5 draws (3 for settling); for SVA five models
KWS = Subject("KWS", keywords, "accuracy", seeds=5, draws=5, subset=512, few=16)
SVA = Subject("SVA", sentences, "overall", seeds=20, draws=3, subset=None, few=64)
WIKITEXT2 = Subject("WikiText-2", articles, "nats", seeds=3, draws=1, subset=100, few=2)
TINYSTORIES = Subject(
    "TinyStories", stories, "nats", seeds=1, draws=5, subset=100, few=1, readings=("as published",)
)
ONE_READING = "TinyStories as published only: both readings are WikiText-2's."
SUBJECTS = (KWS, SVA, WIKITEXT2, TINYSTORIES)


def carrier(setting: Setting, reading: str) -> Subject:
    """The language model that carries the verdict.

    The paper's is TinyStories'. Where its corpus is a fraction of the published one, it shows a
    trend only, and WikiText-2's takes its place.
    """
    there = setting.corpora.published and reading in TINYSTORIES.readings
    return TINYSTORIES if there else WIKITEXT2
