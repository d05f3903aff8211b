"""The readout exponent: Section 4.3's sharpening, a_ij ∝ (1 + z_i·r_j)^p."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import fmean

from lohe.experiments.evidence import Evidence
from lohe.experiments.item import Item
from lohe.experiments.reported import published
from lohe.experiments.setting import Setting
from lohe.experiments.studies.kws import keyword_cells as cells
from lohe.experiments.studies.lm import perplexity
from lohe.experiments.studies.lm.language_modeling import printed_oscillator
from lohe.experiments.studies.lm.perplexity import (
    CORPORA,
    READINGS,
    UNPRINTED,
    about,
    change,
    compared,
    log_ratio,
    name,
    oscillator,
    perplexities,
    same_ratio,
    same_value,
    told,
)
from lohe.experiments.tables import Table, plus_minus, printed_gap, shown, shown_gap
from lohe.experiments.verdicts import (
    Agreement,
    Claim,
    Estimate,
    Line,
    exactly,
    margin,
    mean,
    of_sample,
    printed,
    significant,
    undecided,
)
from lohe.theory import readout_rank_bound
from lohe.train import Run

POWERS = (1, 2, 4)
DIMENSIONS = (2, 8)
SEEDS = 5

Samples = Mapping[int, Sequence[float]]  # by exponent


def runs(setting: Setting) -> list[Run]:
    """Keywords at d_osc = 2, language at 2 and 8, every p, in both readings."""
    sharp = [oscillator(reading, d, p) for reading in READINGS for d in DIMENSIONS for p in POWERS]
    return cells.sharpened(setting, POWERS) + perplexity.runs(setting, sharp, SEEDS)


def accuracies(evidence: Evidence, words: str, reading: str) -> dict[int, list[float]]:
    """Our keyword accuracies by exponent, in percent."""
    recipe = evidence.setting.keyword_spotting
    return {p: cells.accuracies(evidence, recipe(words, oscillator(reading, 2, p))) for p in POWERS}


def by_power(evidence: Evidence, corpus: str, reading: str, d_osc: int) -> dict[int, list[float]]:
    """Our perplexities by exponent."""
    return {p: perplexities(evidence, corpus, oscillator(reading, d_osc, p)) for p in POWERS}


def printed_accuracy(p: int) -> list[float]:
    """Published, by seed."""
    return published("table5")["kws"][str(p)]


def printed_perplexity(d_osc: int, p: int) -> Estimate:
    """Published: p = 1 by seed, else mean and deviation over five."""
    if p == 1:
        return of_sample(printed_oscillator("tinystories", d_osc))
    return printed(*published("table5")["tinystories"][str(d_osc)][str(p)], n=SEEDS)


def table_5(evidence: Evidence) -> Table:
    """Table 5 (tab:readout): accuracy and perplexity against the readout exponent p."""
    rows: list[tuple[str, ...]] = []
    for words in evidence.setting.corpora.keywords:
        for reading in READINGS:
            rows += _row(f"KWS, {words}, {reading}", accuracies(evidence, words, reading))
    kws_change = printed_gap(printed_accuracy(4), printed_accuracy(1))
    rows.append(("KWS, paper", *(shown(printed_accuracy(p)) for p in POWERS), kws_change))
    for corpus in CORPORA:
        for d in DIMENSIONS:
            for reading in READINGS:
                sample = by_power(evidence, corpus, reading, d)
                rows += _row(f"{CORPORA[corpus]}, d_osc = {d}, {reading}", sample)
            if corpus == "tinystories":
                cells = [_printed_cell(d, p) for p in POWERS]
                change = f"{_printed_mean(d, 4) - _printed_mean(d, 1):+.2f}"
                rows.append((f"TinyStories, d_osc = {d}, paper", *cells, change))
    columns = ("task, reading", *(f"p = {p}" for p in POWERS), "p = 4 less p = 1")
    ranks = {d: ", ".join(str(readout_rank_bound(d, p)) for p in POWERS) for d in DIMENSIONS}
    notes = [
        "KWS: accuracy in percent, d_osc = 2, no positional encoding; else perplexity.",
        "The power acts on each entry of the similarity and raises the bound of its rank: "
        f"{ranks[2]} at d_osc = 2, {ranks[8]} at d_osc = 8 (until the number of tokens limits it).",
        *about(evidence, "table5", any("paper" not in row[0] for row in rows)),
    ]
    return Table("Table 5. Readout sharpening", columns, rows, notes)


def _row(what: str, samples: Samples) -> list[tuple[str, ...]]:
    if not any(samples.values()):
        return []
    cells = [shown(samples[p]) for p in POWERS]
    return [(what, *cells, shown_gap(samples[4], samples[1]))]


def _printed_cell(d_osc: int, p: int) -> str:
    if p == 1:
        return shown(printed_oscillator("tinystories", d_osc))
    return plus_minus(*published("table5")["tinystories"][str(d_osc)][str(p)])


def _printed_mean(d_osc: int, p: int) -> float:
    return round(printed_perplexity(d_osc, p).value, 2)


def lines(evidence: Evidence) -> list[Line]:
    """Every cell of Table 5, what p is said to gain, and the two claims."""
    found = []
    for reading in READINGS:
        for words in evidence.setting.corpora.keywords:
            found += _keyword_lines(evidence, words, reading)
        for corpus in CORPORA:
            found += _language_lines(evidence, corpus, reading)
    return [*found, *_rank_lines()]


def _keyword_lines(evidence: Evidence, words: str, reading: str) -> Iterator[Line]:
    samples = accuracies(evidence, words, reading)
    for p, values in samples.items():
        what, paper = f"KWS ({words}), p = {p}", printed_accuracy(p)
        if reading == "as published":
            comparable = evidence.setting.corpora.published
            yield cells.value_line(what, values, paper, comparable=comparable, reading=reading)
        if p > 1:
            yield cells.gap_line(
                f"{what} less p = 1",
                values,
                samples[1],
                (paper, printed_accuracy(1)),
                reading=reading,
                claim=rises(samples) if p == POWERS[-1] else None,
            )


def _language_lines(evidence: Evidence, corpus: str, reading: str) -> Iterator[Line]:
    setting, reported = evidence.setting, corpus == "tinystories"
    samples = {d: by_power(evidence, corpus, reading, d) for d in DIMENSIONS}
    for d, of_power in samples.items():
        for p, values in of_power.items():
            what, paper = f"{name(setting, corpus)}, d_osc = {d}, p = {p}", printed_perplexity(d, p)
            if reported and reading == "as published":
                same = same_value(values, paper, setting)
                yield Line(what, _printed_cell(d, p), shown(values), same, None, reading)
            if p > 1:
                theirs = f"{_printed_mean(d, p) - _printed_mean(d, 1):+.2f}"
                expected = log_ratio(paper, printed_perplexity(d, 1))
                yield Line(
                    f"{what} less p = 1",
                    told(setting, corpus, theirs, expected),
                    change(values, of_power[1]),
                    compared(setting, corpus, same_ratio(values, of_power[1], expected)),
                    reading=reading,
                )
    claim = sharper_is_better(samples)
    falls = [" > ".join(f"{_printed_mean(d, p):.2f}" for p in POWERS) for d in DIMENSIONS]
    found = [
        ", ".join(f"{fmean(x):.2f}" if x else "-" for x in samples[d].values()) for d in samples
    ]
    there = all(x for of_power in samples.values() for x in of_power.values())
    yield Line(
        f"{name(setting, corpus)}, p = 1, 2, 4",
        "; ".join(falls) if reported else UNPRINTED,
        "; ".join(found),
        "no records" if not there else "not comparable" if reported else "not reported",
        claim,
        reading,
    )


def rises(samples: Samples) -> Claim:
    """kws-sharpness."""
    means = [mean(values) for values in samples.values()]
    found = [m for m in means if m is not None]
    if len(found) < len(means):
        by_p = {f"p = {p}": values for p, values in samples.items()}
        return undecided("kws-sharpness", by_p, "fewer than two usable runs for some p")
    gain = found[-1] - found[0]
    ordered = all(a.value < b.value for a, b in pairwise(found))
    holds = ordered and significant(gain.p)
    said = ", ".join(f"{m.value:.2f}" for m in found)
    return Claim(
        "kws-sharpness",
        holds,
        f"{said} %; p = 4 gains {gain.value:+.2f} (Welch {gain.p:.2g})",
        gain.p,
    )


def sharper_is_better(samples: Mapping[int, Samples]) -> Claim:
    """lm-sharpness, at both dimensions."""
    holds, said, largest = True, [], 0.0
    for d, of_power in samples.items():
        means = [mean(values) for values in of_power.values()]
        found = [m for m in means if m is not None]
        if len(found) < len(means):
            return Claim("lm-sharpness", None, f"fewer than two usable runs at d_osc = {d}")
        change = found[-1] - found[0]
        ordered = all(b.value < a.value for a, b in pairwise(found))
        holds = holds and ordered and significant(change.p)
        largest = max(largest, change.p)
        said.append(f"d_osc = {d}: p = 4 less p = 1 {change.value:+.2f} (Welch {change.p:.2g})")
    return Claim("lm-sharpness", holds, "; ".join(said), largest)


def _rank_lines() -> Iterator[Line]:
    """Sec. 4.3 says that the rank ceiling d_osc + 1 does not depend on p; it does (D26)."""
    for d in DIMENSIONS:
        bounds = [readout_rank_bound(d, p) for p in POWERS]
        yield Line(
            f"rank ceiling at d_osc = {d}, p = 1, 2, 4",
            f"{d + 1} for every p",
            ", ".join(map(str, bounds)),
            Agreement(exactly(bounds[-1]) - exactly(d + 1), margin("exact")),
            note="the entrywise power raises the rank, up to the number of tokens",
        )


ITEMS = {
    "table5": Item(
        title="Table 5. Readout sharpening",
        runs=runs,
        table=table_5,
        lines=lines,
    ),
}
