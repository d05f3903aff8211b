"""Perplexities of language models: which run, which metric, and what they are compared by.

Absolute perplexities mean nothing on another corpus, ratios to softmax in the same cohort do: two
models are compared by the logarithm of the ratio of their means.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from lohe.experiments.evidence import Evidence
from lohe.experiments.setting import READINGS, Setting
from lohe.experiments.tables import shown_gap
from lohe.experiments.verdicts import Agreement, Estimate, Verdict, log, margin, mean
from lohe.models import Mechanism, Oscillator
from lohe.tasks import Task
from lohe.train import Run

CORPORA: Mapping[str, str] = {"wikitext2": "WikiText-2", "tinystories": "TinyStories"}
UNPRINTED = "not in the paper"
TREND = "a trend only, from 27,096 training chunks against the published 4.67 million"
PROTOCOL = "WikiText-2 is scored by the published protocol: inserted end marks count."


def oscillator(reading: str, d_osc: int, sharpness: float = 1) -> Oscillator:
    return replace(READINGS[reading], d_osc=d_osc, sharpness=sharpness)


def run(setting: Setting, corpus: str, attention: Mechanism, seed: int = 0) -> Run:
    """The corpus's recipe with this attention."""
    make = {"wikitext2": setting.wikitext2, "tinystories": setting.tinystories}[corpus]
    return make(attention, seed)


def runs(setting: Setting, mechanisms: Sequence[Mechanism], seeds: int) -> list[Run]:
    """All of them on both corpora, so many seeds of each at full scale."""
    return [
        run(setting, corpus, mechanism, seed)
        for corpus in CORPORA
        for mechanism in mechanisms
        for seed in setting.seeds_of(corpus, seeds)
    ]


def metric(setting: Setting, corpus: str) -> str:
    """What is reported: as published, unless stories were kept back from selection."""
    if corpus == "wikitext2":
        return "valid_published.perplexity"
    return f"{reported(setting.corpora.tinystories)}.perplexity"


def reported(task: Task) -> str:
    """The split that is reported: the one that epochs are selected on, as published, unless the
    task keeps half of it back."""
    return "test" if getattr(task, "halves", False) else "valid"


def by_seed(evidence: Evidence, corpus: str, attention: Mechanism) -> dict[int, float]:
    """Of our runs."""
    setting = evidence.setting
    records = evidence.records(run(setting, corpus, attention))
    return {record.seed: record.result[metric(setting, corpus)] for record in records}


def perplexities(evidence: Evidence, corpus: str, attention: Mechanism) -> list[float]:
    """Of our runs, in order of seed."""
    return list(by_seed(evidence, corpus, attention).values())


def log_ratio(a: Estimate, b: Estimate) -> Estimate:
    """ln(a / b) with its standard error."""
    return log(a) - log(b)


def same_ratio(a: Sequence[float], b: Sequence[float], paper: Estimate) -> Agreement | Verdict:
    """Is ln(mean a / mean b) of our runs the paper's?"""
    if not a or not b:
        return "no records"
    over, under = mean(a), mean(b)
    if over is None or under is None:
        return "inconclusive"
    difference = log_ratio(over, under) - paper
    return Agreement(difference, margin("perplexity_ratio"), effect=paper.value)


def same_value(values: Sequence[float], paper: Estimate, setting: Setting) -> Agreement | Verdict:
    """Is our perplexity the paper's? Asked on the paper's corpora only."""
    if not values:
        return "no records"
    if not setting.corpora.published:
        return "not comparable"
    found = mean(values)
    return (
        Agreement(log_ratio(found, paper), margin("perplexity_ratio")) if found else "inconclusive"
    )


def is_trend(setting: Setting, corpus: str) -> bool:
    """A corpus far smaller than the published one shows a trend."""
    return corpus == "tinystories" and not setting.corpora.published


def if_carried(same: Agreement | Verdict, setting: Setting, corpus: str) -> Agreement | Verdict:
    """What a line says of its value; a trend carries no verdict."""
    judged = isinstance(same, Agreement) and is_trend(setting, corpus)
    return "not comparable" if judged else same


def stands_in(setting: Setting, corpus: str) -> bool:
    """WikiText-2 carries the verdict on what the paper has of TinyStories alone, where ours is a
    trend: its ratios are judged by the paper's."""
    return corpus == "wikitext2" and is_trend(setting, "tinystories")


def compared(setting: Setting, corpus: str, same: Agreement | Verdict) -> Agreement | Verdict:
    """What a line says that is about a number of the paper's on TinyStories."""
    if corpus == "tinystories":
        return if_carried(same, setting, corpus)
    return same if stands_in(setting, corpus) or same == "no records" else "not reported"


def told(setting: Setting, corpus: str, printed: str, expected: Estimate) -> str:
    """The paper's change on TinyStories, for a line about this corpus."""
    if corpus == "tinystories":
        return printed
    if not stands_in(setting, corpus):
        return UNPRINTED
    return f"{printed} = {percent(expected)} (TinyStories)"


def percent(log_of_ratio: Estimate) -> str:
    """+1.23 %: what a logarithm of a ratio means."""
    return f"{100 * math.expm1(log_of_ratio.value):+.2f} %"


def change(a: Sequence[float], b: Sequence[float], digits: int = 2) -> str:
    """-2.07 = -1.93 %: of the mean, in perplexity and relative to b's."""
    over, under = mean(a), mean(b)
    relative = f" = {percent(log_ratio(over, under))}" if over and under else ""
    return shown_gap(a, b, digits) + relative


def name(setting: Setting, corpus: str) -> str:
    """For people."""
    return f"{CORPORA[corpus]} (trend)" if is_trend(setting, corpus) else CORPORA[corpus]


def protocol(corpus: str) -> str:
    """How the corpus is scored, for titles: WikiText-2 can be in two ways."""
    return ", published protocol" if corpus == "wikitext2" else ""


def about(
    evidence: Evidence, item: str, recorded: bool, corpora: Collection[str] = CORPORA
) -> list[str]:
    """Notes that every table of language models ends with."""
    setting = evidence.setting
    if not recorded:
        return [setting.none_yet(item)]
    if setting.scale == "smoke":
        return ["Smoke scale: generated data, nothing has been learned."]
    notes = [PROTOCOL] if "wikitext2" in corpora else []
    if setting.corpora.published:
        return notes
    differs = {
        "wikitext2": "WikiText-2 here is the `tokens` release; the paper used the raw one: "
        "perplexities are not comparable, their ratios are.",
        "tinystories": f"TinyStories here shows {TREND}, gone through up to "
        f"{setting.corpora.story_epochs} times; scored on the half of the validation stories that "
        "no epoch was selected on.",
    }
    return notes + [differs[corpus] for corpus in corpora]


def ratio(a: Sequence[float], b: Sequence[float]) -> str:
    """The ratio of the means, and their difference: 1.118 (+11.67)."""
    return f"{fmean(a) / fmean(b):.3f} ({shown_gap(a, b)})" if a and b else "no records"
