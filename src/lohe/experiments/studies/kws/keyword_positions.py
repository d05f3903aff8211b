"""Keyword spotting with the same positional encoding for both mechanisms (Section 4.1)."""

from collections.abc import Mapping
from dataclasses import replace

from lohe.experiments.evidence import Evidence
from lohe.experiments.item import Item
from lohe.experiments.setting import Setting
from lohe.experiments.studies.kws import keyword_cells as cells
from lohe.experiments.studies.kws.keyword_cells import MECHANISMS, POSITIONS, READINGS, Sample
from lohe.experiments.tables import Table, shown_gap
from lohe.experiments.verdicts import Claim, Line, bound, gap, significant
from lohe.train import Run

ENCODINGS = ("sinusoidal", "learned")  # matched; without one, only anchors carry position


def runs(setting: Setting) -> list[Run]:
    """Figure 3's keyword grid."""
    return cells.runs(setting, MECHANISMS.values(), POSITIONS)


def table(evidence: Evidence) -> Table:
    """The grid on validation and on test, and the paper's."""
    setting, grids = evidence.setting, {}
    for words in setting.corpora.keywords:
        grids[words] = cells.grid(evidence, words)
        if _any(tested := cells.grid(evidence, words, "test")):
            grids[f"{words}, test"] = tested
    notes = [
        "Validation accuracy of the best epoch, as published. Test: the same epoch on the test "
        "split, which the paper did not use.",
        *cells.about(setting),
    ]
    if not any(map(_any, grids.values())):
        notes.append(setting.none_yet("claim-kws-positions"))
    rows = [row for title, found in grids.items() for row in cells.grid_rows(title, found)]
    rows += cells.grid_rows("the paper", cells.published_grid())
    title = "Keyword spotting with matched positional encoding, %"
    return Table(title, ("positions", *MECHANISMS), rows, notes)


def _any(found: cells.Grid) -> bool:
    return any(sample for row in found.values() for sample in row.values())


def lines(evidence: Evidence) -> list[Line]:
    """Oscillator minus softmax in each condition, and the two claims about it.

    Claims are about validation, as published. The gaps on test stand beside them.
    """
    paper, said = cells.published_grid(), []
    for words in evidence.setting.corpora.keywords:
        found, test = (cells.grid(evidence, words, split) for split in ("valid", "test"))
        softmax = found["softmax"]
        for reading in READINGS:
            oscillator, tested = (grid[f"oscillator, {reading}"] for grid in (found, test))
            for where in POSITIONS:
                both = oscillator[where], softmax[where]
                there = paper["oscillator, as published"][where], paper["softmax"][where]
                said.append(
                    cells.gap_line(
                        f"{words}: oscillator - softmax, {cells.LABELS[where]}, pp",
                        *both,
                        there,
                        reading=reading,
                        claim=positions_claim(*both) if where == "none" else None,
                    )
                )
                what = f"{words}: oscillator - softmax on test, {cells.LABELS[where]}, pp"
                pair = tested[where], test["softmax"][where]
                said.append(cells.gap_line(what, *pair, None, reading=reading))
            claim = parity_claim(oscillator, softmax)
            again = parity_claim(tested, test["softmax"])
            if claim.holds is not None and again.holds is not None:
                on_test = f"on test it {again.verdict}: {again.found}"
                claim = replace(claim, found=f"{claim.found}; {on_test}")
            said.append(
                Line(
                    f"{words}: parity with matched positions",
                    "parity",
                    ", ".join(shown_gap(oscillator[x], softmax[x]) for x in ENCODINGS),
                    claim=claim,
                    reading=reading,
                )
            )
    return said


def positions_claim(oscillator: Sample, softmax: Sample) -> Claim:
    """kws-positions: Welch, oscillator minus softmax > 0, p < 5 %."""
    found = gap(oscillator, softmax)
    if found is None:
        return cells.undecided("kws-positions", {"oscillator": oscillator, "softmax": softmax})
    numbers = f"oscillator - softmax {cells.interval(found)}, p = {found.p:.2g}"
    return Claim("kws-positions", found.value > 0 and significant(found.p), numbers, found.p)


def parity_claim(oscillator: Mapping[str, Sample], softmax: Mapping[str, Sample]) -> Claim:
    """kws-parity: 90 % interval of oscillator minus softmax above -0.7 pp for every encoding."""
    gaps = {where: gap(oscillator[where], softmax[where]) for where in ENCODINGS}
    known = {where: g for where, g in gaps.items() if g is not None}
    if len(known) < len(gaps):
        both = {"oscillator": oscillator, "softmax": softmax}
        samples = {f"{name} {x}": of[x] for name, of in both.items() for x in ENCODINGS}
        return cells.undecided("kws-parity", samples)
    worst = -bound("kws-parity")
    holds = all(g.interval(cells.CLAIMED_AT)[0] > worst for g in known.values())
    said = ", ".join(f"{where} {cells.interval(g)}" for where, g in known.items())
    return Claim("kws-parity", holds, f"oscillator - softmax with 90 % intervals: {said}")


ITEMS: dict[str, Item] = {
    "claim-kws-positions": Item(
        title="Section 4.1. Keyword spotting with matched positional encoding",
        runs=runs,
        table=table,
        lines=lines,
    ),
}
