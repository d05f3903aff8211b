"""What the paper says of rank, line by line: Appendix E and Figure 10."""

from itertools import pairwise
from math import isfinite, log
from statistics import fmean

from lohe.experiments.evidence import Evidence
from lohe.experiments.reported import published
from lohe.experiments.setting import READINGS
from lohe.experiments.studies.lm.perplexity import CORPORA, if_carried, oscillator
from lohe.experiments.studies.rank import cohort, effective_rank, rank_matched, truncation
from lohe.experiments.studies.rank.cohort import DIMENSIONS, SHARPENED, known, listed
from lohe.experiments.tables import plus_minus
from lohe.experiments.verdicts import Agreement, Claim, Line, bound, exactly, margin
from lohe.theory import readout_rank_bound

RANKS = (3, 5, 9, 17, 33)  # d_osc + 1
ROOM = {"wikitext2": "a cut to 33 leaves more of 49 tokens than of the paper's 127"}
VERSIONS = {"as published": "as_published", "as defined": "causal"}  # of a truncated model


def lines(evidence: Evidence) -> list[Line]:
    """Claims on both corpora, then the numbers that the paper prints for TinyStories."""
    found = []
    for corpus in CORPORA:
        for reading in READINGS:
            found.append(_rank_claim(evidence, corpus, reading))
            found.append(_mask_claim(evidence, corpus, reading))
            found.append(_truncation_claim(evidence, corpus, reading))
            found.append(_every_rank_claim(evidence, corpus, reading))
            found.append(_recovered_claim(evidence, corpus, reading))
            found += [_sharpened_line(evidence, corpus, reading, d, p) for d, p in SHARPENED]
    for reading in READINGS:
        found += [_rank_line(evidence, reading, d) for d in DIMENSIONS]
        found += [_masked_line(evidence, reading, d) for d in DIMENSIONS]
    return found + [_truncated_line(evidence, rank) for rank in RANKS]


def _rank_claim(evidence: Evidence, corpus: str, reading: str) -> Line:
    what = f"{cohort.called(evidence, corpus)}, effective rank of S at d_osc = 2, 4, 8, 16"
    paper = _printed(
        corpus, listed(x["mean"] for x in published("figure10")["similarity"].values())
    )
    ranks = known(effective_rank.by_dimension(evidence, corpus, reading, "similarity.mean"))
    if ranks is None:
        return cohort.undecided(what, paper, "lm-rank", reading)
    below = all(x <= d + 1 for d, x in ranks.items())
    growing = all(a < b for a, b in pairwise(ranks.values()))
    said = f"{'all' if below else 'not all'} at most d_osc + 1, {'' if growing else 'not '}growing"
    claim = Claim("lm-rank", below and growing, said)
    return Line(what, paper, listed(ranks.values()), "not reported", claim, reading)


def _mask_claim(evidence: Evidence, corpus: str, reading: str) -> Line:
    what = (
        f"{cohort.called(evidence, corpus)}, effective rank after the mask at d_osc = 2, 4, 8, 16"
    )
    paper = _printed(corpus, "around 40")
    ranks = known(effective_rank.by_dimension(evidence, corpus, reading, "attention.mean"))
    if ranks is None:
        return cohort.undecided(what, paper, "lm-mask-rank", reading)
    spread = max(ranks.values()) / min(ranks.values())
    holds = spread <= bound("lm-mask-rank")
    claim = Claim("lm-mask-rank", holds, f"largest over smallest {spread:.3f}")
    return Line(what, paper, listed(ranks.values(), 1), "not reported", claim, reading)


def _truncation_claim(evidence: Evidence, corpus: str, reading: str) -> Line:
    """As published: free anchors, and a truncation that leaks; as defined: neither."""
    what = "softmax cut to rank 3, 5, 9, 17 against d_osc = 2, 4, 8, 16"
    what = f"{cohort.called(evidence, corpus)}, {what}"
    cut = known(
        {d: truncation.found(evidence, corpus, d + 1).get(VERSIONS[reading]) for d in DIMENSIONS}
    )
    whole = known({d: _oscillator(evidence, corpus, reading, d) for d in DIMENSIONS})
    paper = _printed(corpus, listed(list(published("figure10")["truncated"].values())[:4]))
    if cut is None or whole is None:
        return cohort.undecided(what, paper, "lm-truncation", reading)
    above = all(cut[d] > whole[d] for d in DIMENSIONS)
    claim = Claim("lm-truncation", above, f"oscillators {listed(whole.values())}")
    return Line(what, paper, listed(cut.values()), "not reported", claim, reading)


def _every_rank_claim(evidence: Evidence, corpus: str, reading: str) -> Line:
    """At rank 33, too, and above softmax that is trained with scores of low rank."""
    what = "softmax cut to rank 33 against d_osc = 32 and softmax as it is"
    what = f"{cohort.called(evidence, corpus)}, {what}"
    cut, whole, matched = _at_ranks(evidence, corpus, reading)
    paper = "TinyStories only"
    if corpus == "tinystories":
        theirs = published("table4")["tinystories"]
        paper = f"{published('figure10')['truncated']['33']:.2f} against "
        paper += listed((fmean(theirs["oscillator"]["32"]), fmean(theirs["softmax"])))
    if cut is None or whole is None or matched is None:
        return cohort.undecided(what, paper, "lm-truncation-every", reading)
    above = [r for r in RANKS if cut[r] > max(whole[r], matched[r])]
    growing = all(cut[a] > cut[b] for a, b in pairwise(RANKS))
    said = f"above both at {len(above)} of {len(RANKS)} ranks, {'' if growing else 'not '}falling"
    said += f"; oscillators {listed(whole.values())}, softmax of rank d {listed(matched.values())}"
    claim = Claim("lm-truncation-every", growing and len(above) == len(RANKS), said)
    ours = f"{cut[33]:.2f} against {whole[33]:.2f}, {matched[33]:.2f}"
    note = ROOM.get(corpus, "")
    return Line(what, paper, ours, "not reported", claim, reading, note)


def _recovered_claim(evidence: Evidence, corpus: str, reading: str) -> Line:
    """What a low rank costs a model that was not trained with it, and models that were."""
    what = (
        f"{cohort.called(evidence, corpus)}, "
        "gap to softmax at rank 3: cut, d_osc = 2, scores of rank 2"
    )
    cut, whole, matched = _at_ranks(evidence, corpus, reading)
    paper = "TinyStories only"
    if corpus == "tinystories":
        theirs, softmax = published("table4")["tinystories"], rank_matched.published_means()
        at = published("figure10")["truncated"]["3"], fmean(theirs["oscillator"]["2"]), softmax[2]
        paper = listed(x - softmax[rank_matched.FULL] for x in at)
    if cut is None or whole is None or matched is None:
        return cohort.undecided(what, paper, "lm-truncation-recovered", reading)
    lost, *trained = (x[3] - matched[33] for x in (cut, whole, matched))
    said = "the cut costs nothing"
    if lost > 0:
        kept = ", ".join(f"{100 * x / lost:.0f} %" for x in trained)
        said = f"trained models keep {kept} of what the cut costs"
    claim = Claim("lm-truncation-recovered", lost > 0 and max(trained) < lost / 2, said)
    ours = listed((lost, *trained))
    return Line(what, paper, ours, "not reported", claim, reading)


def _at_ranks(
    evidence: Evidence, corpus: str, reading: str
) -> tuple[dict[int, float] | None, dict[int, float] | None, dict[int, float] | None]:
    """Perplexities at every rank ceiling r: softmax cut to r, d_osc = r - 1, scores of r - 1."""
    version = VERSIONS[reading]
    cut = known({r: truncation.found(evidence, corpus, r).get(version) for r in RANKS})
    whole = known({r: _oscillator(evidence, corpus, reading, r - 1) for r in RANKS})
    found = rank_matched.perplexities(evidence, corpus)
    matched = known({r: fmean(found[r - 1]) if found[r - 1] else None for r in RANKS})
    return cut, whole, matched


def _sharpened_line(evidence: Evidence, corpus: str, reading: str, d: int, p: int) -> Line:
    """Does the rank before the mask stay at d_osc + 1 when the readout is sharpened? (D26)"""
    what = f"{cohort.called(evidence, corpus)}, rank of S^p before the mask, d_osc = {d}, p = {p}"
    found = effective_rank.found(evidence, corpus, oscillator(reading, d, p))
    paper = f"at most {d + 1} for every p"
    if "sharpened.rank" not in found:
        return Line(what, paper, "", "no records", reading=reading)
    excess = max(0.0, found["sharpened.rank"] - (d + 1))
    bound = readout_rank_bound(d, p)
    note = (
        f"bound {bound}, effective rank {found['sharpened.mean']:.2f} "
        f"against {found['similarity.mean']:.2f} of S itself"
    )
    same = if_carried(Agreement(exactly(excess), margin("exact")), evidence.setting, corpus)
    return Line(what, paper, f"{found['sharpened.rank']:.0f}", same, None, reading, note)


def _rank_line(evidence: Evidence, reading: str, d: int) -> Line:
    paper = published("figure10")["similarity"][str(d)]
    ours = effective_rank.found(evidence, "tinystories", oscillator(reading, d))
    mean = ours.get("similarity.mean")
    return Line(
        f"{cohort.called(evidence, 'tinystories')}, effective rank of S, d_osc = {d}",
        plus_minus(paper["mean"], paper["std"]),
        "" if mean is None else plus_minus(mean, ours["similarity.std"]),
        cohort.one_model(evidence, _log_ratio(mean, paper["mean"]), "relative_rank"),
        reading=reading,
    )


def _masked_line(evidence: Evidence, reading: str, d: int) -> Line:
    paper = published("figure10")["attention"][str(d)]
    mean = effective_rank.found(evidence, "tinystories", oscillator(reading, d)).get(
        "attention.mean"
    )
    return Line(
        f"{cohort.called(evidence, 'tinystories')}, effective rank after the mask, d_osc = {d}",
        f"{paper:.1f}",
        "" if mean is None else f"{mean:.1f}",
        cohort.one_model(evidence, _log_ratio(mean, paper), "relative_rank"),
        reading=reading,
    )


def _truncated_line(evidence: Evidence, rank: int) -> Line:
    """Perplexity of the truncated model over that of the whole one."""
    paper = published("figure10")["truncated"][str(rank)]
    whole = published("table4")["tinystories"]["softmax"][0]
    found = truncation.found(evidence, "tinystories", rank)
    ours, note, difference = "", "", None
    if found:
        ours = f"{found['as_published']:.2f} / {found['whole']:.2f}"
        note = f"with the mask applied again {found['causal']:.2f}"
        ratio = _log_ratio(found["as_published"], found["whole"])
        difference = None if ratio is None else ratio - log(paper / whole)
    name = cohort.called(evidence, "tinystories")
    return Line(
        f"{name}, softmax cut to rank {rank}, over the whole model",
        f"{paper:.2f} / {whole:.2f}",
        ours,
        cohort.one_model(evidence, difference, "perplexity_ratio"),
        reading="as published",
        note=note,
    )


def _oscillator(evidence: Evidence, corpus: str, reading: str, d: int) -> float | None:
    """Mean perplexity over seeds."""
    found = cohort.perplexities(evidence, corpus, oscillator(reading, d))
    return fmean(found) if found else None


def _log_ratio(ours: float | None, theirs: float) -> float | None:
    return log(ours / theirs) if ours is not None and isfinite(ours) and ours > 0 else None


def _printed(corpus: str, numbers: str) -> str:
    """The paper measures on TinyStories only."""
    return numbers if corpus == "tinystories" else "TinyStories only"
