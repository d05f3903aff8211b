"""Keyword spotting: Section 4.1's first task, and the figure that shows it beside the second."""

from collections.abc import Mapping
from dataclasses import replace
from statistics import fmean

import numpy as np

from lohe.experiments.evidence import Evidence
from lohe.experiments.item import Figure, Item
from lohe.experiments.reported import published
from lohe.experiments.setting import Setting
from lohe.experiments.studies.kws import keyword_ablations, keyword_permutation, keyword_positions
from lohe.experiments.studies.kws import keyword_cells as cells
from lohe.experiments.studies.kws.keyword_cells import MECHANISMS, POSITIONS, READINGS, Grid, Sample
from lohe.experiments.studies.sva import agreement
from lohe.experiments.tables import Table, printed_gap, shown, shown_gap
from lohe.experiments.verdicts import Claim, Line, bound, gap
from lohe.models import Mechanism
from lohe.train import Run

ROWS: Mapping[str, Mechanism] = {
    **MECHANISMS,
    **{f"frozen W_V, {reading}": replace(m, freeze_values=True) for reading, m in READINGS.items()},
}
SENTENCES = ("overall", "simple", "hard")


def table_1_runs(setting: Setting) -> list[Run]:
    """Softmax, both readings of the oscillator, and both with W_V as it was drawn."""
    return cells.runs(setting, ROWS.values())


def table_1(evidence: Evidence) -> Table:
    """Table 1 (tab:kws): accuracy without positional encoding, and what selecting an epoch does."""
    setting, rows, selected = evidence.setting, [], []
    for words in setting.corpora.keywords:
        best, test = by_row(evidence, words), by_row(evidence, words, "test")
        last = {
            name: cells.last_epoch(evidence, setting.keyword_spotting(words, m))
            for name, m in ROWS.items()
        }
        if any(best.values()):
            rows.append((f"{words}:", *[""] * 5))
            for name in ROWS:
                delta = shown_gap(best[name], best["softmax"])
                rows.append(_row(name, best[name], last[name], test[name], delta))
            selected += _selection(words, best, last)
    paper, last = published("table1")["per_seed"], _published_last_epoch()
    notes = [
        "Best epoch: the highest validation accuracy over epochs, as published. Test: the same "
        "epoch on the test split, which the paper did not use. Δ: best epoch, minus softmax's.",
        *cells.about(setting),
        *selected,
        *_selection("the paper", paper, last),
    ]
    if not rows:
        notes.append(setting.none_yet("table1"))
    rows.append(("the paper:", *[""] * 5))
    for name, sample in paper.items():
        delta = printed_gap(sample, paper["softmax"])
        rows.append(_row(name, sample, last.get(name, []), [], delta))
    columns = ("condition", "seeds", "best epoch %", "last epoch %", "test %", "Δ pp")
    return Table("Table 1. Keyword spotting without positional encoding", columns, rows, notes)


def _row(name: str, best: Sample, last: Sample, test: Sample, delta: str) -> tuple[str, ...]:
    texts = (shown(x) if x else "-" for x in (best, last, test))
    return (name, str(len(best)), *texts, delta if best and name != "softmax" else "")


def _published_last_epoch() -> dict[str, list[float]]:
    """Of two rows: the permutation probe was made on last epochs."""
    probe = published("claim-kws-permutation")["per_seed"]
    return {name: row["none"]["intact"] for name, row in probe.items()}


def _selection(words: str, best: Mapping[str, Sample], last: Mapping[str, Sample]) -> list[str]:
    """What choosing the epoch on the reported split adds (D6)."""
    gains = [
        f"{name} {fmean(best[name]) - fmean(last[name]):+.2f}"
        for name in best
        if best[name] and len(last.get(name, [])) == len(best[name])
    ]
    return [f"Best minus last epoch, pp, {words}: {'; '.join(gains)}."] if gains else []


def table_1_lines(evidence: Evidence) -> list[Line]:
    """Table 1's numbers; its gaps once more on the test split."""
    paper, comparable = published("table1")["per_seed"], evidence.setting.corpora.published
    lines = []
    for words in evidence.setting.corpora.keywords:
        valid, test = (by_row(evidence, words, split) for split in ("valid", "test"))
        for name, sample in valid.items():
            condition, _, reading = name.partition(", ")
            what, theirs = f"{words}: {condition}", paper[condition]
            line = cells.value_line(
                f"{what}, %", sample, theirs, comparable=comparable, reading=reading
            )
            lines.append(line)
            if condition != "softmax":
                pair, there = (sample, valid["softmax"]), (theirs, paper["softmax"])
                tested = test[name], test["softmax"]
                lines += [
                    cells.gap_line(f"{what} - softmax, pp", *pair, there, reading=reading),
                    cells.gap_line(f"{what} - softmax on test, pp", *tested, None, reading=reading),
                ]
        for reading in READINGS:
            both = valid[f"oscillator, {reading}"], valid[f"frozen W_V, {reading}"]
            lines.append(
                cells.gap_line(
                    f"{words}: full - frozen W_V, pp",
                    *both,
                    (paper["oscillator"], paper["frozen W_V"]),
                    reading=reading,
                    claim=frozen_claim(*both),
                )
            )
    return lines


def by_row(evidence: Evidence, words: str, split: str = "valid") -> dict[str, list[float]]:
    """Accuracies of the selected epoch, for every row of the table."""
    place = evidence.setting.keyword_spotting
    return {name: cells.accuracies(evidence, place(words, m), split) for name, m in ROWS.items()}


def frozen_claim(full: Sample, frozen: Sample) -> Claim:
    """kws-frozen: 90 % interval of full minus frozen accuracy below 1 pp."""
    found = gap(full, frozen)
    if found is None:
        return cells.undecided("kws-frozen", {"full": full, "frozen W_V": frozen})
    holds = found.interval(cells.CLAIMED_AT)[1] < bound("kws-frozen")
    return Claim("kws-frozen", holds, f"full - frozen {cells.interval(found)}", found.p)


def figure_3_runs(setting: Setting) -> list[Run]:
    """The keyword grid, and Table 2's cohorts of softmax and of both oscillators."""
    left = cells.runs(setting, MECHANISMS.values(), POSITIONS)
    return left + agreement.runs(setting, agreement.COMPARED)


def figure_3(evidence: Evidence) -> Figure:
    """Figure 3: accuracy on keywords by positional encoding, and on agreement by kind of sentence.

    A panel for each set of keywords, then agreement. Bars are ours, diamonds the published means.
    """
    import matplotlib.pyplot as plt

    from lohe.viz import bars, style

    words = evidence.setting.corpora.keywords
    panels = [(name, cells.grid(evidence, name), cells.published_grid()) for name in words]
    panels.append(("subject-verb agreement", agreement_grid(evidence), published_agreement()))
    figure, axes = plt.subplots(
        1, len(panels), figsize=(4.4 * len(panels), 4.0), sharey=True, layout="constrained"
    )
    lowest = 60.0  # as in the paper, unless a bar is lower
    for ax, (title, found, paper) in zip(axes, panels, strict=True):
        conditions = tuple(found["softmax"])
        mean, std = cells.moments(found, conditions)
        bars.grouped(
            ax,
            conditions,
            mean,
            std,
            labels=tuple(MECHANISMS),
            colors=(style.SOFTMAX, style.OSCILLATOR, style.DEFINED),
            ceiling=100.0,
        )
        bars.published(ax, *cells.moments(paper, conditions), ceiling=100.0)
        ax.set(title=title, xlabel="positional encoding")
        lowest = min([lowest, *(mean[np.isfinite(mean)] - 5)])
    axes[0].set(ylim=(max(lowest, 0), 103), ylabel="validation accuracy, %")
    axes[-1].set_xlabel("sentences")
    for ax in axes:
        bars.numbers(ax)
    bars.legend(figure, ncols=3)
    return figure


def figure_3_table(evidence: Evidence) -> Table:
    """The numbers that the figure shows."""
    setting = evidence.setting
    grids = {words: cells.grid(evidence, words) for words in setting.corpora.keywords}
    grids["subject-verb agreement"] = agreement_grid(evidence)
    rows = [row for title, found in grids.items() for row in cells.grid_rows(title, found)]
    rows += cells.grid_rows("the paper, keywords", cells.published_grid())
    rows += cells.grid_rows("the paper, agreement", published_agreement())
    notes = ["Keywords: validation accuracy of the best epoch; agreement: of the last epoch."]
    notes += cells.about(setting)
    if not any(x for found in grids.values() for row in found.values() for x in row.values()):
        notes.append(setting.none_yet("figure3"))
    return Table("Figure 3. Accuracy on both tasks, %", ("condition", *MECHANISMS), rows, notes)


def figure_3_lines(evidence: Evidence) -> list[Line]:
    """Every bar of the figure."""
    comparable, lines = evidence.setting.corpora.published, []
    for words in evidence.setting.corpora.keywords:
        found = cells.grid(evidence, words)
        lines += cells.grid_lines(words, found, cells.published_grid(), comparable=comparable)
    # agreement is generated: always the paper's data
    found, paper = agreement_grid(evidence), published_agreement()
    return lines + cells.grid_lines(
        "agreement", found, paper, comparable=True, within="sva_accuracy"
    )


def agreement_grid(evidence: Evidence) -> Grid:
    """Last-epoch accuracy on agreement by mechanism and kind of sentence."""
    groups = agreement.by_mechanism(evidence)
    return {
        name: {kind: [r.result[f"valid.{kind}"] for r in groups[name]] for kind in SENTENCES}
        for name in MECHANISMS
    }


def published_agreement() -> Grid:
    paper = published("table2")["per_seed"]
    return {
        name: {kind: paper[theirs][kind] for kind in SENTENCES}
        for name, theirs in cells.PAPERS_NAMES.items()
    }


ITEMS: dict[str, Item] = {
    "table1": Item(
        title="Table 1. Keyword spotting without positional encoding",
        runs=table_1_runs,
        table=table_1,
        lines=table_1_lines,
    ),
    "figure3": Item(
        title="Figure 3. Accuracy on keywords and on agreement",
        runs=figure_3_runs,
        table=figure_3_table,
        figure=figure_3,
        lines=figure_3_lines,
    ),
    **keyword_positions.ITEMS,
    **keyword_permutation.ITEMS,
    **keyword_ablations.ITEMS,
}
