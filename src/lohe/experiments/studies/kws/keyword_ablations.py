"""Keyword spotting with other coupling functions, and with the optimiser that the text names."""

from collections.abc import Mapping
from dataclasses import replace
from statistics import fmean

from lohe.experiments.evidence import Evidence
from lohe.experiments.item import Item
from lohe.experiments.reported import published
from lohe.experiments.setting import Setting
from lohe.experiments.studies.kws import keyword_cells as cells
from lohe.experiments.studies.kws.keyword_cells import MECHANISMS, READINGS, Sample
from lohe.experiments.tables import Table, shown, shown_gap
from lohe.experiments.verdicts import (
    Agreement,
    Claim,
    Line,
    Verdict,
    bound,
    exactly,
    gap,
    margin,
    ours,
)
from lohe.models import Mechanism
from lohe.train import AdamW, Run

COUPLINGS = ("softplus", "relu", "elu")


def _coupled(reading: str) -> dict[str, Mechanism]:
    return {name: replace(READINGS[reading], coupling=name) for name in COUPLINGS}


def coupling_runs(setting: Setting) -> list[Run]:
    """Three couplings, both readings, no positional encoding."""
    return cells.runs(setting, [m for reading in READINGS for m in _coupled(reading).values()])


def coupling_accuracies(evidence: Evidence, words: str, reading: str) -> dict[str, list[float]]:
    place = evidence.setting.keyword_spotting
    return {
        name: cells.accuracies(evidence, place(words, m)) for name, m in _coupled(reading).items()
    }


def coupling_table(evidence: Evidence) -> Table:
    """Accuracy with each coupling function."""
    setting, rows = evidence.setting, []
    notes = [
        "Validation accuracy of the best epoch, no positional encoding.",
        *cells.about(setting),
    ]
    for words in setting.corpora.keywords:
        for reading in READINGS:
            found = coupling_accuracies(evidence, words, reading)
            if any(found.values()):
                rows.append((f"{words}, {reading}", *map(shown, found.values())))
    if not rows:
        notes.append(setting.none_yet("claim-kws-coupling"))
    rows.append(("the paper", *[_printed_range()] * len(COUPLINGS)))
    title = "Keyword spotting with other coupling functions, %"
    return Table(title, ("keywords", *COUPLINGS), rows, notes)


def coupling_lines(evidence: Evidence) -> list[Line]:
    """Each accuracy, each gap to softplus, and the claim that there is none."""
    lines = []
    for words in evidence.setting.corpora.keywords:
        for reading in READINGS:
            found = coupling_accuracies(evidence, words, reading)
            for name, sample in found.items():
                value = _within_range(evidence, sample)
                texts = _printed_range(), shown(sample)
                lines.append(Line(f"{words}: {name}, %", *texts, value, reading=reading))
            for name in COUPLINGS[1:]:
                both = found[name], found["softplus"]
                lines.append(
                    Line(
                        f"{words}: {name} - softplus, pp",
                        f"at most {_printed_gap():.2f}",
                        shown_gap(*both),
                        _no_gap(*both),
                        reading=reading,
                        note="the spread behind the printed range is not known",
                    )
                )
            lines.append(
                Line(
                    f"{words}: couplings alike",
                    "the same",
                    ", ".join(shown_gap(found[n], found["softplus"]) for n in COUPLINGS[1:]),
                    claim=coupling_claim(found),
                    reading=reading,
                )
            )
    return lines


def _within_range(evidence: Evidence, sample: Sample) -> Agreement | Verdict:
    """The printed range has no spread of its own: our mean against its middle."""
    if not sample:
        return cells.NO_RECORDS
    if not evidence.setting.corpora.published:
        return "not comparable"
    if len(sample) < 2:
        return "inconclusive"
    middle = fmean(published("claim-kws-coupling")["range"])
    return Agreement(ours(sample) - exactly(middle), margin("kws_accuracy"))


def _no_gap(a: Sample, b: Sample) -> Agreement | Verdict:
    """The printed gap is at most the width of the range: ours against none."""
    found = gap(a, b)
    if found is None:
        return "inconclusive" if a and b else cells.NO_RECORDS
    return Agreement(found, margin("kws_accuracy"), effect=_printed_gap())


def coupling_claim(found: Mapping[str, Sample]) -> Claim:
    """kws-coupling: 90 % intervals of relu and of elu minus softplus inside +-0.7 pp."""
    gaps = {name: gap(found[name], found["softplus"]) for name in COUPLINGS[1:]}
    known = {name: g for name, g in gaps.items() if g is not None}
    if len(known) < len(gaps):
        return cells.undecided("kws-coupling", found)
    ends = [end for g in known.values() for end in g.interval(cells.CLAIMED_AT)]
    said = ", ".join(f"{name} {cells.interval(g)}" for name, g in known.items())
    return Claim(
        "kws-coupling", max(map(abs, ends)) < bound("kws-coupling"), f"minus softplus: {said}"
    )


def _printed_gap() -> float:
    low, high = published("claim-kws-coupling")["range"]
    return high - low


def _printed_range() -> str:
    low, high = published("claim-kws-coupling")["range"]
    return f"{low:.2f}-{high:.2f}"


def decoupled(run: Run) -> Run:
    """The run with AdamW, which the paper's text names, in the place of Adam with L2 (D4)."""
    return replace(run, optimizer=AdamW(run.optimizer.lr, run.optimizer.weight_decay))


def adamw_runs(setting: Setting) -> list[Run]:
    """Table 1's first rows with both optimisers."""
    published_recipe = cells.runs(setting, MECHANISMS.values())
    return published_recipe + [decoupled(run) for run in published_recipe]


def adamw_accuracies(evidence: Evidence, words: str, m: Mechanism) -> tuple[Sample, Sample]:
    """With Adam as published, and with AdamW as printed."""
    run = evidence.setting.keyword_spotting(words, m)
    adam, adamw = (cells.accuracies(evidence, r) for r in (run, decoupled(run)))
    return adam, adamw


def adamw_table(evidence: Evidence) -> Table:
    """Both optimisers side by side."""
    setting, rows = evidence.setting, []
    notes = [
        "Validation accuracy of the best epoch, no positional encoding.",
        *cells.about(setting),
    ]
    for words in setting.corpora.keywords:
        for name, m in MECHANISMS.items():
            adam, adamw = adamw_accuracies(evidence, words, m)
            if adam or adamw:
                texts = shown(adam), shown(adamw), shown_gap(adamw, adam)
                rows.append((f"{words}, {name}", *texts))
    if not rows:
        notes.append(setting.none_yet("claim-kws-adamw"))
    columns = ("keywords, mechanism", "Adam with L2", "AdamW", "AdamW - Adam")
    return Table("Keyword spotting with AdamW, as the text says, %", columns, rows, notes)


def adamw_lines(evidence: Evidence) -> list[Line]:
    """What AdamW changes, and Table 1's gap with it."""
    paper, lines = published("table1")["per_seed"], []
    for words in evidence.setting.corpora.keywords:
        found = {name: adamw_accuracies(evidence, words, m) for name, m in MECHANISMS.items()}
        for name, (adam, adamw) in found.items():
            mechanism, _, reading = name.partition(", ")
            what = f"{words}: {mechanism}, AdamW - Adam, pp"
            lines.append(cells.gap_line(what, adamw, adam, None, reading=reading))
        for reading in READINGS:
            lines.append(
                cells.gap_line(
                    f"{words}: oscillator - softmax with AdamW, pp",
                    found[f"oscillator, {reading}"][1],
                    found["softmax"][1],
                    (paper["oscillator"], paper["softmax"]),
                    reading=reading,
                    note="the text says AdamW, the published code used Adam with L2",
                )
            )
    return lines


ITEMS: dict[str, Item] = {
    "claim-kws-coupling": Item(
        title="Appendix B. Keyword spotting with other coupling functions",
        runs=coupling_runs,
        table=coupling_table,
        lines=coupling_lines,
    ),
    "claim-kws-adamw": Item(
        title="Appendix B. Keyword spotting with AdamW",
        runs=adamw_runs,
        table=adamw_table,
        lines=adamw_lines,
    ),
}
