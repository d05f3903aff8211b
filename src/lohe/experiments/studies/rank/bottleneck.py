"""What rank the attention matrices have, and what a lower one costs: Appendix E."""

from collections.abc import Mapping
from math import isfinite
from statistics import fmean
from typing import Any

from lohe.experiments.evidence import Evidence
from lohe.experiments.item import Figure, Item
from lohe.experiments.measures import Measure
from lohe.experiments.reported import published
from lohe.experiments.setting import READINGS, Setting
from lohe.experiments.studies.lm.perplexity import CORPORA, PROTOCOL, oscillator, protocol
from lohe.experiments.studies.rank import (
    cohort,
    effective_rank,
    flatness,
    rank_lines,
    rank_matched,
    rank_parity,
    truncation,
)
from lohe.experiments.studies.rank.cohort import DIMENSIONS, SHARPENED, few
from lohe.experiments.studies.rank.rank_lines import RANKS
from lohe.experiments.tables import Table, plus_minus
from lohe.measure.significance import mean_std, sem
from lohe.models import Softmax


def measures(setting: Setting) -> list[Measure]:
    """Effective ranks of every mechanism, sharpened ones included; softmax cut to lower ranks."""
    found: list[Measure] = []
    for corpus in CORPORA:
        found += [
            effective_rank.of(setting, corpus, mechanism) for mechanism in cohort.measured(setting)
        ]
        found += [truncation.of(setting, corpus, rank) for rank in few(setting, RANKS)]
    return found


def table_of_ranks(evidence: Evidence) -> Table:
    """Effective ranks and perplexities, corpus by corpus."""
    rows: list[tuple[str, ...]] = []
    for corpus, title in CORPORA.items():
        of_corpus = _rank_rows(evidence, corpus) + _truncated_rows(evidence, corpus)
        rows += [(title, "", "", ""), *of_corpus] if of_corpus else []
    notes = [
        "S = 1 + Z Rᵀ before mask and clamp, with p its power, mean ± standard deviation over "
        "chunks, layers and heads of one model; in brackets the largest rank, and where anchors "
        "are free that of what the clamp leaves.",
        "Perplexity: mean ± standard deviation over seeds; of a truncated model with the causal "
        "mask applied again, and in brackets without it, as published.",
        PROTOCOL,
    ]
    if not rows:
        notes = [evidence.setting.none_yet("figure10")]
    columns = ("model", "rank of S", "masked", "perplexity")
    return Table("Figure 10. Effective rank of attention", columns, rows, notes)


def _rank_rows(evidence: Evidence, corpus: str) -> list[tuple[str, ...]]:
    shown = [*cohort.mechanisms()]
    shown += [
        (f"d_osc = {d}, p = {p}", r, oscillator(r, d, p)) for r in READINGS for d, p in SHARPENED
    ]
    rows = []
    for name, reading, mechanism in shown:
        ranks = effective_rank.found(evidence, corpus, mechanism)
        perplexities = cohort.perplexities(evidence, corpus, mechanism)
        if not ranks and not perplexities:
            continue
        before = after = ""
        if ranks:
            kind = "sharpened" if "sharpened.mean" in ranks else "similarity"
            if f"{kind}.mean" in ranks:
                before = plus_minus(ranks[f"{kind}.mean"], ranks[f"{kind}.std"])
                clamped = f", {ranks['readout.rank']:.0f}" if "readout.rank" in ranks else ""
                before += f" ({ranks[f'{kind}.rank']:.0f}{clamped})"
            after = plus_minus(ranks["attention.mean"], ranks["attention.std"], 1)
        perplexity = plus_minus(*mean_std(perplexities)) if perplexities else ""
        rows.append((f"  {name}" + (f", {reading}" if reading else ""), before, after, perplexity))
    return rows


def _truncated_rows(evidence: Evidence, corpus: str) -> list[tuple[str, ...]]:
    rows = []
    for rank in RANKS:
        if found := truncation.found(evidence, corpus, rank):
            perplexity = f"{found['causal']:.2f} ({found['as_published']:.2f})"
            rows.append((f"  softmax, cut to rank {rank}", "", "", perplexity))
    return rows


def figure_10(evidence: Evidence) -> Figure:
    """Figure 10: effective rank against d_osc; perplexity at matched rank, three ways.

    A row for each corpus; the paper has TinyStories only, drawn hollow.
    """
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(2, 2, figsize=(11, 8.4), layout="constrained")
    for (left, right), corpus in zip(axes, CORPORA, strict=True):
        title = cohort.called(evidence, corpus)
        _draw_ranks(left, evidence, corpus)
        left.set_title(f"{title}: effective rank")
        _draw_perplexities(right, evidence, corpus)
        right.set_title(f"{title}: perplexity at a rank ceiling{protocol(corpus)}")
    return figure


def _draw_ranks(ax: Any, evidence: Evidence, corpus: str) -> None:
    from lohe.viz import ranks
    from lohe.viz.style import BLUE, DEFINED, GREEN, ORANGE, PURPLE

    def of(reading: str, name: str) -> dict[int, float]:
        return _present(effective_rank.by_dimension(evidence, corpus, reading, name))

    styles = {"as published": (BLUE, GREEN, 0.97), "as defined": (DEFINED, PURPLE, 1.03)}
    for reading, (before, after, shift) in styles.items():
        means, stds = of(reading, "similarity.mean"), of(reading, "similarity.std")
        look: Any = {"shift": shift, "hollow": reading == "as defined"}
        ranks.series(ax, means, stds, color=before, label=f"S, {reading} (± std)", **look)
        label = f"after the mask, {reading}"
        masked = of(reading, "attention.mean")
        ranks.series(ax, masked, color=after, marker="^", label=label, **look)
    softmax = effective_rank.found(evidence, corpus, Softmax()).get("attention.mean")
    if softmax is not None and isfinite(softmax):
        ax.axhline(softmax, color=ORANGE, ls=":", lw=1.5, label="softmax, after the mask")
    if corpus == "tinystories":
        paper = published("figure10")
        similarity = {int(d): x for d, x in paper["similarity"].items()}
        means, stds = ({d: x[k] for d, x in similarity.items()} for k in ("mean", "std"))
        ranks.published(ax, means, stds, label="S, paper (± std)", shift=0.91)
        masked = {int(d): x for d, x in paper["attention"].items()}
        ranks.published(ax, masked, label="after the mask, paper", marker="^", shift=0.91)
    ranks.ceiling(ax, DIMENSIONS)
    ranks.dimensions(ax, DIMENSIONS, "d_osc")
    ax.set_ylabel("effective rank")
    ax.set_ylim(0, 1.45 * ax.get_ylim()[1])  # room for the legend
    said = "S = 1 + Z R$^T$: similarity of oscillators and anchors, before the mask"
    how: Any = {"title": said, "title_fontsize": 8, "alignment": "left"}
    ax.legend(fontsize=8, ncols=2, loc="upper left", **how)


def _draw_perplexities(ax: Any, evidence: Evidence, corpus: str) -> None:
    from lohe.viz import ranks
    from lohe.viz.style import BLUE, DEFINED, GREEN, ORANGE, RED

    labels = {"as_published": "softmax cut to r, leaks", "causal": "softmax cut to r, masked again"}
    for (name, label), color in zip(labels.items(), (ORANGE, RED), strict=True):
        cut = _present({r: truncation.found(evidence, corpus, r).get(name) for r in RANKS})
        look: Any = {"line": "--", "hollow": name == "as_published"}
        ranks.series(ax, cut, color=color, marker="v", label=label, **look)
    for reading, color in zip(READINGS, (BLUE, DEFINED), strict=True):
        found = {
            r: cohort.perplexities(evidence, corpus, oscillator(reading, r - 1)) for r in RANKS
        }
        means = {r: fmean(x) for r, x in found.items() if x}
        errors = {r: sem(x) for r, x in found.items() if x}
        look = {"label": f"oscillator, {reading} (± SEM)", "hollow": reading == "as defined"}
        ranks.series(ax, means, errors, color=color, **look)
    found = rank_matched.perplexities(evidence, corpus)
    spread = {d: mean_std(x) for d, x in found.items() if x}
    means, stds = ({d: x[k] for d, x in spread.items()} for k in (0, 1))
    ranks.series(ax, means, stds, color=GREEN, marker="s", label="softmax of rank d_qk (± std)")
    if corpus == "tinystories":
        paper = published("figure10")
        cut = {int(r): x for r, x in paper["truncated"].items()}
        ranks.published(ax, cut, label="softmax cut to r, leaks, paper", marker="v")
        oscillators = published("table4")["tinystories"]["oscillator"]
        whole = {r: fmean(oscillators[str(r - 1)]) for r in RANKS}
        ranks.published(ax, whole, label="oscillator, paper", marker="o")
        matched = rank_matched.published_means()
        ranks.published(ax, matched, label="softmax of rank d_qk, paper", marker="s")
    if not ax.has_data():
        ranks.nothing(ax)
        return
    ax.set_yscale("log")
    ranks.dimensions(ax, (2, 4, 8, 16, 32), "rank ceiling: r, d_osc + 1, d_qk")
    low, high = ax.get_ylim()
    ax.set_ylim(low, high * (high / low) ** 0.35)  # room for the legend
    ranks.plain_logarithm(ax)
    ax.set_ylabel("validation perplexity")
    ax.legend(fontsize=8, ncols=2, loc="upper right")


def _present(values: Mapping[int, float | None]) -> dict[int, float]:
    return {d: x for d, x in values.items() if x is not None and isfinite(x)}


ITEMS: dict[str, Item] = {
    "figure10": Item(
        title="Figure 10. The rank of attention, and what a lower one costs",
        runs=rank_matched.runs,
        measures=measures,
        table=table_of_ranks,
        figure=figure_10,
        lines=rank_lines.lines,
    ),
    "figure9": Item(
        title="Figure 9. Entropy of attention, and agreement seeds",
        runs=flatness.runs,
        measures=flatness.measures,
        table=flatness.table_of_entropies,
        figure=flatness.figure_9,
        lines=flatness.lines,
    ),
    "claim-rank-matched": Item(
        title="Softmax with scores of low rank",
        runs=rank_matched.runs,
        table=rank_matched.table_of_scores,
        lines=rank_matched.lines,
    ),
    "claim-rank-parity": Item(
        title="Where parity is expected",
        runs=rank_parity.runs,
        measures=rank_parity.measures,
        lines=rank_parity.lines,
    ),
}
