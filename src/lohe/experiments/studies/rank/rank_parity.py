"""Is parity reached where d_osc meets softmax's effective rank? A conjecture of Section 4.2."""

import math
from collections.abc import Mapping
from statistics import fmean, stdev

from lohe.experiments.evidence import Evidence
from lohe.experiments.measures import Measure
from lohe.experiments.reported import published
from lohe.experiments.setting import READINGS, Setting
from lohe.experiments.studies.lm import perplexity
from lohe.experiments.studies.lm.perplexity import CORPORA, oscillator
from lohe.experiments.studies.rank import cohort, effective_rank
from lohe.experiments.studies.rank.cohort import few
from lohe.experiments.verdicts import Claim, Line, bound
from lohe.measure.power_law import fit
from lohe.models import Mechanism, Softmax
from lohe.train import Run

FITTED = (2, 4, 8, 16, 32)


def runs(setting: Setting) -> list[Run]:
    """What the power law is fitted to."""
    trained: list[Mechanism] = [Softmax()]
    trained += [oscillator(reading, d) for reading in READINGS for d in few(setting, FITTED)]
    return perplexity.runs(setting, trained, cohort.SEEDS)


def measures(setting: Setting) -> list[Measure]:
    """The effective rank of softmax attention."""
    return [effective_rank.of(setting, corpus, Softmax()) for corpus in CORPORA]


def crossing(gaps: Mapping[int, float], level: float) -> float:
    """The d at which the fitted law of the gaps falls to `level`: (C / level)^(1/α).

    Infinite where the gap does not fall, NaN where one of the gaps is none.
    """
    if level <= 0 or any(not gap > 0 for gap in gaps.values()):
        return math.nan
    law = fit(list(gaps), list(gaps.values()))
    return law.dimension(level) if law.exponent > 0 else math.inf


def lines(evidence: Evidence) -> list[Line]:
    """The conjecture on both corpora, for both readings."""
    return [_line(evidence, corpus, reading) for corpus in CORPORA for reading in READINGS]


def _line(evidence: Evidence, corpus: str, reading: str) -> Line:
    what = "d_osc at which the fitted gap is a deviation of softmax's seeds"
    what = f"{cohort.called(evidence, corpus)}, {what}"
    theirs = published("table4")[corpus]
    paper = f"{_parity(theirs['softmax'], {d: theirs['oscillator'][str(d)] for d in FITTED}):.4g}"
    if corpus == "tinystories":
        paper += f" against rank {published('figure10')['softmax_attention']['mean']:.1f}"
    softmax = cohort.perplexities(evidence, corpus, Softmax())
    oscillators = {d: cohort.perplexities(evidence, corpus, oscillator(reading, d)) for d in FITTED}
    rank = effective_rank.found(evidence, corpus, Softmax()).get("attention.mean", math.nan)
    if math.isnan(rank) or len(softmax) < 2 or not all(oscillators.values()):
        return cohort.undecided(what, paper, "lm-rank-parity", reading)
    d = _parity(softmax, oscillators)
    factor, most = d / rank, bound("lm-rank-parity")
    holds = None if math.isnan(factor) else 1 / most <= factor <= most
    claim = Claim("lm-rank-parity", holds, f"{factor:.3g} times softmax's effective rank")
    note = "the paper's column is our calculation from its numbers"
    return Line(
        what, paper, f"{d:.4g} against rank {rank:.1f}", "not reported", claim, reading, note
    )


def _parity(softmax: list[float], oscillators: Mapping[int, list[float]]) -> float:
    """Where the mean gap to softmax, by the fit, is the deviation of its seeds."""
    gaps = {d: fmean(x) - fmean(softmax) for d, x in oscillators.items()}
    return crossing(gaps, stdev(softmax))
