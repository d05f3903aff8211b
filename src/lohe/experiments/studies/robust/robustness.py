"""Imperfect devices: Appendix C's perturbations and horizons on trained models."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from lohe.experiments.evidence import Evidence
from lohe.experiments.item import Figure, Item
from lohe.experiments.reported import published
from lohe.experiments.setting import READINGS
from lohe.experiments.studies.robust import degenerate, statements
from lohe.experiments.studies.robust.devices import (
    DRAWS,
    Changes,
    in_unit,
    measures,
    reported,
    shown,
    unit,
)
from lohe.experiments.studies.robust.physics import HORIZONS, SCALES
from lohe.experiments.studies.robust.subjects import (
    KWS,
    ONE_READING,
    SUBJECTS,
    SVA,
    TINYSTORIES,
    WIKITEXT2,
    Subject,
    carrier,
    keyword_set,
)
from lohe.experiments.tables import Table
from lohe.experiments.verdicts import Agreement, Claim, Estimate, Line, Verdict, bound, margin

KINDS = {
    "coupling": "coupling mismatch",
    "state": "state noise",
    "frequency": "frequency disorder",
    "rotation": "rates s",
    "settling": "finite settling",
}
# how the scale of frequency disorder is read (D11)
FREQUENCY: dict[str, str] = {"as published": "frequency", "as defined": "rotation"}
SHORT = {
    "coupling": "mismatch",
    "state": "state noise",
    "frequency": "frequency",
    "rotation": "frequency (rates s)",
    "settling": "horizon",
}
# horizons that are said to be enough: not of language, of language
ENOUGH = {False: 5.0, True: 30.0}
YLABEL = {False: "change of accuracy, pp", True: "change of perplexity, %"}
# at the largest perturbation
CLAIMS = {
    ("KWS", "coupling"): "robust-kws",
    ("KWS", "frequency"): "robust-kws-frequency",
    ("KWS", "rotation"): "robust-kws-frequency",
    ("language", "coupling"): "robust-lm-mismatch",
    ("language", "frequency"): "robust-lm-frequency",
    ("language", "rotation"): "robust-lm-frequency",
}
STRONGEST = SCALES[-1]
COLUMNS = ("", "paper", "as published", "as defined", "subset")


def _rows(evidence: Evidence, kinds: Iterable[str]) -> list[tuple[str, ...]]:
    """For every task, kind and size: the paper's change, ours in both readings, and on a subset."""
    rows = []
    for subject in SUBJECTS:
        readings = [Changes(evidence, subject, reading) for reading in READINGS]
        subset = Changes(evidence, subject, "as published", subset=True)
        if not any(changes.records for changes in readings):
            continue
        for kind in kinds:
            title = f"{subject.name}, {KINDS[kind]}, {unit(subject)}"
            rows.append((title, *[""] * 4))
            for level in HORIZONS if kind == "settling" else SCALES:
                cells = [changes.at(kind, level) for changes in (*readings, subset)]
                paper = None if subject is WIKITEXT2 else reported(subject, kind, level)
                paper = None if kind == "rotation" else paper
                texts = [shown(paper, subject), *(shown(c, subject) for c in cells)]
                rows.append((f"  {level:g}", *texts))
    return rows


def _notes(evidence: Evidence, name: str) -> list[str]:
    models = {s.name: len(Changes(evidence, s, "as published").records) for s in SUBJECTS}
    said = ", ".join(f"{task} {n}" for task, n in models.items())
    notes = [
        "Change from the closed form, accuracy in percentage points, language models in percent of "
        "perplexity (WikiText-2's by the published protocol); ± standard error, over models where "
        "there are several, else over draws. "
        "Paper: one model, over draws, so that `differs` means from that model; SVA five models, "
        f"error unknown. {ONE_READING}",
        f"KWS: {keyword_set(evidence.setting)}. Models: {said}; the selected epoch, where the "
        "paper's keyword model is that of the last. "
        f"The whole validation split. Subset: one model, {DRAWS} draws, {KWS.subset} clips or "
        f"{WIKITEXT2.subset} chunks, as many as the paper's; ours are evenly spaced.",
        "Starts and noise are drawn anew for every batch and layer; the published runs gave the "
        "same noise to all. Exact flows, where the published runs integrated with RK45.",
    ]
    if not any(models.values()):
        notes.append(evidence.setting.none_yet(name))
    return notes


def table_9(evidence: Evidence) -> Table:
    """Table 9 (tab:settle): change of the metric when settling is cut short at a horizon."""
    return Table(
        "Table 9. Settling cut short",
        COLUMNS,
        _rows(evidence, ["settling"]),
        [
            *_notes(evidence, "table9"),
            "The paper's perplexities are divided by the closed form's, 7.59, to compare corpora.",
        ],
    )


def figure_8_table(evidence: Evidence) -> Table:
    """The points of the figure, without those of Table 9."""
    return Table(
        "Figure 8. Imperfect devices",
        COLUMNS,
        _rows(evidence, [kind for kind in KINDS if kind != "settling"]),
        [
            *_notes(evidence, "figure8"),
            "Frequency disorder s has rates of deviation s/√2 in the published runs, and here; "
            "with deviation s, as the paper words it, in the rows `rates s` (D11).",
        ],
    )


def lines_table_9(evidence: Evidence) -> list[Line]:
    """Every printed change, and whether the horizons that are said to suffice do."""
    found = []
    printed = published("table9")
    for reading in READINGS:
        tasks = (KWS, SVA, carrier(evidence.setting, reading))
        found.append(_settles(evidence, tasks, reading))
        found += statements.of_horizons(evidence, reading)
        for subject, name in zip(tasks, ("kws_pp", "sva_pp", "ts_ppl"), strict=True):
            changes = Changes(evidence, subject, reading)
            for horizon, value in zip(HORIZONS, printed[name], strict=True):
                line = _line(evidence, changes, "settling", horizon, reading)
                # language models: perplexity as printed, then relative to the closed form's
                paper = f"{value:+.2f} = {line.paper}" if subject.language else f"{value:+.2f} pp"
                found.append(replace(line, paper=paper))
    return found


def lines_figure_8(evidence: Evidence) -> list[Line]:
    """Every point but those of Table 9; in the paper's definition, the largest perturbation."""
    found = []
    for reading in READINGS:
        for subject in (KWS, carrier(evidence.setting, reading)):
            changes = Changes(evidence, subject, reading)
            for kind in ("coupling", "state", FREQUENCY[reading]):
                for level in SCALES if reading == "as published" else (STRONGEST,):
                    found.append(_line(evidence, changes, kind, level, reading))
        found += statements.of_perturbations(evidence, reading)
    for subject in (KWS, carrier(evidence.setting, "as published")):
        changes = Changes(evidence, subject, "as published")
        reading = "as published, deviation s"
        found.append(_line(evidence, changes, "rotation", STRONGEST, reading))
    return found


def _line(evidence: Evidence, changes: Changes, kind: str, level: float, reading: str) -> Line:
    """One change beside the published one; for language also what TinyStories does."""
    subject = changes.subject
    here, theirs = changes.at(kind, level), reported(subject, kind, level)
    what = f"{subject.name}, {SHORT[kind]} {level:g}"
    claim = _claim(changes, kind) if level == STRONGEST else None
    paper = f"{shown(theirs, subject, error=False)} {unit(subject)}"
    paper += " (TinyStories)" if subject is WIKITEXT2 else ""
    if here is None or theirs is None:
        return Line(what, paper, "no records", "no records", claim, reading)
    text, note = f"{shown(here, subject, error=False)} {unit(subject)}", ""
    if subject is WIKITEXT2 and reading != "as defined":
        trend = Changes(evidence, TINYSTORIES, "as published").at(kind, level)
        note = f"TinyStories itself, a trend: {shown(trend, subject)} %" if trend else ""
    # without an error, or without a number, nothing is decided
    value: Agreement | Verdict = "inconclusive"
    if math.isfinite(here.value) and math.isfinite(here.se):
        name = "robust_perplexity" if subject.language else "robust_accuracy"
        value = Agreement(here - theirs, margin(name), effect=theirs.value)
    else:
        note = "; ".join(x for x in (note, "one model and one draw: no spread to judge by") if x)
    return Line(what, paper, text, value, claim, reading, note)


def _claim(changes: Changes, kind: str) -> Claim | None:
    """What the paper says of the largest perturbation of this kind, by the rule's own test."""
    task = "language" if changes.subject.language else changes.subject.name
    if (task, kind) not in CLAIMS:
        return None
    name = CLAIMS[task, kind]
    change, most = changes.at(kind, STRONGEST), bound(name)
    if change is None:
        return Claim(name, None, "no records")
    low, high = change.interval(0.9)
    if task == "language":
        spread = f" [{low:+.4f}, {high:+.4f}]" if math.isfinite(high) else ""
        found = f"log ratio {change.value:+.4f}{spread} of {changes.subject.name}, allowed below "
        return Claim(name, high < most if math.isfinite(high) else None, f"{found}{most}")
    found = f"90 % interval [{low:+.2f}, {high:+.2f}] pp, allowed ±{most} pp"
    return Claim(name, -most < low and high < most if math.isfinite(high) else None, found)


def _settles(evidence: Evidence, subjects: Sequence[Subject], reading: str) -> Line:
    """The change at the horizon that is said to be enough, for each of the tasks."""
    inside: list[bool | None] = []
    said, lacks, ours = [], [], []
    for subject in subjects:
        horizon = ENOUGH[subject.language]
        most = bound("robust-settling", "nats" if subject.language else "pp")
        change = Changes(evidence, subject, reading).at("settling", horizon)
        if change is None:
            lacks.append(subject.name)
            continue
        low, high = change.interval(0.9)
        inside.append(-most <= low and high <= most if math.isfinite(high) else None)
        text = f"{change.value:+.4f} nats" if subject.language else f"{change.value:+.2f} pp"
        ours.append(text)
        digits = 4 if subject.language else 2
        spread = f" [{low:+.{digits}f}, {high:+.{digits}f}]" if math.isfinite(high) else ""
        said.append(f"{subject.name} {text}{spread} at {horizon:g}")
    holds = False if False in inside else None if lacks or None in inside else True
    claim = Claim("robust-settling", holds, "; ".join(said), lacks=", ".join(lacks))
    value: Verdict = "not reported" if inside else "no records"
    return Line("horizons that are enough", "5, 5, 30", ", ".join(ours), value, claim, reading)


def figure_8(evidence: Evidence) -> Figure:
    """Figure 8 (fig:robustness): change of the metric under each imperfection, and by horizon."""
    import matplotlib.pyplot as plt

    from lohe.viz import curves, style

    figure, axes = plt.subplots(3, 4, figsize=(12.5, 8.5), layout="constrained")
    rows = {"KWS": [KWS], "SVA": [SVA], "Language": [WIKITEXT2, TINYSTORIES]}
    columns = {k: v for k, v in KINDS.items() if k != "rotation"}
    for (name, subjects), panels in zip(rows.items(), axes, strict=True):
        for (kind, title), ax in zip(columns.items(), panels, strict=True):
            levels = HORIZONS if kind == "settling" else SCALES
            curves.with_errors(ax, levels, _panel(evidence, subjects, kind, levels))
            ax.set_title(f"{name}: {title}")
            ax.set_xlabel("horizon T" if kind == "settling" else "size s")
        panels[0].set_ylabel(YLABEL[subjects[0].language])
    figure.suptitle(
        "Change from the closed form; bars: standard error, none where one model was run once. "
        "Rates of frequency disorder: deviation s/√2 as published, s as defined",
        fontsize=10,
    )
    style.legend_below(figure, ncols=4)
    return figure


def _panel(
    evidence: Evidence, subjects: Sequence[Subject], kind: str, levels: Sequence[float]
) -> list[Any]:
    """The published points, and ours in both readings; one legend serves all panels."""
    from lohe.viz import style

    last = subjects[-1]
    theirs = [reported(last, kind, level) for level in levels]
    label = f"paper (language: {TINYSTORIES.name})"
    found = [_series(label, levels, theirs, last, style.GREY, "s", hollow=True)]
    for subject in subjects:
        for reading in subject.readings:
            changes = Changes(evidence, subject, reading)
            which = FREQUENCY[reading] if kind == "frequency" else kind
            values = [changes.at(which, level) for level in levels]
            color = style.OSCILLATOR if reading == "as published" else style.DEFINED
            color, mark = (style.PURPLE, "^") if subject is TINYSTORIES else (color, "o")
            label = f"ours, {reading} (language: {WIKITEXT2.name})"
            label = f"ours, {reading}, {subject.name}" if subject is TINYSTORIES else label
            found.append(_series(label, levels, values, subject, color, mark))
    return [series for series in found if series.levels]


def _series(
    label: str,
    levels: Sequence[float],
    values: Sequence[Estimate | None],
    subject: Subject,
    color: str,
    marker: str,
    hollow: bool = False,
) -> Any:
    """Those that exist, in the unit of the task; one draw has no error bar."""
    from lohe.viz.curves import Series

    there = [(x, *in_unit(v, subject)) for x, v in zip(levels, values, strict=True) if v]
    errors = [error if math.isfinite(error) else 0.0 for _, _, error in there]
    return Series(
        label, [x for x, _, _ in there], [y for _, y, _ in there], errors, color, marker, hollow
    )


ITEMS = {
    "table9": Item(
        title="Table 9. Settling cut short",
        measures=measures,
        table=table_9,
        lines=lines_table_9,
    ),
    "figure8": Item(
        title="Figure 8. Imperfect devices",
        measures=measures,
        table=figure_8_table,
        figure=figure_8,
        lines=lines_figure_8,
    ),
    **degenerate.ITEMS,
}
