"""What studies of rank are tested on: records of the published numbers."""

from functools import cached_property

import language_records
from invented import measured
from torch import Tensor

from lohe.experiments.evidence import Evidence
from lohe.experiments.measures import Bench
from lohe.experiments.reported import published
from lohe.experiments.setting import COMPACT, READINGS, Corpora, Setting
from lohe.experiments.store.records import Record
from lohe.experiments.studies.lm.perplexity import CORPORA, oscillator, run
from lohe.experiments.studies.rank import cohort, effective_rank, truncation
from lohe.experiments.studies.rank.attention_entropy import AttentionEntropy
from lohe.models import Mechanism, RankMatchedSoftmax, Softmax
from lohe.train import Run

RANKS = (3, 5, 9, 17, 33)
SPREAD = (-0.02, -0.01, 0.0, 0.01, 0.02)  # of seeds of which only the mean is published


def tokens_of(bench: Bench, run: Run, chunks: int) -> Tensor:
    return bench.data(run).valid.take(slice(chunks)).inputs["tokens"]


class MadeUp:
    """Everything that Figures 9 and 10 read, equal to the published values where there are any."""

    def __init__(self, scale: str = "full", corpora: Corpora = COMPACT):
        self.setting = Setting(scale, corpora)

    @cached_property
    def evidence(self) -> Evidence:
        return Evidence(self.records, self.setting)

    @cached_property
    def records(self) -> list[Record]:
        return [*self.runs(), *self.measured()]

    def measured(self) -> list[Record]:
        return [*self.ranks(), *self.cuts(), *self.entropies()]

    def runs(self) -> list[Record]:
        found = []
        for corpus in CORPORA:
            table = published("table4")[corpus]
            found += language_records.records(self.of(corpus, Softmax()), table["softmax"])
            for reading in READINGS:
                for d, values in table["oscillator"].items():
                    mechanism = oscillator(reading, int(d))
                    found += language_records.records(self.of(corpus, mechanism), values)
            times = 1 if corpus == "tinystories" else 11.4
            for d, mean in published("figure10")["rank_matched"].items():
                values = [times * (mean + x) for x in SPREAD]
                found += language_records.records(
                    self.of(corpus, RankMatchedSoftmax(d_qk=int(d))), values
                )
        return found

    def ranks(self) -> list[Record]:
        paper, found = published("figure10"), []
        for corpus in CORPORA:
            softmax = paper["softmax_attention"]
            result = {"attention.mean": softmax["mean"], "attention.std": softmax["std"]}
            found.append(measured(effective_rank.of(self.setting, corpus, Softmax()), result))
            for reading in READINGS:
                for d, s in paper["similarity"].items():
                    result = {"similarity.mean": s["mean"], "similarity.std": s["std"]}
                    result |= {"similarity.rank": int(d) + 1, "attention.std": 20.0}
                    result |= {"attention.mean": paper["attention"][d]}
                    mechanism = oscillator(reading, int(d))
                    found.append(
                        measured(effective_rank.of(self.setting, corpus, mechanism), result)
                    )
        return found

    def cuts(self) -> list[Record]:
        found = []
        for corpus in CORPORA:
            times = 1 if corpus == "tinystories" else 11.4
            whole = published("table4")[corpus]["softmax"][0]
            for r in RANKS:
                leaks = times * published("figure10")["truncated"][str(r)]
                result = {"as_published": leaks, "causal": 1.2 * leaks, "whole": whole}
                found.append(measured(truncation.of(self.setting, corpus, r), result))
        return found

    def entropies(self) -> list[Record]:
        paper, found = published("figure9"), []
        for corpus in CORPORA:
            for reading in READINGS:  # of which the paper says that they are less flat
                for d, p in cohort.SHARPENED:
                    median = paper["oscillator"][str(d)][0] - p / 100
                    run = self.of(corpus, oscillator(reading, d, p))
                    measure = AttentionEntropy(run, cohort.chunks(self.setting))
                    found.append(measured(measure, {"median": median}))
            for name, reading, mechanism in cohort.mechanisms():
                d = name.removeprefix("d_osc = ")
                median, q1, q3 = paper["oscillator"][d] if reading else paper["softmax"]
                result = {"median": median, "q1": q1, "q3": q3, "rows": 88456, "mean": median}
                curve = [{"histogram": triangle(q1, median, q3)}]
                chunks = cohort.chunks(self.setting)
                measure = AttentionEntropy(self.of(corpus, mechanism), chunks)
                found.append(measured(measure, result, curve))
        return found

    def of(self, corpus: str, mechanism: Mechanism) -> Run:
        return run(self.setting, corpus, mechanism)


def triangle(q1: float, median: float, q3: float) -> list[int]:
    """A histogram that rises to the median and falls from it."""
    at = [(n + 0.5) / 100 for n in range(100)]
    sides = [
        (median - x) / (median - q1) if x < median else (x - median) / (q3 - median) for x in at
    ]
    return [max(0, round(1000 * (1 - s / 2.5))) for s in sides]
