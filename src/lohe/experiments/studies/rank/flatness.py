"""Flat attention and scattered seeds: Figure 9, one panel of each."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

from lohe.experiments.evidence import Evidence
from lohe.experiments.item import Figure
from lohe.experiments.measures import Measure
from lohe.experiments.reported import published
from lohe.experiments.setting import READINGS, Setting
from lohe.experiments.store.records import Record
from lohe.experiments.studies.lm.perplexity import CORPORA, oscillator, run
from lohe.experiments.studies.rank import cohort
from lohe.experiments.studies.rank.attention_entropy import AttentionEntropy
from lohe.experiments.studies.rank.cohort import DIMENSIONS, known, listed
from lohe.experiments.studies.sva import agreement
from lohe.experiments.studies.sva.agreement_cohort import COMPARED, FAILS_BELOW, kind, paper
from lohe.experiments.tables import Table
from lohe.experiments.verdicts import NO_RECORDS, Claim, Line, bound, counts
from lohe.models import Mechanism, Softmax
from lohe.train import Run

POWERS, SHARP_DIMENSIONS = (1, 2, 4), (2, 8)  # Table 5's


def runs(setting: Setting) -> list[Run]:
    """Agreement models, of which the right panel shows every seed."""
    return agreement.runs(setting, COMPARED)


def measures(setting: Setting) -> list[Measure]:
    """Softmax, and oscillators of both readings, sharpened ones too, on both corpora."""
    trained = cohort.measured(setting)
    return [_measure(setting, corpus, mechanism) for corpus in CORPORA for mechanism in trained]


def table_of_entropies(evidence: Evidence) -> Table:
    """Medians and quartiles behind the violins."""
    rows = []
    for corpus, title in CORPORA.items():
        for name, reading, mechanism in cohort.mechanisms():
            if record := _found(evidence, corpus, mechanism):
                r = record.result
                rows.append(
                    (
                        f"{title}, {name}" + (f", {reading}" if reading else ""),
                        f"{r['median']:.3f}",
                        f"{r['q1']:.3f}-{r['q3']:.3f}",
                        f"{r['rows']:,}",
                    )
                )
    paper = {"softmax": published("figure9")["softmax"]} | {
        f"d_osc = {d}": x for d, x in published("figure9")["oscillator"].items()
    }
    for name, (median, first, third) in paper.items():
        rows.append(
            (f"TinyStories, {name} (paper)", f"{median:.3f}", f"{first:.3f}-{third:.3f}", "")
        )
    notes = ["Entropy of a row over the logarithm of its number of keys; uniform is 1."]
    if len(rows) == len(paper):
        notes.append(evidence.setting.none_yet("figure9"))
    columns = ("attention", "median", "quartiles", "rows")
    return Table("Figure 9, left. Normalised entropy of attention rows", columns, rows, notes)


def lines(evidence: Evidence) -> list[Line]:
    """The medians of Figure 9's left panel, what they say, and the failures of its right panel."""
    found = [_claim_line(evidence, corpus, reading) for corpus in CORPORA for reading in READINGS]
    found += [
        _sharper_line(evidence, corpus, reading) for corpus in CORPORA for reading in READINGS
    ]
    theirs = published("figure9")
    found.append(_median_line(evidence, "softmax", "", Softmax(), theirs["softmax"]))
    for name, reading, mechanism in cohort.mechanisms():
        if reading:
            values = theirs["oscillator"][name.removeprefix("d_osc = ")]
            found.append(_median_line(evidence, name, reading, mechanism, values))
    return found + _failure_lines(evidence)


def _claim_line(evidence: Evidence, corpus: str, reading: str) -> Line:
    softmax = _median(evidence, corpus, Softmax())
    medians = known({d: _median(evidence, corpus, oscillator(reading, d)) for d in DIMENSIONS})
    what = (
        f"{cohort.called(evidence, corpus)}, median entropy at d_osc = 2, 4, 8, 16 against softmax"
    )
    paper = "0.90-0.92 against 0.60" if corpus == "tinystories" else "TinyStories only"
    if softmax is None or medians is None:
        return cohort.undecided(what, paper, "lm-entropy", reading)
    least = min(medians.values()) - softmax
    holds = least >= bound("lm-entropy")
    claim = Claim("lm-entropy", holds, f"the smallest difference is {least:+.3f}")
    shown = f"{listed(medians.values(), 3)} against {softmax:.3f}"
    return Line(what, paper, shown, "not reported", claim, reading)


def _sharper_line(evidence: Evidence, corpus: str, reading: str) -> Line:
    """Trained with a larger p, attention is to be less flat. (Of given states it is a theorem.)"""
    what = f"{cohort.called(evidence, corpus)}, median entropy at p = 1, 2, 4, d_osc = 2 and 8"
    medians = {
        d: {p: _median(evidence, corpus, oscillator(reading, d, p)) for p in POWERS}
        for d in SHARP_DIMENSIONS
    }
    found = [known(of_power) for of_power in medians.values()]
    rows = [list(of_power.values()) for of_power in found if of_power is not None]
    if len(rows) < len(found):
        return cohort.undecided(what, "falls", "lm-entropy-sharpness", reading)
    falls = all(b < a for row in rows for a, b in pairwise(row))
    shown = "; ".join(listed(row, 3) for row in rows)
    claim = Claim("lm-entropy-sharpness", falls, f"p = 4 less p = 1: {_changes(rows)}")
    return Line(what, "falls", shown, "not reported", claim, reading)


def _changes(rows: list[list[float]]) -> str:
    return ", ".join(f"{row[-1] - row[0]:+.3f}" for row in rows)


def _median_line(
    evidence: Evidence, name: str, reading: str, mechanism: Mechanism, paper: list[float]
) -> Line:
    ours = _median(evidence, "tinystories", mechanism)
    value = cohort.one_model(evidence, None if ours is None else ours - paper[0], "entropy")
    shown = "" if ours is None else f"{ours:.2f}"
    what = f"{cohort.called(evidence, 'tinystories')}, median entropy, {name}"
    return Line(what, f"{paper[0]:.2f}", shown, value, reading=reading)


def _failure_lines(evidence: Evidence) -> list[Line]:
    """Failed seeds among those drawn; Table 2 has the tests."""
    found, ours = [], agreement.cohorts(evidence)
    for name in COMPARED:
        (mechanism, reading), mine = kind(name), ours[name]
        theirs = paper(mechanism)
        same = (
            counts(mine.failed, len(mine), theirs.failed, len(theirs)) if mine.hard else NO_RECORDS
        )
        what = f"agreement, seeds of {mechanism} below {FAILS_BELOW:.0f} % hard"
        found.append(Line(what, theirs.rate, mine.rate, same, reading=reading))
    return found


def figure_9(evidence: Evidence) -> Figure:
    """Figure 9: entropy of attention rows, and hard accuracy of every agreement seed.

    The paper's two panels, the left one for both corpora. Half a violin is a reading.
    """
    from matplotlib import pyplot as plt

    from lohe.viz import distributions, ranks
    from lohe.viz.style import BLUE, DEFINED, ORANGE

    figure, axes = plt.subplots(
        1, 3, figsize=(12.5, 4.2), width_ratios=(1, 1, 1.15), layout="constrained"
    )
    colors = {"": ORANGE, "as published": BLUE, "as defined": DEFINED}
    sides: dict[str, distributions.Side] = {
        "": "both",
        "as published": "left",
        "as defined": "right",
    }
    places = {"softmax": 0} | {f"d_osc = {d}": n for n, d in enumerate(DIMENSIONS, start=1)}
    for ax, corpus in zip(axes, CORPORA, strict=False):
        # where the paper's points stand in the middle, ours make room for them
        room = {"": 0.0, "as published": -0.06, "as defined": 0.06}
        if corpus == "tinystories":
            room = {"": -0.13, "as published": -0.13, "as defined": 0.13}
        drawn = 0
        for name, reading, mechanism in cohort.mechanisms():
            if record := _found(evidence, corpus, mechanism):
                r, at = record.result, places[name] + room[reading]
                histogram = record.curve[0]["histogram"]
                distributions.violin(ax, at, histogram, color=colors[reading], side=sides[reading])
                distributions.quartiles(ax, at, r["median"], r["q1"], r["q3"])
                drawn += 1
        if corpus == "tinystories":
            paper = published("figure9")
            for n, values in enumerate([paper["softmax"], *paper["oscillator"].values()]):
                distributions.quartiles(ax, n, *values, hollow=True)
        elif not drawn:
            ranks.nothing(ax)
        ax.set_xticks(list(places.values()), ["softmax", *map(str, DIMENSIONS)])
        ax.set(title=cohort.called(evidence, corpus), xlabel="d_osc")
        ax.set(xlim=(-0.7, len(places) - 0.4), ylim=(0, 1.02))
    axes[0].set_ylabel("normalised entropy of a row (uniform = 1)")
    shown = {"softmax": ORANGE, "oscillator, as published": BLUE, "oscillator, as defined": DEFINED}
    distributions.legend(axes[1], shown, hollow="the same, paper")
    groups = _boxes(evidence)
    shades = {"paper": None, "ours": ORANGE, "as published": BLUE, "as defined": DEFINED}
    distributions.boxes(axes[2], groups, [shades[name.split("\n")[1]] for name in groups])
    lowest = min(60.0, *(min(x, default=100.0) - 2 for x in groups.values()))
    axes[2].set(title="Agreement, hard sentences", ylabel="accuracy of a seed (%)")
    axes[2].set_ylim(lowest, 100)
    axes[2].tick_params(axis="x", labelsize=8)
    return figure


def _boxes(evidence: Evidence) -> Mapping[str, Sequence[float]]:
    """Hard accuracies under the paper's and our own labels."""
    ours, groups = agreement.cohorts(evidence), {}
    for name in COMPARED:
        mechanism, reading = kind(name)
        theirs, mine = paper(mechanism).hard, ours[name].hard
        groups[f"{mechanism}\npaper\n({len(theirs)})"] = theirs
        groups[f"{mechanism}\n{reading or 'ours'}\n({len(mine)})"] = mine
    return groups


def _measure(setting: Setting, corpus: str, mechanism: Mechanism) -> AttentionEntropy:
    return AttentionEntropy(run(setting, corpus, mechanism), cohort.chunks(setting))


def _found(evidence: Evidence, corpus: str, mechanism: Mechanism) -> Record | None:
    return evidence.measured(_measure(evidence.setting, corpus, mechanism))


def _median(evidence: Evidence, corpus: str, mechanism: Mechanism) -> float | None:
    record = _found(evidence, corpus, mechanism)
    return record.result["median"] if record else None
