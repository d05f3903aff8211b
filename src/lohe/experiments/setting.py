"""Where a study runs: at which scale, on which corpora. Everything else is the recipe's."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from lohe.experiments import recipes
from lohe.models import Mechanism, Oscillator
from lohe.models.positions import Positions
from lohe.tasks import (
    GeneratedClips,
    GeneratedText,
    KeywordFeatures,
    KeywordSpotting,
    Task,
    TinyStories,
    WikiText2,
)
from lohe.train import Run

# The two readings of the mechanism where nothing is padded: anchors are all that differs (D1).
READINGS: Mapping[str, Oscillator] = {
    "as published": Oscillator(anchors="free"),  # they leave the sphere in training
    "as defined": Oscillator(),
}
SCALES = ("smoke", "quick", "full")
EIGHT = ("yes", "no", "up", "down", "left", "right", "stop", "go")
TEN = (*EIGHT, "zero", "one")
STORED = "ln-mel-40x49-hop320-from-20Hz-uint8"  # a front end of others, see docs/data.md


@dataclass(frozen=True, eq=False)
class Corpora:
    """The three corpora that are not generated; `published` where they are the paper's own.

    Where they are not, absolute values are not comparable with the paper's; ratios and gaps are.
    `differs` says what is not the paper's, for reports. Keywords may come in several sets, each
    with a name. `story_epochs` and `story_patience`: a small TinyStories is gone through many
    times, until it stops helping. `story_seeds`: at most so many, where it shows a trend only.
    """

    name: str
    wikitext2: Task
    tinystories: Task
    keywords: Mapping[str, Task]
    published: bool = False
    differs: tuple[str, ...] = ()
    story_epochs: int = 5
    story_patience: int | None = None
    story_seeds: int | None = None


PAPERS = Corpora(
    "paper",
    WikiText2(release="raw"),
    TinyStories(empty="skip"),  # the release has a few hundred that are empty
    {"ten keywords": KeywordSpotting()},
    published=True,
    differs=(
        "TinyStories: the vocabulary and the validation chunks are made from the released corpus; "
        "the authors used files of their own.",
    ),
)
COMPACT = Corpora(
    "compact",
    WikiText2(release="tokens"),
    TinyStories(empty="skip", halves=True),
    {"eight keywords": KeywordFeatures(EIGHT, STORED), "ten words": KeywordFeatures(TEN, STORED)},
    differs=(
        "WikiText-2: the `tokens` release, in which rare words are `<unk>` already and the "
        "training articles come in another order; the paper used the raw one.",
        "TinyStories: 15,140 training stories, 27,096 chunks, of the 4.67 million published; 1,000 "
        "other stories to validate and, the second half of them, to test on. At most 60 epochs, "
        "until 4 bring nothing, instead of 5; three seeds instead of 5 or 10: a trend only.",
        "Keywords: on and off are missing, so eight classes, and ten with zero and one of "
        "version 0.01 (the others are of 0.02, as the paper's); features by another front end, "
        "rounded to 8 bits.",
    ),
    story_epochs=60,
    story_patience=4,
    story_seeds=3,
)
GENERATED = Corpora(
    "generated",
    GeneratedText(examples=24),
    GeneratedText(tokens=40, layout="stories", examples=24),
    {"ten whistles": GeneratedClips()},
    differs=("Generated: sentences and whistles, from which nothing is to be learned.",),
)
CORPORA = {corpora.name: corpora for corpora in (PAPERS, COMPACT)}


@dataclass(frozen=True)
class Setting:
    """A scale, the corpora and a precision; builds the runs of the four tasks for them.

    At smoke scale the corpora are generated: nothing needs to be downloaded, nothing is learned.
    Recorded numbers are float32; runs of another precision have records of their own.
    """

    scale: str = "full"
    chosen: Corpora = field(default=COMPACT)
    precision: str = "float32"

    def __post_init__(self) -> None:
        if self.scale not in SCALES:
            raise ValueError(f"scale={self.scale!r} is not known. Choose from {', '.join(SCALES)}.")

    @property
    def corpora(self) -> Corpora:
        return GENERATED if self.scale == "smoke" else self.chosen

    def none_yet(self, item: str) -> str:
        """For a table without a row of ours: the command that makes records."""
        options = f"--scale {self.scale}"
        options += "" if self.precision == "float32" else f" --precision {self.precision}"
        return f"None of ours yet at scale {self.scale}: lohe run {item} {options}."

    def seeds(self, full: int, quick: int = 2, smoke: int = 1) -> range:
        """Seeds 0, 1, ...: as many as the study asks for at this scale."""
        return range({"full": full, "quick": min(quick, full), "smoke": smoke}[self.scale])

    def seeds_of(self, corpus: str, full: int) -> range:
        """The same for one of the two text corpora, "wikitext2" or "tinystories"."""
        most = self.corpora.story_seeds if corpus == "tinystories" else None
        return self.seeds(min(full, most or full))

    def agreement(self, attention: Mechanism, seed: int = 0) -> Run:
        return self.at_scale(recipes.agreement(attention, seed))

    def wikitext2(self, attention: Mechanism, seed: int = 0) -> Run:
        run = recipes.wikitext2(attention, seed)
        return self.at_scale(replace(run, task=self.corpora.wikitext2))

    def tinystories(self, attention: Mechanism, seed: int = 0) -> Run:
        here = self.corpora
        run = replace(
            recipes.tinystories(attention, seed),
            task=here.tinystories,
            epochs=here.story_epochs,
            patience=here.story_patience,
        )
        return self.at_scale(run)

    def keyword_spotting(
        self, words: str, attention: Mechanism, positions: Positions = "none", seed: int = 0
    ) -> Run:
        """Keyword spotting on one of the sets of `corpora.keywords`."""
        run = recipes.keyword_spotting(attention, positions, seed)
        return self.at_scale(replace(run, task=self.corpora.keywords[words]))

    def at_scale(self, run: Run) -> Run:
        """`smoke` goes through everything in seconds and learns nothing; else the recipe itself."""
        smoke = {"epochs": 2, "limit": 4 * run.batch} if self.scale == "smoke" else {}
        return replace(run, precision=self.precision, **smoke)
