"""The pages: what the tables say, perplexity against d_osc, and the protocol beside them."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from lohe.experiments import provenance
from lohe.experiments.contest import (
    alike,
    choose,
    each,
    large,
    later,
    law,
    measured,
    measured_tables,
    rates,
    tables,
)
from lohe.experiments.contest.further import further
from lohe.experiments.contest.law import Law
from lohe.experiments.contest.second import answer, second_table
from lohe.experiments.contest.seen import scored_elsewhere
from lohe.experiments.contest.stages import (
    FITTED,
    HELD_OUT,
    best_name,
    curves,
    plain,
)
from lohe.experiments.contest.tables import curve_name
from lohe.experiments.contest.trials import FAMILIES, RATES, STAGES, TRIALS, TRIED, protocol
from lohe.experiments.contest.verdict import ALPHA, edges, verdict, what_would_change_it
from lohe.experiments.evidence import Evidence
from lohe.experiments.item import Figure
from lohe.experiments.store import files
from lohe.experiments.tables import Table
from lohe.measure.significance import sem
from lohe.models import Oscillator
from lohe.tasks import WikiText2Articles
from lohe.train import brief
from lohe.viz.style import drawing, save

MADE = "Made by `lohe contest page` from the records in `results/`; not to be edited."
ANSWERS = each.answer, what_would_change_it, edges, answer, large.answer
OF_CHOOSING = tables.search, alike.table
ON_TEST = "Perplexity on the test articles of ours, each softmax, the controls and as published"
OF_RATES = "Perplexity against the learning rate of each mechanism"
OF_TRIALS = "How far ours is above each family while training goes on"
TABLES = (
    tables.confirmed,
    each.table,
    tables.controlled,
    second_table,
    tables.law_table,
    large.table,
    large.search_table,
    further,
    measured_tables.beyond,
    measured_tables.readouts,
    measured_tables.devices,
)


def figure(evidence: Evidence) -> Figure:
    """Perplexity against d_osc: p = 1, the chosen p with gain, and softmax as lines; of what is
    `drawable`."""
    import matplotlib.pyplot as plt

    from lohe.viz import scaling
    from lohe.viz.curves import level
    from lohe.viz.style import BLUE, DEFINED, GREY, SOFTMAX

    drawn, ax = plt.subplots(figsize=(6.4, 4.2), layout="constrained")
    scaling.dimension_axis(ax, sorted((*FITTED, *HELD_OUT)))
    ax.set_ylabel("perplexity, validation (second half), strict")
    chosen = choose.chosen(evidence)
    assert chosen is not None
    looks = {"p = 1": (DEFINED, "s"), "chosen": (BLUE, "o")}
    for name, here in law.laws(evidence, chosen).items():
        color, marker = looks[name]
        _draw(ax, here, scaling, curve_name(name, chosen), color, marker)
    lines = {best_name(chosen): (chosen.best, SOFTMAX)}
    if plain(chosen) != chosen.best:
        lines["softmax"] = (plain(chosen), GREY)
    levels = {n: (law.perplexities(evidence, c), color) for n, (c, color) in lines.items()}
    means = {name: fmean(x) for name, (x, _) in levels.items() if x and math.isfinite(fmean(x))}
    for name, mean in means.items():
        above = mean == max(means.values())
        level(ax, mean, name, color=levels[name][1], above=above, left=True)
    handles, _ = ax.get_legend_handles_labels()
    if handles:
        ax.legend(fontsize=8.5)
    drawn.supxlabel(
        "bars: standard error over seeds; dotted: fit to d_osc 2-32; diamonds: "
        f"{' and '.join(map(str, HELD_OUT))}, held out,\nwith the 95 % interval predicted",
        fontsize=8,
    )
    return drawn


def drawable(evidence: Evidence) -> bool:
    """Whether some d_osc of a curve has a finite number."""
    chosen = choose.chosen(evidence)
    drawn = curves(chosen.ours).values() if chosen else []
    there = (x for by_d in drawn for c in by_d.values() for x in law.perplexities(evidence, c))
    return any(map(math.isfinite, there))


def page(evidence: Evidence, stem: str) -> str:
    """The page as Markdown; its figures and the protocol are files beside it that begin with
    `stem`."""
    parts = [
        "# Beyond softmax",
        MADE,
        protocol()["question"],
        f"**{verdict(evidence)}**",
        *(said for about in ANSWERS if (said := about(evidence))),
        preset(evidence),
        *([f"![{ON_TEST}]({stem}_test.png)"] if each.entries(evidence) else []),
        *([f"![Perplexity against d_osc]({stem}.png)"] if drawable(evidence) else []),
        *(_markdown(found) for table in TABLES if (found := table(evidence)).rows),
        *made_by(evidence),
        _markdown(tables.chosen_table(evidence)),
        *(_markdown(x) for table in OF_CHOOSING if (x := table(evidence)).rows),
        *([f"![{OF_RATES}]({stem}_rates.png)"] if rates.panels(evidence) else []),
        *([f"![{OF_TRIALS}]({stem}_trials.png)"] if alike.rivals(evidence) else []),
        "## What p and a gain are on a substrate",
        measured_tables.ON_A_SUBSTRATE,
        _markdown(measured_tables.counted(evidence)),
        "## Without a record yet",
        "\n".join(f"- {line}" for line in lacking(evidence))
        or "Nothing: the protocol is complete.",
        "## Protocol",
        in_short(stem),
    ]
    return "\n\n".join(parts) + "\n"


def in_short(stem: str) -> str:
    """The protocol in a few sentences, and where all of it is."""
    given, (first, second, last) = protocol(), (STAGES[x] for x in ("trials", "rates", "confirm"))
    return (
        f"{len(TRIED)} of {len(FAMILIES)} families train {TRIALS} draws of their settings, "
        f"{len(first.seeds)} seeds and {first.epochs} epochs each; the best setting of each, and "
        "every setting of the other families, goes on to a search of learning rates, "
        f"{RATES[0]:g} to {RATES[-1]:g}, and dropout, {len(second.seeds)} seeds. Ours and "
        f"every softmax as found by it are trained with {len(last.seeds)} fresh seeds more, "
        f"{last.epochs} epochs, and scored on the test articles once. The first half of the "
        "validation articles chooses, epochs as well. Primary test, ours against the softmax that "
        f"is best by validation: log perplexity on test, Welch, two-sided, alpha = {ALPHA}. [All "
        f"rules, and what was changed]({stem}_protocol.md): question and primary test of "
        f"{given['committed']}, before any of these runs; search and {last.epochs} epochs of "
        f"{given['search committed']}, after the trials and one seed of three models at higher "
        "rates, before anything was scored on test; "
        f"{len(given['amendments'])} amendments in all."
    )


def protocol_page(evidence: Evidence, stem: str) -> str:
    """The protocol as Markdown: what had been seen before, the rules, the amendments."""
    given = protocol()
    parts = [
        "# Beyond softmax: the protocol",
        MADE,
        f"What it has found is on [the page]({stem}.md). Committed on {given['committed']}, before "
        "any of these runs, and changed by the amendments below; the rules are as they are now "
        "(`src/lohe/experiments/contest/protocol.json`).",
        "## Seen before",
        given["seen_before"],
        "Scored on the test articles in other records, sizes being d_osc or d_qk:",
        "\n".join(f"- {line}" for line in scored_elsewhere(evidence)) or "None.",
        "## Rules",
        "\n".join(f"- *{name}*: {text}" for name, text in given["rules"].items()),
        "## Amendments",
        "\n".join(
            f"- {a['date']}, {a['when']}: {a['what']} Why: {a['why']}" for a in given["amendments"]
        ),
    ]
    return "\n\n".join(parts) + "\n"


def made_by(evidence: Evidence) -> list[str]:
    """By which code the scores on test came about, and whether other models were measured."""
    chosen = choose.chosen(evidence)
    if chosen is None:
        return []
    scored = {
        replace(run, seed=0)
        for stage in later.LATER_STAGES
        for run in later.later_runs(stage, evidence, chosen)
        if isinstance(run.task, WikiText2Articles) and run.task.test
    }
    said = tables.codes(r for run in scored for r in evidence.records(run))
    found = [f"Code of the models that were scored on test: {said}."] if said else []
    return found + provenance.notes(measured.measures(chosen), evidence)


def preset(evidence: Evidence) -> str:
    """What the preset builds, and what was chosen, and how that was trained."""
    given, chosen = Oscillator.sharpened(), choose.chosen(evidence)
    said = f"The preset `lohe.models.Oscillator.sharpened()` is `{brief(given)}`"
    if chosen is None:
        return f"{said}; these records have chosen none yet."
    ours = chosen.ours
    rates = f"learning rate {ours.learning_rate:g} and dropout {ours.dropout:g}"
    if ours.mechanism == given:
        return f"{said}: what this protocol chose, for models of this size with {rates}."
    return f"These records chose `{brief(ours.mechanism)}` with {rates}. {said}."


def lacking(evidence: Evidence) -> list[str]:
    """What the protocol asks for and nobody has trained or measured, a line each."""
    chosen = choose.chosen(evidence)
    if chosen is None:
        stages = ", ".join((*later.LATER_STAGES, "measure"))
        return [tables.progress(evidence), f"{stages}: nothing before it is chosen."]
    found = []
    for stage in later.LATER_STAGES:
        runs = later.later_runs(stage, evidence, chosen)
        left, more = len(choose.missing(evidence, runs)), later.more_follow(stage, evidence, chosen)
        if left:
            found.append(f"{stage}: {left} of {len(runs)} models{', and more follow' * more}.")
    wanted = measured.measures(chosen)
    if left := sum(evidence.measured(m) is None for m in wanted):
        found.append(f"measure: {left} of {len(wanted)} measurements.")
    return found


def write(path: Path, evidence: Evidence) -> list[Path]:
    """The page at `path`; beside it the protocol, and figures once there is something to draw."""
    beside = path.with_name(f"{path.stem}_protocol.md")
    files.write(path, page(evidence, path.stem).encode())
    files.write(beside, protocol_page(evidence, path.stem).encode())
    written = [path, beside]
    with drawing():
        if drawable(evidence):
            written.append(save(figure(evidence), path.with_suffix(".png")))
        if each.entries(evidence):
            on_test = path.with_name(f"{path.stem}_test.png")
            written.append(save(each.figure(evidence), on_test))
        if rates.panels(evidence):
            of_rates = path.with_name(f"{path.stem}_rates.png")
            written.append(save(rates.figure(evidence), of_rates))
        if alike.rivals(evidence):
            of_trials = path.with_name(f"{path.stem}_trials.png")
            written.append(save(alike.figure(evidence), of_trials))
    return written


def _draw(ax: Any, here: Law, scaling: Any, label: str, color: str, marker: str) -> None:
    finite = {d: [x for x in values if math.isfinite(x)] for d, values in here.samples.items()}
    known = [d for d in FITTED if finite.get(d)]
    means = np.array([fmean(finite[d]) for d in known])
    sems = np.array([sem(finite[d]) for d in known])
    if known:
        scaling.points(ax, known, means, sems, label=label, color=color, marker=marker)
    if here.fit is not None:
        scaling.curve(ax, (min(FITTED), max(HELD_OUT)), here.fit.value, color=color)
    for d in HELD_OUT:
        if values := finite.get(d):
            at = (here.held_out or {}).get(d)
            interval = (at.low, at.high) if at else (math.nan, math.nan)
            scaling.held_out(ax, d, fmean(values), interval, color=color)


def _markdown(table: Table) -> str:
    """A heading, the table, and its notes."""

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    parts = [f"## {table.title}", ""]
    if table.rows:
        parts += [line(table.columns), line(["---"] * len(table.columns))]
        parts += [line(row) for row in table.rows] + [""]
    return "\n".join(parts + [f"- {note}" for note in table.notes])
