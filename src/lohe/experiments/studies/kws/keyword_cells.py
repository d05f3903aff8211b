"""Keyword spotting, what its table, figure and statements share: cells, their accuracies, lines.

A cell is a mechanism with a positional encoding, trained as published (Adam with L2, the epoch of
highest validation accuracy) on a set of keywords, 10 seeds where the paper has 5.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from lohe.experiments import verdicts
from lohe.experiments.evidence import Evidence
from lohe.experiments.reported import published
from lohe.experiments.setting import READINGS, Setting
from lohe.experiments.tables import printed_gap, shown, shown_gap
from lohe.experiments.verdicts import (
    NO_RECORDS,
    Agreement,
    Claim,
    Estimate,
    Line,
    Verdict,
    gap,
    margin,
    mean,
    of_sample,
)
from lohe.measure.significance import mean_std
from lohe.models import Mechanism, Softmax
from lohe.models.positions import Positions
from lohe.train import Run

SEEDS = 10
POSITIONS: tuple[Positions, ...] = ("none", "sinusoidal", "learned")
LABELS = {"none": "no positions", "sinusoidal": "sinusoidal", "learned": "learned positions"}
MECHANISMS: Mapping[str, Mechanism] = {
    "softmax": Softmax(),
    **{f"oscillator, {reading}": mechanism for reading, mechanism in READINGS.items()},
}
# what the authors ran is the oscillator as published
PAPERS_NAMES = {"softmax": "softmax", "oscillator, as published": "oscillator"}
CLAIMED_AT = 0.9  # the interval of the claims of rules.json

Sample = Sequence[float]
Grid = Mapping[str, Mapping[str, Sample]]  # accuracies of mechanisms under conditions


def runs(
    setting: Setting, mechanisms: Iterable[Mechanism], positions: Iterable[Positions] = ("none",)
) -> list[Run]:
    """Every seed of every cell, on every set of keywords."""
    seeds, positions, mechanisms = setting.seeds(SEEDS), tuple(positions), tuple(mechanisms)
    return [
        setting.keyword_spotting(words, mechanism, where, seed)
        for words in setting.corpora.keywords
        for mechanism in mechanisms
        for where in positions
        for seed in seeds
    ]


def sharpened(setting: Setting, sharpness: Iterable[float]) -> list[Run]:
    """Oscillators without positional encoding that read out with these exponents."""
    exponents = tuple(sharpness)
    return runs(setting, [replace(m, sharpness=p) for m in READINGS.values() for p in exponents])


def accuracies(evidence: Evidence, run: Run, split: str = "valid") -> list[float]:
    """Accuracy of the selected epoch in percent, in order of seed."""
    return evidence.values(run, f"{split}.accuracy")


def last_epoch(evidence: Evidence, run: Run) -> list[float]:
    """Validation accuracy of the last epoch in percent, in order of seed."""
    return [r.curve[-1]["accuracy"] for r in evidence.records(run) if r.curve]


def grid(evidence: Evidence, words: str, split: str = "valid") -> Grid:
    """The position-matched comparison: mechanisms by positional encoding."""
    place = evidence.setting.keyword_spotting
    return {
        name: {where: accuracies(evidence, place(words, m, where), split) for where in POSITIONS}
        for name, m in MECHANISMS.items()
    }


def published_grid() -> Grid:
    """The same of the paper: softmax, and the oscillator as published."""
    paper = published("figure3")["per_seed"]
    return {name: paper[theirs] for name, theirs in PAPERS_NAMES.items()}


def moments(found: Grid, conditions: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Means and deviations, (mechanism, condition), for drawing: NaN where there is nothing."""
    samples = [
        [found.get(name, {}).get(condition, []) for condition in conditions] for name in MECHANISMS
    ]
    nothing = (math.nan, math.nan)
    both = np.array([[mean_std(x) if x else nothing for x in row] for row in samples])
    return both[..., 0], both[..., 1]


def grid_rows(title: str, found: Grid) -> list[tuple[str, ...]]:
    """A heading, then a row for each condition: softmax, oscillator as published, as defined."""
    conditions = next(iter(found.values()))
    rows: list[tuple[str, ...]] = [(f"{title}:", "", "", "")]
    for condition in conditions:
        samples = (found.get(name, {}).get(condition, []) for name in MECHANISMS)
        rows.append((condition, *(shown(x) if x else "-" for x in samples)))
    return rows


def value_line(
    what: str,
    sample: Sample,
    paper: Sample,
    *,
    comparable: bool,
    reading: str = "",
    within: str = "kws_accuracy",
) -> Line:
    """A mean beside the published one, judged where the data are the paper's."""
    value: Agreement | Verdict = "not comparable"
    if not sample:
        value = NO_RECORDS
    elif comparable:
        found = mean(sample)
        value = Agreement(found - of_sample(paper), margin(within)) if found else "inconclusive"
    return Line(what, shown(paper), shown(sample), value, reading=reading)


def grid_lines(
    title: str, found: Grid, paper: Grid, *, comparable: bool, within: str = "kws_accuracy"
) -> list[Line]:
    """Every mean of the grid; both readings of the oscillator beside the published one."""
    lines = []
    for name, row in found.items():
        mechanism, _, reading = name.partition(", ")
        theirs = paper["softmax" if mechanism == "softmax" else "oscillator, as published"]
        lines += [
            value_line(
                f"{title}: {mechanism}, {LABELS.get(condition, condition)}, %",
                sample,
                theirs[condition],
                comparable=comparable,
                reading=reading,
                within=within,
            )
            for condition, sample in row.items()
        ]
    return lines


def gap_line(
    what: str,
    a: Sample,
    b: Sample,
    paper: tuple[Sample, Sample] | None,
    *,
    reading: str = "",
    claim: Claim | None = None,
    note: str = "",
) -> Line:
    """Mean of a minus mean of b, beside the published gap: judged whatever the keywords are."""
    found, value = gap(a, b), NO_RECORDS
    if a and b:
        value = "not reported" if paper is None else "inconclusive"
    if found is not None and paper is None:
        note = "; ".join(text for text in (note, interval(found)) if text)
    if found is not None and paper is not None:
        theirs = of_sample(paper[0]) - of_sample(paper[1])
        value = Agreement(found - theirs, margin("kws_accuracy"), effect=theirs.value)
    printed = printed_gap(*paper) if paper else "not reported"
    return Line(what, printed, shown_gap(a, b), value, claim, reading, note)


def interval(estimate: Estimate) -> str:
    """+1.08 pp [+0.51, +1.65]: the 90 % interval, by which claims are decided."""
    low, high = estimate.interval(CLAIMED_AT)
    return f"{estimate.value:+.2f} pp [{low:+.2f}, {high:+.2f}]"


def undecided(claim: str, samples: Mapping[str, Sample]) -> Claim:
    return verdicts.undecided(claim, samples, "needs two seeds at least of each model")


def about(setting: Setting) -> list[str]:
    """In plain words: what the sets of keywords are, and what may be compared."""
    if setting.scale == "smoke":
        return ["Smoke scale: whistles in the place of words. Nothing has been learned."]
    if setting.corpora.published:
        return ["The paper's ten keywords and its front end: accuracies are comparable."]
    sets = "; ".join(
        f"{name}: {', '.join(getattr(task, 'words', ()))}"
        for name, task in setting.corpora.keywords.items()
    )
    return [
        f"{sets} (zero and one from version 0.01 of the data, all others from 0.02). Neither is "
        "the paper's ten keywords (`on` and `off` are missing), and the features come from another "
        "front end (docs/data.md): accuracies are not comparable with the paper's. Gaps between "
        "models trained on the same clips are, and they are judged."
    ]
