"""Coupling functions on language (Appendix B): softplus, relu + 0.001, elu + 1.

As published: the anchors are free. The same seed starts from the same weights and sees the same
batches (not the same dropout), so differences are taken seed by seed as well.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from lohe.experiments.evidence import Evidence
from lohe.experiments.item import Item
from lohe.experiments.reported import published
from lohe.experiments.setting import Setting
from lohe.experiments.studies.lm.perplexity import (
    CORPORA,
    READINGS,
    UNPRINTED,
    about,
    by_seed,
    if_carried,
    log_ratio,
    mean,
    name,
    run,
    same_ratio,
    same_value,
)
from lohe.experiments.tables import Table, shown, shown_gap
from lohe.experiments.verdicts import (
    Agreement,
    Claim,
    Estimate,
    Line,
    Verdict,
    margin,
    of_sample,
    ours,
    rules,
)
from lohe.models import Oscillator
from lohe.train import Run

SEEDS = 5
READING = "as published"
COUPLINGS: Mapping[str, Oscillator] = {
    sigma: replace(READINGS[READING], d_osc=8, coupling=sigma)
    for sigma in ("softplus", "relu", "elu")
}
EQUAL = 0.01  # lm-coupling: logarithm of a ratio


def runs(setting: Setting) -> list[Run]:
    """Three couplings at d_osc = 8."""
    return [
        run(setting, corpus, mechanism, seed)
        for corpus in CORPORA
        for mechanism in COUPLINGS.values()
        for seed in setting.seeds_of(corpus, SEEDS)
    ]


def printed(sigma: str) -> list[float]:
    """Published on TinyStories, by seed."""
    return published("claim-lm-coupling")[sigma]


def table(evidence: Evidence) -> Table:
    """Perplexity by coupling function, and its differences from softplus seed by seed."""
    rows, recorded = [], False
    for corpus in CORPORA:
        groups = {s: by_seed(evidence, corpus, m) for s, m in COUPLINGS.items()}
        for sigma, found in groups.items():
            if found:
                recorded = True
                pairs = _pairs(found, groups["softplus"])
                cells = (shown(list(found.values()), 3), _listed(pairs, sigma))
                rows.append((f"{CORPORA[corpus]}, {sigma}", str(len(found)), *cells))
    theirs = {s: dict(enumerate(printed(s))) for s in COUPLINGS}
    for sigma, found in theirs.items():
        pairs = _pairs(found, theirs["softplus"])
        cells = (shown(list(found.values()), 3), _listed(pairs, sigma))
        rows.append((f"TinyStories, {sigma}, paper", str(len(found)), *cells))
    columns = ("corpus, coupling", "seeds", "PPL", "less softplus, by seed")
    notes = ["d_osc = 8, free anchors. The same seed starts from the same weights and batches."]
    notes += about(evidence, "claim-lm-coupling", recorded)
    return Table("Appendix B. Coupling functions on language", columns, rows, notes)


def _pairs(a: Mapping[int, float], b: Mapping[int, float]) -> list[tuple[float, float]]:
    """Values of the seeds that both have."""
    return [(a[seed], b[seed]) for seed in sorted(a.keys() & b.keys())]


def _listed(pairs: Sequence[tuple[float, float]], sigma: str) -> str:
    return "" if sigma == "softplus" else " ".join(f"{a - b:+.3f}" for a, b in pairs)


def lines(evidence: Evidence) -> list[Line]:
    """The printed means, their ratios to softplus, and the same seed by seed."""
    return [line for corpus in CORPORA for line in _lines(evidence, corpus)]


def _lines(evidence: Evidence, corpus: str) -> Iterator[Line]:
    setting, reported = evidence.setting, corpus == "tinystories"
    what = name(setting, corpus)
    groups = {s: by_seed(evidence, corpus, m) for s, m in COUPLINGS.items()}
    samples = {s: list(found.values()) for s, found in groups.items()}
    theirs = printed("softplus")
    for sigma, values in samples.items():
        paper = printed(sigma)
        if reported:
            same = same_value(values, of_sample(paper), setting)
            yield Line(f"{what}, {sigma}", shown(paper, 3), shown(values, 3), same, None, READING)
        if sigma == "softplus":
            continue
        expected = log_ratio(of_sample(paper), of_sample(theirs))
        same = if_carried(same_ratio(values, samples["softplus"], expected), setting, corpus)
        yield Line(
            f"{what}, {sigma} less softplus",
            shown_gap(paper, theirs, 3) if reported else UNPRINTED,
            shown_gap(values, samples["softplus"], 3),
            same if reported or same == "no records" else "not reported",
            reading=READING,
        )
        yield _paired_line(evidence, corpus, sigma, groups)
    claim = equal_couplings(samples)
    verdict: Verdict = "not reported" if all(samples.values()) else "no records"
    yield Line(f"{what}, relu, elu like softplus", "yes", claim.verdict, verdict, claim, READING)


def _paired_line(
    evidence: Evidence, corpus: str, sigma: str, groups: Mapping[str, Mapping[int, float]]
) -> Line:
    """Differences of the same seed: they tell more than the means (D24)."""
    setting, reported = evidence.setting, corpus == "tinystories"
    pairs = _pairs(groups[sigma], groups["softplus"])
    theirs = list(zip(printed(sigma), printed("softplus"), strict=True))
    found, paper = paired(pairs), paired(theirs)
    assert paper is not None
    same: Agreement | Verdict = "inconclusive" if pairs else "no records"
    if found is not None:
        same = Agreement(found - paper, margin("perplexity_ratio")) if reported else "not reported"
        same = if_carried(same, setting, corpus)
    notes = [f"p = {found.p:.2g} by pairs"] if found else []
    if reported:
        notes.append(f"published p = {paper.p:.2g} by pairs")
        notes += ['its "pooled std 0.10" is sqrt(s1² + s2²)'] if sigma == "relu" else []
    return Line(
        f"{name(setting, corpus)}, {sigma} less softplus, by seed",
        _listed(theirs, sigma) if reported else UNPRINTED,
        _listed(pairs, sigma) or "no records",
        same,
        reading=READING,
        note="; ".join(notes),
    )


def paired(pairs: Sequence[tuple[float, float]]) -> Estimate | None:
    """Mean of ln(a / b) over pairs; None where it has no error."""
    usable = len(pairs) > 1 and all(math.isfinite(x) for pair in pairs for x in pair)
    return ours([math.log(a / b) for a, b in pairs]) if usable else None


def equal_couplings(samples: Mapping[str, Sequence[float]]) -> Claim:
    """lm-coupling: relu and elu within 1 % of softplus by their 90 % intervals."""
    means = {sigma: mean(values) for sigma, values in samples.items()}
    base, said, holds = means["softplus"], [], True
    for sigma in ("relu", "elu"):
        other = means[sigma]
        if base is None or other is None:
            return Claim("lm-coupling", None, "fewer than two usable runs of a coupling")
        low, high = log_ratio(other, base).interval(rules()["levels"]["reproduced"])
        holds = holds and low >= -EQUAL and high <= EQUAL
        said.append(f"{sigma} {100 * low:+.2f} to {100 * high:+.2f} %")
    return Claim("lm-coupling", holds, f"90 % intervals against softplus: {', '.join(said)}")


ITEMS = {
    "claim-lm-coupling": Item(
        title="Appendix B. Coupling functions on language",
        runs=runs,
        table=table,
        lines=lines,
    ),
}
