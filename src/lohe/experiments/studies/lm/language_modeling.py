"""Causal language modelling: Section 4.2."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import fmean

from lohe.experiments.evidence import Evidence
from lohe.experiments.item import Item
from lohe.experiments.reported import published
from lohe.experiments.setting import Setting
from lohe.experiments.studies.lm import perplexity
from lohe.experiments.studies.lm.perplexity import (
    CORPORA,
    READINGS,
    about,
    if_carried,
    log_ratio,
    name,
    oscillator,
    perplexities,
    ratio,
    run,
    same_ratio,
    same_value,
)
from lohe.experiments.tables import Table, printed_gap, shown, shown_gap
from lohe.experiments.verdicts import Claim, Line, mean, of_sample, significant
from lohe.models import Softmax
from lohe.train import Run

DIMENSIONS = (2, 4, 8, 16, 32)
SEEDS = 5
STRICT = "valid_strict.perplexity"
PPL = "PPL, published protocol"


def runs(setting: Setting) -> list[Run]:
    """Both corpora: softmax, and every d_osc in both readings."""
    oscillators = [oscillator(reading, d) for reading in READINGS for d in DIMENSIONS]
    return perplexity.runs(setting, [Softmax(), *oscillators], SEEDS)


def by_dimension(
    evidence: Evidence, corpus: str, reading: str, dimensions: Sequence[int] = DIMENSIONS
) -> dict[int, list[float]]:
    """Our perplexities of each d_osc."""
    return {d: perplexities(evidence, corpus, oscillator(reading, d)) for d in dimensions}


def softmax(evidence: Evidence, corpus: str) -> list[float]:
    """Our perplexities of the baseline."""
    return perplexities(evidence, corpus, Softmax())


def printed_softmax(corpus: str) -> list[float]:
    """Published, by seed."""
    return published("table4")[corpus]["softmax"]


def printed_oscillator(corpus: str, d_osc: int) -> list[float]:
    """Published, by seed."""
    return published("table4")[corpus]["oscillator"][str(d_osc)]


def table_4(evidence: Evidence) -> Table:
    """Table 4 (tab:lm): perplexity against oscillator dimension, ours beside the published."""
    rows = [row for corpus in CORPORA for row in _rows(evidence, corpus)]
    columns = ("corpus, mechanism", "seeds", PPL, "strict", "gap", "paper", "gap")
    notes = [
        "Lowest validation perplexity over epochs, as published. gap: to softmax's mean. As "
        "published the anchors are free; as defined they stay on the sphere.",
        _about_strict(evidence),
        *about(evidence, "table4", any(softmax(evidence, corpus) for corpus in CORPORA)),
    ]
    return Table("Table 4. Perplexity against oscillator dimension", columns, rows, notes)


def _about_strict(evidence: Evidence) -> str:
    """Of 49 scored words one is the end mark: without it, nats grow by 49/48 at most."""
    base = softmax(evidence, "wikitext2")
    most = f", softmax's {fmean(base):.1f} {fmean(base) ** (49 / 48):.1f}" if base else ""
    return (
        "strict: the same models, scored in windows without inserted marks. Without the end mark, "
        f"free to predict, a perplexity x becomes x^(49/48) at most{most}; the rest is that "
        "the start mark is missing, which the models have always seen in training."
    )


def _rows(evidence: Evidence, corpus: str) -> list[tuple[str, ...]]:
    setting, base, theirs = evidence.setting, softmax(evidence, corpus), printed_softmax(corpus)
    rows = [
        (
            f"{CORPORA[corpus]}, softmax",
            str(len(base)),
            shown(base),
            _strict(evidence, run(setting, corpus, Softmax())),
            "",
            shown(theirs),
            "",
        )
    ]
    for d in DIMENSIONS:
        for reading in READINGS:
            values = perplexities(evidence, corpus, oscillator(reading, d))
            paper = printed_oscillator(corpus, d) if reading == "as published" else []
            if values or paper:
                rows.append(
                    (
                        f"d_osc = {d}, {reading}",
                        str(len(values)),
                        shown(values),
                        _strict(evidence, run(setting, corpus, oscillator(reading, d))),
                        shown_gap(values, base) if values else "",
                        shown(paper) if paper else "",
                        printed_gap(paper, theirs) if paper else "",
                    )
                )
    return rows


def _strict(evidence: Evidence, run: Run) -> str:
    """Perplexity by the strict protocol, which only WikiText-2 has; of how many seeds, where some
    were recorded without."""
    records = evidence.records(run)
    values = [r.result[STRICT] for r in records if STRICT in r.result]
    few = f" ({len(values)} of {len(records)})" if len(values) < len(records) else ""
    return shown(values) + few if values else ""


def lines(evidence: Evidence) -> list[Line]:
    """Every cell of Table 4, and the trend."""
    return [line for corpus in CORPORA for line in _lines(evidence, corpus)]


def _lines(evidence: Evidence, corpus: str) -> Iterator[Line]:
    setting, what = evidence.setting, name(evidence.setting, corpus)
    base, theirs = softmax(evidence, corpus), printed_softmax(corpus)
    same = same_value(base, of_sample(theirs), setting)
    yield Line(f"{what}, softmax", shown(theirs), shown(base), same)
    for reading in READINGS:
        samples = by_dimension(evidence, corpus, reading)
        for d, values in samples.items():
            paper = printed_oscillator(corpus, d)
            if reading == "as published":
                same = same_value(values, of_sample(paper), setting)
                yield Line(f"{what}, d_osc = {d}", shown(paper), shown(values), same, None, reading)
            expected = log_ratio(of_sample(paper), of_sample(theirs))
            yield Line(
                f"{what}, d_osc = {d} to softmax, ratio (gap)",
                f"{fmean(paper) / fmean(theirs):.3f} ({printed_gap(paper, theirs)})",
                ratio(values, base),
                if_carried(same_ratio(values, base, expected), setting, corpus),
                reading=reading,
            )
        claim = falls(samples)
        yield Line(
            f"{what}, from d_osc = 2 to 32",
            _first_to_last([printed_oscillator(corpus, d) for d in DIMENSIONS]),
            _first_to_last(list(samples.values())),
            "not comparable" if all(samples.values()) else "no records",
            claim,
            reading,
        )


def _first_to_last(samples: list[list[float]]) -> str:
    first, last = samples[0], samples[-1]
    return f"{fmean(first):.2f} to {fmean(last):.2f}" if first and last else "no records"


def falls(samples: Mapping[int, Sequence[float]]) -> Claim:
    """lm-trend: the means fall at every step, and the last is below the first by Welch's test."""
    means = {d: mean(values) for d, values in samples.items()}
    if unusable := [str(d) for d, m in means.items() if m is None]:
        return Claim("lm-trend", None, f"fewer than two usable runs at d_osc {', '.join(unusable)}")
    found = [m for m in means.values() if m is not None]
    change = found[-1] - found[0]
    steps = all(b.value < a.value for a, b in pairwise(found))
    holds = steps and significant(change.p)
    said = f"d_osc = 32 minus 2: {change.value:+.2f}, p = {change.p:.2g}"
    return Claim(
        "lm-trend", holds, said if steps else f"{said}; not falling at every step", change.p
    )


ITEMS = {
    "table4": Item(
        title="Table 4. Perplexity against oscillator dimension",
        runs=runs,
        table=table_4,
        lines=lines,
    ),
}
