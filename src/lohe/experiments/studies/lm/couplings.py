"""Coupling functions on language (Appendix B): softplus, relu + 0.001, elu + 1.

The same seed starts from the same weights and sees the same
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
    about,
    by_seed,
    change,
    compared,
    log_ratio,
    name,
    percent,
    run,
    same_ratio,
    same_value,
    told,
)
from lohe.experiments.tables import Table, shown, shown_gap
from lohe.experiments.verdicts import (
    Agreement,
    Claim,
    Estimate,
    Line,
    Verdict,
    bound,
    margin,
    mean,
    of_sample,
    ours,
    rules,
)
from lohe.models import Oscillator
from lohe.train import Run

SEEDS = 5
SIGMAS = ("softplus", "relu", "elu")
# of TinyStories, which carries no verdict, only what was published
STUDIED = tuple(
    (c, r) for c in CORPORA for r in READINGS if (c, r) != ("tinystories", "as defined")
)


def coupled(reading: str, sigma: str) -> Oscillator:
    return replace(READINGS[reading], d_osc=8, coupling=sigma)


def runs(setting: Setting) -> list[Run]:
    """Three couplings at d_osc = 8."""
    return [
        run(setting, corpus, coupled(reading, sigma), seed)
        for corpus, reading in STUDIED
        for sigma in SIGMAS
        for seed in setting.seeds_of(corpus, SEEDS)
    ]


def found(evidence: Evidence, corpus: str, reading: str) -> dict[str, dict[int, float]]:
    """Our perplexities by coupling and seed."""
    return {s: by_seed(evidence, corpus, coupled(reading, s)) for s in SIGMAS}


def printed(sigma: str) -> list[float]:
    """Published on TinyStories, by seed."""
    return published("claim-lm-coupling")[sigma]


def table(evidence: Evidence) -> Table:
    """Perplexity by coupling function, and its differences from softplus seed by seed."""
    cohorts = {f"{CORPORA[c]}, {{}}, {r}": found(evidence, c, r) for c, r in STUDIED}
    recorded = any(values for groups in cohorts.values() for values in groups.values())
    cohorts["TinyStories, {}, paper"] = {s: dict(enumerate(printed(s))) for s in SIGMAS}
    rows = []
    for who, groups in cohorts.items():
        for sigma, values in groups.items():
            if values:
                pairs = _pairs(values, groups["softplus"])
                cells = (shown(list(values.values()), 3), _listed(pairs, sigma))
                rows.append((who.format(sigma), str(len(values)), *cells))
    columns = ("corpus, coupling", "seeds", "PPL", "less softplus, by seed")
    notes = [
        "d_osc = 8; as published with free anchors, as defined on the sphere (WikiText-2 only). "
        "The same seed starts from the same weights and batches."
    ]
    notes += about(evidence, "claim-lm-coupling", recorded)
    return Table("Appendix B. Coupling functions on language", columns, rows, notes)


def _pairs(a: Mapping[int, float], b: Mapping[int, float]) -> list[tuple[float, float]]:
    """Values of the seeds that both have."""
    return [(a[seed], b[seed]) for seed in sorted(a.keys() & b.keys())]


def _listed(pairs: Sequence[tuple[float, float]], sigma: str) -> str:
    return "" if sigma == "softplus" else " ".join(f"{a - b:+.3f}" for a, b in pairs)


def lines(evidence: Evidence) -> list[Line]:
    """The printed means, their ratios to softplus, and the same seed by seed."""
    return [line for corpus, reading in STUDIED for line in _lines(evidence, corpus, reading)]


def _lines(evidence: Evidence, corpus: str, reading: str) -> Iterator[Line]:
    setting = evidence.setting
    what = name(setting, corpus)
    groups = found(evidence, corpus, reading)
    samples = {sigma: list(values.values()) for sigma, values in groups.items()}
    theirs = printed("softplus")
    for sigma, values in samples.items():
        paper = printed(sigma)
        if corpus == "tinystories":
            same = same_value(values, of_sample(paper), setting)
            yield Line(f"{what}, {sigma}", shown(paper, 3), shown(values, 3), same, None, reading)
        if sigma == "softplus":
            continue
        expected = log_ratio(of_sample(paper), of_sample(theirs))
        yield Line(
            f"{what}, {sigma} less softplus",
            told(setting, corpus, shown_gap(paper, theirs, 3), expected),
            change(values, samples["softplus"], 3),
            compared(setting, corpus, same_ratio(values, samples["softplus"], expected)),
            reading=reading,
        )
        yield _paired_line(setting, corpus, reading, sigma, groups)
    claim = equal_couplings(samples)
    verdict: Verdict = "not reported" if all(samples.values()) else "no records"
    yield Line(f"{what}, relu, elu like softplus", "yes", claim.verdict, verdict, claim, reading)


def _paired_line(
    setting: Setting,
    corpus: str,
    reading: str,
    sigma: str,
    groups: Mapping[str, Mapping[int, float]],
) -> Line:
    """Differences of the same seed: they tell more than the means (D24)."""
    pairs = _pairs(groups[sigma], groups["softplus"])
    theirs = list(zip(printed(sigma), printed("softplus"), strict=True))
    here, paper = paired(pairs), paired(theirs)
    assert paper is not None
    same: Agreement | Verdict = "inconclusive" if pairs else "no records"
    if here is not None:
        same = Agreement(here - paper, margin("perplexity_ratio"), effect=paper.value)
    notes = [f"p = {here.p:.2g} by pairs"] if here else []
    if corpus == "tinystories":
        notes.append(f"published p = {paper.p:.2g} by pairs")
        notes += ['its "pooled std 0.10" is sqrt(s1² + s2²)'] if sigma == "relu" else []
    return Line(
        f"{name(setting, corpus)}, {sigma} less softplus, by seed",
        told(setting, corpus, f"{_listed(theirs, sigma)}, mean", paper),
        f"{_listed(pairs, sigma)}, mean = {percent(here)}" if here else _listed(pairs, sigma),
        compared(setting, corpus, same),
        reading=reading,
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
    most = bound("lm-coupling")
    for sigma in ("relu", "elu"):
        other = means[sigma]
        if base is None or other is None:
            return Claim("lm-coupling", None, "fewer than two usable runs of a coupling")
        low, high = log_ratio(other, base).interval(rules()["levels"]["reproduced"])
        holds = holds and low >= -most and high <= most
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
