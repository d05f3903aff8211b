"""Records as if language models had been trained, with perplexities of one's choice."""

from collections.abc import Iterable, Mapping, Sequence

from invented import record

from lohe.experiments.evidence import Evidence
from lohe.experiments.setting import COMPACT, PAPERS, Setting
from lohe.experiments.store.records import Record
from lohe.experiments.studies.lm.language_modeling import (
    DIMENSIONS,
    printed_oscillator,
    printed_softmax,
)
from lohe.experiments.studies.lm.perplexity import CORPORA, oscillator, run
from lohe.models import Softmax
from lohe.train import Run

ON_OURS, ON_THEIRS = Setting("full", COMPACT), Setting("full", PAPERS)
METRICS = ("valid.perplexity", "valid_published.perplexity", "test.perplexity", "valid.accuracy")


def records(run: Run, values: Sequence[float], **others: float) -> list[Record]:
    """A record a seed, with every metric at its value; `others` are factors of further metrics."""
    return [
        record(
            run.recipe(),
            seed,
            dict.fromkeys(METRICS, x) | {k: f * x for k, f in others.items()},
        )
        for seed, x in enumerate(values)
    ]


def evidence(setting: Setting, values: Mapping[Run, Sequence[float]]) -> Evidence:
    """Values by seed of each run."""
    return Evidence([r for run_, xs in values.items() for r in records(run_, xs)], setting)


def as_printed(setting: Setting, dimensions: Iterable[int] = (*DIMENSIONS, 64)) -> dict:
    """The published perplexities, as if they were ours."""
    found = {}
    for corpus in CORPORA:
        found[run(setting, corpus, Softmax())] = printed_softmax(corpus)
        for d in dimensions:
            model = oscillator("as published", d)
            found[run(setting, corpus, model)] = printed_oscillator(corpus, d)
    return found


def by_what(lines) -> dict:
    """Lines by what they are of, and their reading."""
    return {(line.what, line.reading): line for line in lines}
