"""Keyword spotting on permuted frames: how much a model knows about their order (Section 4.1)."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import exp
from statistics import fmean
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from lohe.experiments.evidence import Evidence
from lohe.experiments.item import Figure, Item
from lohe.experiments.measures import Bench, Measure, Taken, on_seeds
from lohe.experiments.reported import published
from lohe.experiments.setting import Setting
from lohe.experiments.studies.kws import keyword_cells as cells
from lohe.experiments.studies.kws.keyword_cells import MECHANISMS, POSITIONS, READINGS, Grid, Sample
from lohe.experiments.studies.robust.physics import scores
from lohe.experiments.tables import Table, shown
from lohe.experiments.verdicts import (
    Agreement,
    Claim,
    Line,
    Verdict,
    bound,
    log,
    margin,
    mean,
    of_sample,
    ours,
)
from lohe.models import Mechanism
from lohe.models.positions import Positions
from lohe.tasks import Split
from lohe.train import Run

ENCODED = ("sinusoidal", "learned")
SPLITS = ("valid", "test")
UNPRINTED = "published, not printed in the paper"


@dataclass(frozen=True)
class FramePermutation:
    """Accuracy when the frames of every clip come in another order, the same for all clips.

    `permutations` are seeds of torch.randperm; the published ones. The model is that of the
    selected epoch, the published one that of the last; their accuracies differ by 0.0-0.3 pp.
    """

    run: Run
    permutations: tuple[int, ...] = (0, 1, 2)

    def take(self, bench: Bench) -> Taken:
        """For each split: intact, each permutation, and what they lose on average, pp."""
        model, data = bench.model(self.run), bench.data(self.run)
        result: dict[str, float] = {}
        for name in SPLITS:
            split = data.splits[name].to(bench.device)
            intact = scores(model, self.run.task, split)["accuracy"]
            permuted = {}
            for seed in self.permutations:
                order = torch.randperm(
                    split.inputs["features"].shape[1], generator=torch.Generator().manual_seed(seed)
                )
                permuted[seed] = scores(model, self.run.task, reordered(split, order))["accuracy"]
            result |= {f"{name}.intact": intact}
            result |= {f"{name}.permuted.{seed}": x for seed, x in permuted.items()}
            result |= {f"{name}.permuted": fmean(permuted.values())}
            result |= {f"{name}.loss": intact - fmean(permuted.values())}
        return Taken(result)


def reordered(split: Split, order: Int[Tensor, " frame"]) -> Split:
    """The same clips with their frames in this order."""
    features = split.inputs["features"]
    return Split({"features": features[:, order.to(features.device)]}, split.targets)


def runs(setting: Setting) -> list[Run]:
    """The models of Figure 3's keyword grid."""
    return cells.runs(setting, MECHANISMS.values(), POSITIONS)


def measures(setting: Setting) -> list[Measure]:
    """Every cell of the grid, every seed."""
    return [
        measure
        for words in setting.corpora.keywords
        for mechanism in MECHANISMS.values()
        for where in POSITIONS
        for measure in on_seeds(_of(setting, words, mechanism, where), setting.seeds(cells.SEEDS))
    ]


def _of(setting: Setting, words: str, m: Mechanism, where: Positions) -> FramePermutation:
    return FramePermutation(setting.keyword_spotting(words, m, where))


def measured(evidence: Evidence, words: str, what: str) -> Grid:
    """`what` of every cell on the validation split: intact, permuted or loss."""
    setting = evidence.setting
    return {
        name: {
            where: [
                record.result[f"valid.{what}"]
                for record in evidence.measured_seeds(_of(setting, words, m, where))
            ]
            for where in POSITIONS
        }
        for name, m in MECHANISMS.items()
    }


def published_measured(what: str) -> Grid:
    """The same of the paper."""
    probe: Mapping[str, Any] = published("claim-kws-permutation")["per_seed"]

    def sample(cell: Mapping[str, list[float]]) -> list[float]:
        if what == "loss":
            return [a - b for a, b in zip(cell["intact"], cell["permuted"], strict=True)]
        return cell[what]

    return {
        name: {where: sample(probe[theirs][where]) for where in POSITIONS}
        for name, theirs in cells.PAPERS_NAMES.items()
    }


def table(evidence: Evidence) -> Table:
    """Accuracy on frames in their order and permuted, for every cell."""
    setting, columns = evidence.setting, ("intact", "permuted", "loss")
    rows, notes = [], list(cells.about(setting))
    for words in setting.corpora.keywords:
        rows += _rows(words, {what: measured(evidence, words, what) for what in columns})
    if not rows:
        notes.append(setting.none_yet("claim-kws-permutation"))
    rows += _rows("the paper", {what: published_measured(what) for what in columns})
    notes.insert(
        0,
        "Mean over three fixed permutations of the frames, the same for every clip. Ours is the "
        "best epoch, the paper's the last one.",
    )
    shown = ("mechanism, positions", "seeds", "intact %", "permuted %", "loss pp")
    return Table("Keyword spotting on permuted frames", shown, rows, notes)


def _rows(title: str, found: Mapping[str, Grid]) -> list[tuple[str, ...]]:
    rows = []
    for name, row in found["loss"].items():
        for where, losses in row.items():
            if losses:
                texts = (shown(grid[name][where]) for grid in found.values())
                rows.append((f"{name}, {where}", str(len(losses)), *texts))
    return [(f"{title}:", *[""] * 4), *rows] if rows else []


def lines(evidence: Evidence) -> list[Line]:
    """Every published loss, with the claim on the oscillator without positions."""
    paper, said = published_measured("loss"), []
    for words in evidence.setting.corpora.keywords:
        found = measured(evidence, words, "loss")
        for name, row in found.items():
            mechanism, _, reading = name.partition(", ")
            theirs = paper["softmax" if mechanism == "softmax" else "oscillator, as published"]
            for where, losses in row.items():
                claim = None
                if reading in READINGS and where == "none":
                    claim = permutation_claim(losses, found["softmax"]["none"])
                note = UNPRINTED if mechanism == "oscillator" and where != "none" else ""
                said.append(
                    Line(
                        f"{words}: {mechanism}, {cells.LABELS[where]}, loss in pp",
                        shown(theirs[where]),
                        shown(losses),
                        _agreement(losses, theirs[where]),
                        claim,
                        reading,
                        note,
                    )
                )
            if reading in READINGS:
                said.append(_strength_line(words, reading, row["none"], found["softmax"], paper))
    return said


def _strength_line(
    words: str, reading: str, losses: Sample, softmax: Mapping[str, Sample], paper: Grid
) -> Line:
    """The oscillator's anchors beside softmax's positional encodings, as a ratio of losses."""
    theirs = fmean(paper["oscillator, as published"]["none"])
    shown = [f"{theirs / fmean(paper['softmax'][where]):.2f}" for where in ENCODED]
    ours_shown = ""
    if losses and all(softmax[where] for where in ENCODED):
        over = [fmean(softmax[where]) for where in ENCODED]
        ours_shown = ", ".join(f"{fmean(losses) / x:.2f}" if x else "-" for x in over)
    return Line(
        f"{words}: loss without positions over softmax's, sinusoidal and learned",
        f"comparable ({', '.join(shown)})",
        ours_shown,
        "not comparable" if ours_shown else cells.NO_RECORDS,
        strength_claim(losses, {where: softmax[where] for where in ENCODED}),
        reading,
        "the losses are judged one by one" if ours_shown else "",
    )


def strength_claim(oscillator: Sample, softmax: Mapping[str, Sample]) -> Claim:
    """kws-permutation-strength: within a factor of two, by the 90 % interval of the ratio."""
    name, samples = "kws-permutation-strength", {"oscillator": oscillator, **softmax}
    if any(mean(x) is None or fmean(x) <= 0 for x in samples.values()):
        return cells.undecided(name, samples)
    holds, said, factor = True, [], bound(name)
    for where, losses in softmax.items():
        ratio = log(ours(oscillator)) - log(ours(losses))
        low, high = (exp(x) for x in ratio.interval(cells.CLAIMED_AT))
        holds = holds and low >= 1 / factor and high <= factor
        said.append(f"{exp(ratio.value):.2f} times {where} [{low:.2f}, {high:.2f}]")
    return Claim(name, holds, f"with 90 % intervals: {'; '.join(said)}")


def _agreement(losses: Sample, theirs: Sample) -> Agreement | Verdict:
    found = mean(losses)
    if found is None:
        return "inconclusive" if losses else cells.NO_RECORDS
    paper = of_sample(theirs)
    return Agreement(found - paper, margin("permutation_loss"), effect=paper.value)


def permutation_claim(oscillator: Sample, softmax: Sample) -> Claim:
    """kws-permutation: the oscillator loses over 5 pp by its 90 % interval, softmax nothing."""
    loss = mean(oscillator)
    if loss is None or not softmax:
        return cells.undecided("kws-permutation", {"oscillator": oscillator, "softmax": softmax})
    most = max(softmax)
    many, none = (bound("kws-permutation", who) for who in ("oscillator", "softmax"))
    holds = loss.interval(cells.CLAIMED_AT)[0] > many and most <= none
    found = f"oscillator loses {cells.interval(loss)}, softmax at most {most:.3f} pp in a seed"
    return Claim("kws-permutation", holds, found)


def figure(evidence: Evidence) -> Figure:
    """Losses of every cell: a panel for each set of keywords."""
    import matplotlib.pyplot as plt

    from lohe.viz import bars, style

    sets = list(evidence.setting.corpora.keywords)
    figure, axes = plt.subplots(
        1,
        len(sets),
        figsize=(4.6 * len(sets), 4.0),
        sharey=True,
        squeeze=False,
        layout="constrained",
    )
    for ax, words in zip(axes[0], sets, strict=True):
        bars.grouped(
            ax,
            POSITIONS,
            *cells.moments(measured(evidence, words, "loss"), POSITIONS),
            labels=tuple(MECHANISMS),
            colors=(style.SOFTMAX, style.OSCILLATOR, style.DEFINED),
        )
        bars.published(ax, *cells.moments(published_measured("loss"), POSITIONS))
        ax.set(title=f"{words}, frames permuted", xlabel="positional encoding")
    low, high = axes[0, 0].get_ylim()
    axes[0, 0].set(ylabel="accuracy lost, pp", ylim=(min(low, -1), high))  # room for markers at 0
    for ax in axes[0]:
        bars.numbers(ax)
    bars.legend(figure, ncols=3)
    return figure


ITEMS: dict[str, Item] = {
    "claim-kws-permutation": Item(
        title="Section 4.1. Keyword spotting on permuted frames",
        runs=runs,
        measures=measures,
        table=table,
        figure=figure,
        lines=lines,
    ),
}
