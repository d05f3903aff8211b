"""The verb's attention over all test sentences and seeds: how broad it is, and why (Sec. 4.1)."""

from collections.abc import Sequence
from math import sqrt
from statistics import fmean, pvariance

import numpy as np

from lohe.experiments.evidence import Evidence
from lohe.experiments.item import Figure, Item
from lohe.experiments.reported import published
from lohe.experiments.store.records import Record
from lohe.experiments.studies.sva.agreement_attention import TARGETS, count_line
from lohe.experiments.studies.sva.agreement_cohort import (
    FAILS_BELOW,
    NO_RECORDS,
    OSCILLATORS,
    SOFTMAX,
    below,
    kind,
    spread,
    undecided,
)
from lohe.experiments.studies.sva.agreement_verbs import (
    good,
    hard_accuracy,
    means,
    measured,
    measures,
)
from lohe.experiments.verdicts import Claim, Line, counts, significant
from lohe.measure.significance import mann_whitney, superiority

UNCONVERGED = 80.0  # hard accuracy in percent, Figure 4's caption


def figure_4(evidence: Evidence) -> Figure:
    """Figure 4: the verb's attention on all test sentences with a distractor."""
    import matplotlib.pyplot as plt

    from lohe.viz import rates, violins

    found = {name: records for name, records in measured(evidence).items() if records}
    columns = max(len(found), 1)
    figure, axes = plt.subplots(
        1, columns, figsize=(3.4 * columns, 3.9), sharey=True, layout="constrained", squeeze=False
    )
    for ax, (name, records) in zip(axes[0], found.items(), strict=False):
        at = [fmean(means(records, f"test.{target}")) for target in TARGETS]
        for x, (target, middle) in enumerate(zip(TARGETS, at, strict=True)):
            violins.with_mean(ax, x, _pooled(records, f"test.{target}"), middle, rates.color(name))
        violins.bracket(ax, 0, 1, f"{at[0] - at[1]:+.2f}")
        ax.set_xticks([0, 1], ["to the subject", "to the distractor"])
        ax.set_title(f"{name}\n{len(records)} seeds")
    axes[0, 0].set(ylabel="attention weight of the verb")
    figure.supxlabel(
        "all sentences of all seeds; dots and difference: means over seeds", fontsize=9
    )
    if not found:
        axes[0, 0].set_title(NO_RECORDS)
    return figure


def _pooled(records: Sequence[Record], name: str) -> np.ndarray:
    """The histograms of all seeds together."""
    lines = [line[name] for record in records for line in record.curve if name in line]
    return np.sum(lines, axis=0)


def lines_4(evidence: Evidence) -> list[Line]:
    """What the caption of Figure 4 says in numbers, and what it says in words."""
    found = measured(evidence)
    softmax = found[SOFTMAX]
    lines = [
        count_line("test sentences with a distractor", "test_sentences", found),
        _failed_line([hard_accuracy(record) for record in softmax]),
        _preference_line(SOFTMAX, softmax),
        _spread_line(SOFTMAX, softmax, _because_of_seeds(softmax)),
        _pulled_line(softmax),
    ]
    for name in OSCILLATORS:
        lines += [
            _preference_line(name, found[name]),
            _spread_line(name, found[name], _tighter(found[name], softmax)),
        ]
    return lines


def _failed_line(hard: Sequence[float]) -> Line:
    """The softmax run that the caption calls unconverged."""
    theirs = published("table3")["hard"]["softmax"]
    low, low_paper = below(hard, UNCONVERGED), below(theirs, UNCONVERGED)
    return Line(
        f"softmax, seeds below {UNCONVERGED:.0f} % hard",
        f"{low_paper}/{len(theirs)}",
        f"{low}/{len(hard)}" if hard else "",
        counts(low, len(hard), low_paper, len(theirs)) if hard else NO_RECORDS,
    )


def _preference_line(name: str, records: Sequence[Record]) -> Line:
    """The caption finds it consistent for the oscillator."""
    mechanism, reading = kind(name)
    gaps = [r.result["test.to_subject"] - r.result["test.to_distractor"] for r in records]
    said = f"positive in {sum(x > 0 for x in gaps)} of {len(gaps)} seeds" if gaps else ""
    claim = None
    if mechanism == "oscillator":
        claim = undecided("sva-preference")
        if gaps:
            claim = Claim("sva-preference", min(gaps) > 0, f"{said}, lowest {min(gaps):+.3f}")
    return Line(
        f"{mechanism}, a_vs - a_vd",
        "positive" if mechanism == "oscillator" else "",
        spread(gaps),
        "not reported" if gaps else NO_RECORDS,
        claim,
        reading,
        "" if claim else said,
    )


def _spread_line(name: str, records: Sequence[Record], claim: Claim) -> Line:
    mechanism, reading = kind(name)
    between, within = (means(records, f"test.to_subject{x}") for x in ("", "_std"))
    return Line(
        f"{mechanism}, a_vs: spread between seeds, and within",
        {"softmax": "broad, by its seeds", "oscillator": "tighter"}[mechanism],
        f"{np.std(between, ddof=1):.2f}, {fmean(within):.2f}" if len(between) > 1 else "",
        "not reported" if len(between) > 1 else NO_RECORDS,
        claim,
        reading,
    )


def _whole(records: Sequence[Record], target: str) -> tuple[float, float]:
    """Deviation over all sentences of all seeds, and the share of seeds in its square."""
    between = pvariance(means(records, f"test.{target}"))
    within = fmean(x**2 for x in means(records, f"test.{target}_std"))
    return sqrt(between + within), between / (between + within)


def _because_of_seeds(softmax: Sequence[Record]) -> Claim:
    """Softmax's seeds differ by more than its sentences do."""
    if len(softmax) < 2:
        return undecided("sva-attention-seeds")
    share = _whole(softmax, "to_subject")[1]
    found = f"seeds make {100 * share:.0f} % of the variance over sentences and seeds"
    return Claim("sva-attention-seeds", share > 0.5, found)


def _tighter(oscillator: Sequence[Record], softmax: Sequence[Record]) -> Claim:
    """Narrower over all sentences and seeds, and seed by seed, to the subject and from it."""
    if min(len(oscillator), len(softmax)) < 2:
        return undecided("sva-attention-tighter")
    holds, largest, said = True, 0.0, []
    for target, symbol in zip(TARGETS, ("a_vs", "a_vd"), strict=True):
        whole = [_whole(records, target)[0] for records in (oscillator, softmax)]
        widths = [means(records, f"test.{target}_std") for records in (oscillator, softmax)]
        p = mann_whitney(*widths)
        narrower = whole[0] < whole[1] and superiority(*widths) < 0.5
        holds, largest = holds and narrower and significant(p), max(largest, p)
        said.append(f"{symbol} {whole[0]:.3f} against softmax's {whole[1]:.3f}, p = {p:.2g}")
    return Claim("sva-attention-tighter", holds, "; ".join(said), largest)


def _pulled_line(softmax: Sequence[Record]) -> Line:
    """Failed runs against the others."""
    lost = [record for record in softmax if hard_accuracy(record) < FAILS_BELOW]
    low, high = (means(records, "test.to_subject") for records in (lost, good(softmax)))
    claim = undecided("sva-attention-pulled")
    if min(len(low), len(high)) > 1:
        p, share = mann_whitney(low, high), superiority(low, high)
        found = f"lower in {100 * (1 - share):.0f} % of pairs, Mann-Whitney p = {p:.2g}"
        claim = Claim("sva-attention-pulled", share < 0.5 and significant(p), found, p)
    seen = claim.holds is not None
    return Line(
        "softmax, a_vs of seeds that failed, and of the others",
        "lower",
        f"{spread(low)}, {spread(high)}" if seen else "",
        "not reported" if seen else NO_RECORDS,
        claim,
    )


ITEMS: dict[str, Item] = {
    "figure4": Item(
        title="Figure 4. Attention of the verb on the test sentences",
        measures=measures,
        figure=figure_4,
        lines=lines_4,
    ),
}
