"""Softmax trained with scores of low rank, against the oscillator of that dimension (App. E)."""

from itertools import pairwise
from statistics import fmean

from lohe.experiments.evidence import Evidence
from lohe.experiments.reported import published
from lohe.experiments.setting import READINGS, Setting
from lohe.experiments.studies.lm import perplexity
from lohe.experiments.studies.lm.perplexity import (
    CORPORA,
    PROTOCOL,
    change,
    compared,
    log_ratio,
    oscillator,
    same_ratio,
    told,
)
from lohe.experiments.studies.rank import cohort
from lohe.experiments.studies.rank.cohort import DIMENSIONS, few, listed
from lohe.experiments.tables import Table, plus_minus
from lohe.experiments.verdicts import Claim, Line, exactly, holm, of_sample, ours, significant
from lohe.measure.significance import mean_std
from lohe.models import Mechanism, RankMatchedSoftmax, Softmax
from lohe.train import Run

FULL = 32  # the width of a head: softmax itself
WIDEST = (*DIMENSIONS, 32)  # oscillators that are compared


def runs(setting: Setting) -> list[Run]:
    """Softmax whole and of every rank, oscillators of every dimension, five seeds."""
    trained: list[Mechanism] = [Softmax()]
    trained += [oscillator(reading, d) for reading in READINGS for d in few(setting, WIDEST)]
    trained += [RankMatchedSoftmax(d_qk=d) for d in few(setting, DIMENSIONS)]
    return perplexity.runs(setting, trained, cohort.SEEDS)


def perplexities(evidence: Evidence, corpus: str) -> dict[int, list[float]]:
    """By the rank of the scores; the last one is softmax as it is."""
    found = {
        d: cohort.perplexities(evidence, corpus, RankMatchedSoftmax(d_qk=d)) for d in DIMENSIONS
    }
    return found | {FULL: cohort.perplexities(evidence, corpus, Softmax())}


def published_means() -> dict[int, float]:
    """What the paper prints for TinyStories; the last one is Table 4's softmax."""
    printed = {int(d): x for d, x in published("figure10")["rank_matched"].items()}
    return printed | {FULL: fmean(published("table4")["tinystories"]["softmax"])}


def table_of_scores(evidence: Evidence) -> Table:
    """Perplexity by rank: softmax of that rank, and oscillators of that dimension."""
    rows = []
    for corpus, title in CORPORA.items():
        for d, matched in perplexities(evidence, corpus).items():
            groups = [matched]
            groups += [
                cohort.perplexities(evidence, corpus, oscillator(reading, d))
                for reading in READINGS
            ]
            if any(groups):
                cells = [plus_minus(*mean_std(x)) if x else "" for x in groups]
                paper = f"{published_means()[d]:.2f}" if corpus == "tinystories" else ""
                rows.append((f"{title}, {d}", *cells, paper))
    notes = [
        "Validation perplexity, mean ± standard deviation over seeds; rank 32 is softmax itself. "
        "The paper's column is its softmax.",
        PROTOCOL,
    ]
    if not rows:
        notes = [evidence.setting.none_yet("claim-rank-matched")]
    columns = ("rank", "softmax", "d_osc, as published", "d_osc, as defined", "paper")
    return Table("Softmax with scores of low rank", columns, rows, notes)


def lines(evidence: Evidence) -> list[Line]:
    """The claim on both corpora, then the printed means relative to softmax."""
    found = []
    for corpus in CORPORA:
        found.append(_descent_line(evidence, corpus))
        for reading in READINGS:
            found.append(_claim_line(evidence, corpus, reading))
            found.append(_part_line(evidence, corpus, reading))
    return found + [_ratio_line(evidence, corpus, d) for corpus in CORPORA for d in DIMENSIONS]


def _descent_line(evidence: Evidence, corpus: str) -> Line:
    """The more directions scores have, the better."""
    what = f"{cohort.called(evidence, corpus)}, softmax with scores of rank 2, 4, 8, 16, 32"
    theirs = published_means().values()
    paper = listed(theirs) if corpus == "tinystories" else "TinyStories only"
    found = perplexities(evidence, corpus)
    if min(map(len, found.values())) < 2:
        return cohort.undecided(what, paper, "lm-rank-descent", "")
    means = [fmean(x) for x in found.values()]
    steps = [b - a for a, b in pairwise(means)]
    claim = Claim(
        "lm-rank-descent", max(steps) < 0, f"steps {', '.join(f'{x:+.2f}' for x in steps)}"
    )
    return Line(what, paper, listed(means), "not reported", claim)


def _part_line(evidence: Evidence, corpus: str, reading: str) -> Line:
    """What the rank of the scores costs softmax, and what the oscillator lacks."""
    what = f"{cohort.called(evidence, corpus)}, gap to softmax: scores of rank 2, and d_osc = 2"
    matched = perplexities(evidence, corpus)
    at_two = cohort.perplexities(evidence, corpus, oscillator(reading, 2))
    paper = "TinyStories only"
    if corpus == "tinystories":
        theirs = published_means()
        whole = fmean(published("table4")["tinystories"]["oscillator"]["2"])
        paper = listed(x - theirs[FULL] for x in (theirs[2], whole))
    if min(len(x) for x in (matched[2], matched[FULL], at_two)) < 2:
        return cohort.undecided(what, paper, "lm-rank-part", reading)
    cost = ours(matched[2]) - ours(matched[FULL])
    rest = ours(at_two) - ours(matched[2])
    holds = all(x.value > 0 and significant(x.p) for x in (cost, rest))
    gaps = [fmean(x) - fmean(matched[FULL]) for x in (matched[2], at_two)]
    said = f"{100 * gaps[0] / gaps[1]:.0f} % of the gap; " if gaps[1] > 0 else ""
    said += f"Welch p = {cost.p:.2g} for the part, {rest.p:.2g} for the rest"
    claim = Claim("lm-rank-part", holds, said, max(cost.p, rest.p))
    return Line(what, paper, listed(gaps), "not reported", claim, reading)


def _claim_line(evidence: Evidence, corpus: str, reading: str) -> Line:
    name = cohort.called(evidence, corpus)
    what = f"{name}, softmax of rank 2, 4, 8, 16 against d_osc = 2, 4, 8, 16"
    matched = perplexities(evidence, corpus)
    oscillators = {
        d: cohort.perplexities(evidence, corpus, oscillator(reading, d)) for d in DIMENSIONS
    }
    paper = "TinyStories only"
    if corpus == "tinystories":
        theirs = published("table4")["tinystories"]["oscillator"]
        paper = f"{listed(list(published_means().values())[:4])} against "
        paper += listed(fmean(theirs[str(d)]) for d in DIMENSIONS)
    if min(len(x) for x in (*matched.values(), *oscillators.values())) < 2:
        return cohort.undecided(what, paper, "lm-rank-matched", reading)
    gaps = [ours(oscillators[d]) - ours(matched[d]) for d in DIMENSIONS]
    p = max(holm([gap.p for gap in gaps]))
    better = all(gap.value > 0 for gap in gaps) and significant(p)
    means = f"{listed(fmean(matched[d]) for d in DIMENSIONS)} against "
    means += listed(fmean(oscillators[d]) for d in DIMENSIONS)
    said = f"largest corrected p = {p:.2g}; gap to softmax at 2: "
    said += _gaps(fmean(matched[FULL]), fmean(matched[2]), fmean(oscillators[2]))
    claim = Claim("lm-rank-matched", better, said, p)
    return Line(what, paper, means, "not reported", claim, reading)


def _gaps(softmax: float, matched: float, oscillator: float) -> str:
    """How much of the oscillator's gap the rank of the scores explains."""
    by_rank, whole = matched - softmax, oscillator - softmax
    share = f", {100 * by_rank / whole:.0f} %" if whole > 0 else ""
    return f"{by_rank:.2f} of {whole:.2f}{share}"


def _ratio_line(evidence: Evidence, corpus: str, d: int) -> Line:
    """Perplexity over softmax's in the same cohort."""
    setting, theirs, found = evidence.setting, published_means(), perplexities(evidence, corpus)
    softmax = of_sample(published("table4")["tinystories"]["softmax"])
    expected = log_ratio(exactly(theirs[d]), softmax)
    same = same_ratio(found[d], found[FULL], expected)
    return Line(
        f"{cohort.called(evidence, corpus)}, softmax of rank {d} less softmax",
        told(setting, corpus, f"{theirs[d] - theirs[FULL]:+.2f}", expected),
        change(found[d], found[FULL]),
        compared(setting, corpus, same),
        note="the spread behind the printed mean is not known",
    )
