"""What was measured on the trained models, as tables. Pure functions; what is missing is said."""

import math
from collections.abc import Sequence
from itertools import product
from statistics import fmean
from typing import Any

from lohe import cost
from lohe.experiments.contest import choose
from lohe.experiments.contest.beyond import WORDS, BeyondLength
from lohe.experiments.contest.measured import (
    ON_DEVICES,
    OURS,
    Devices,
    found,
    models,
)
from lohe.experiments.contest.readouts import LearnedReadout
from lohe.experiments.contest.stages import ASKED, best_name
from lohe.experiments.contest.tables import progress
from lohe.experiments.evidence import Evidence
from lohe.experiments.store.records import Record
from lohe.experiments.studies.counts import UNIT
from lohe.experiments.studies.rank.attention_entropy import AttentionEntropy
from lohe.experiments.studies.rank.concentration import Concentration
from lohe.experiments.studies.rank.effective_rank import EffectiveRank
from lohe.experiments.studies.robust import devices as robust
from lohe.experiments.studies.robust.physics import AT_STAKE, HORIZONS, SCALES
from lohe.experiments.studies.robust.robustness import KINDS
from lohe.experiments.studies.robust.subjects import WIKITEXT2
from lohe.experiments.studies.settle.settling import Settled, Settling
from lohe.experiments.tables import Table, shown
from lohe.experiments.verdicts import NO_RECORDS, Estimate, of_sample
from lohe.theory import readout_rank_bound

INPUTS = 48  # of a window of 49 words
READOUTS = ((1, False), (1, True), (2, True), (4, True), (8, True))  # p, and whether with a gain
NOT_FINITE = "no finite number"
ON_A_SUBSTRATE = """\
Without them an oscillator that does not lean away from the mean of its unit anchors gives none of n
keys more than 2/n, in any dimension; p of about log2 n, or a gain of about n/2, lets one key have
half (`theory.largest_weight`).

γ and p act on z·r, after the oscillators have settled: Theorem 3, the exact flow and the settling
time of a given drive are those of p = 1 without a gain.

γ is an amplifier on each readout line, and max(0, ·) the rectifier behind it. With γ <= 1 and unit
anchors 1 + γ z·r is never negative and the rectifier idle; above 1 it really acts, and a key beyond
the angle arccos(-1/γ) gets no weight at all.

p is post-processing of what an oscillator is read out as, one number a key: p = 2, 4, 8 are one,
two, three squarers in series, or as many multiplications where the readout is digital. It takes no
further oscillator and no time to settle. Sum and division come after it: where the power is
digital, they are.

Both magnify errors of the cosine z·r: a weight, before it is normalised, changes by
d ln a = p γ d(z·r) / (1 + γ z·r). What imperfect devices do to the whole model, stage `measure`
says of the confirmed ones; in a first look p cost far more than the gain
([what we measured](measured.md#devices))."""


def beyond(evidence: Evidence) -> Table:
    """Perplexity in windows longer than those that were trained on."""
    title = "Longer than trained"
    columns = ("model", "seeds", *(f"{words} words" for words in WORDS))
    chosen = choose.chosen(evidence)
    if chosen is None:
        return Table(title, columns, [], [progress(evidence)])
    rows = []
    for name in (OURS, best_name(chosen)):
        records = found(evidence, chosen, name, BeyondLength)
        for way in dict.fromkeys(row["positions"] for r in records for row in r.curve):
            cells = [shown(_at(records, "perplexity", words=w, positions=way)) for w in WORDS]
            rows.append((f"{name}, {way}", str(len(records)), *cells))
        if not records:
            rows.append((name, "0", *[NO_RECORDS] * len(WORDS)))
    notes = [
        f"Perplexity on the second half of validation, strict, of models trained on {WORDS[0]} "
        "words: mean ± standard deviation. Every word but the first is scored once at each length. "
        "What training on longer windows gives, stage `length` says.",
        "spread: the trained positions span the longer window; anchors are interpolated on the "
        "sphere, along great circles, everything else lies between its neighbours. continued: "
        "positions go on beyond the trained ones, which a model can that has learned no number for "
        "each of them. An oscillator has an anchor for each.",
    ]
    return Table(title, columns, rows, notes)


def readouts(evidence: Evidence) -> Table:
    """Gain, entropy and effective rank, layer by layer."""
    title = "Gain, entropy and rank, layer by layer"
    ranks = ("effective rank of attention", "of S", "of the readout", "largest rank", "cut, %")
    columns = ("model", "seeds", "layer", "gain", "p", "entropy", "largest weight, n a", *ranks)
    chosen = choose.chosen(evidence)
    if chosen is None:
        return Table(title, columns, [], [progress(evidence)])
    rows = []
    for name in models(chosen):
        kinds = (EffectiveRank, AttentionEntropy, Concentration, LearnedReadout)
        spectra, flat, most, learned = (found(evidence, chosen, name, kind) for kind in kinds)
        if not spectra or not flat or not most:
            rows.append((name, "0", "", NO_RECORDS, *[""] * (len(columns) - 4)))
            continue
        for layer in sorted({row["layer"] for row in spectra[0].curve}):
            here = [_heads(records, layer) for records in (spectra, flat, most, learned)]
            rows.append((name, str(len(spectra)), str(layer + 1), *_layer(*here), "", ""))
        rows[-1] = (*rows[-1][:-2], _largest(spectra), _cut(spectra))
    ours: Any = chosen.ours.mechanism
    sizes = dict.fromkeys((*product(ASKED, (2, 4)), (ours.d_osc, ours.sharpness)))
    bounds = [f"{readout_rank_bound(d, p):,} at {d}, {p}" for d, p in sizes]
    notes = [
        "First half of validation. gain and p: mean over heads and seeds, and the "
        "range; of the exponential readout exp(β z·r), β. entropy: of a row of attention, 1 is "
        "uniform; the median, a mean over heads. largest weight: of the last word of a window, "
        "as a multiple of the uniform 1/n, of how much at most, whatever d_osc and couplings are "
        "(`theory.largest_weight`: 2 with p = 1, no gain and unit anchors that cancel), and the "
        "mean of their ratio, of which the protocol predicts more than 0.9 and less than 0.6. "
        "Effective rank (Roy and Vetterli): of causal attention; of S = 1 + γ z·r over all pairs; "
        "of the readout max(0, S)^p, before the mask.",
        "S has the rank d_osc + 1 at most. A sharpened readout is not so bound: S^p has up to "
        f"C(d+p-1, p) + C(d+p-2, p-1) ({'; '.join(bounds)} for d_osc, p), and where the rectifier "
        f"acts or p is real there is no bound but the {INPUTS} tokens. largest rank: the largest "
        "measured in any layer, of S, S^p and the readout, as far as they differ. cut: pairs, of "
        "all layers, that the rectifier sets to 0.",
    ]
    return Table(title, columns, rows, notes)


def devices(evidence: Evidence) -> Table:
    """The sharpened model and its siblings of p = 1 on imperfect devices, and cut short."""
    title = "On imperfect devices"
    chosen = choose.chosen(evidence)
    if chosen is None:
        return Table(title, ("", *ON_DEVICES), [], [progress(evidence)])
    names = [name for name in models(chosen) if name in ON_DEVICES]
    columns, blank = ("", *names), [""] * len(names)
    grids = [found(evidence, chosen, name, Devices) for name in names]
    settled = [found(evidence, chosen, name, Settling) for name in names]
    rows = [("models", *(str(len(records)) for records in grids))]
    rows.append(
        ("perplexity of the closed form", *(shown(_results(r, "perplexity")) for r in grids))
    )
    rows.append(("what there is to lose, change of perplexity, %", *blank))
    for p in AT_STAKE:
        cells = [_change(records, p.name, p.level) for records in grids]
        rows.append((f"  oscillators {p.name}", *cells))
    for kind, levels in {**dict.fromkeys(DISTURBED, SCALES), "settling": HORIZONS}.items():
        rows.append((f"{KINDS[kind]}, change of perplexity, %", *blank))
        for level in levels:
            rows.append((f"  {level:g}", *(_change(records, kind, level) for records in grids)))
    rows.append(("oscillators that have settled, last layer, %", *blank))
    for horizon in HORIZONS:
        cells = [_percent([Settled(r).at(horizon)["converged"] for r in x]) for x in settled]
        rows.append((f"  {horizon:g}", *cells))
    rows.append(("median ‖h‖, last layer", *(shown(_results(r, "norm.median")) for r in settled)))
    notes = [
        "Change from the closed form, ± standard error over models, one draw of a device for each, "
        "on windows of the second half of validation; the paper's grid, with exact "
        "flows. Frequency disorder in the published unit: rates of deviation s/√2. Horizons are in "
        "units in which a drive of length 1 acts with rate 1: a longer ‖h‖ settles sooner.",
        "anywhere: every oscillator points in a random direction. nowhere: z = 0, the mean of all "
        "keys. What a device takes is to be seen beside these: a model that hardly uses its "
        "oscillators tolerates everything.",
        "settled: error below 0.01 from uniform starts, on 32 windows of the first half.",
    ]
    return Table(title, columns, rows, notes)


DISTURBED = ("coupling", "state", "frequency")


def counted(evidence: Evidence) -> Table:
    """Operations relative to softmax, Table 7 continued to p > 1 with a gain.

    At the dimensions that the question asks about, and at the chosen one.
    """
    chosen = choose.chosen(evidence)
    ours: Any = chosen.ours.mechanism if chosen else None
    dimensions: set[int] = {*ASKED, ours.d_osc} if chosen else {*ASKED}
    layers = dict(cost.TASKS) | {
        f"WikiText-2, d_osc = {d}": cost.Configuration(INPUTS, heads=4, d_osc=d, causal=True)
        for d in sorted(dimensions)
    }
    rows = []
    for name, label in cost.LABELS.items():
        if name != "softmax":
            physical = name == "affine_physical"  # the array does whatever p and gain ask
            for p, gain in READOUTS[:1] if physical else READOUTS:
                which = "any" if physical else f"{p}, {'learned' if gain else 'none'}"
                cells = [_reduction(name, p, gain, layer) for layer in layers.values()]
                rows.append((label, which, *cells))
    notes = [
        f"Factors by which operations are fewer than softmax's, ReLU coupling. {UNIT} With p = 1 "
        "and no gain as in Table 7; a gain is a multiply-add a pair until the readout is physical, "
        "p takes log2 p multiplications a pair until sum and division are physical too, and those "
        "are so only where the array raises to the p-th power as well.",
        "The models here are trained with softplus, which costs as much as softmax's exponential: "
        "then no implementation with a digital sum needs fewer operations than softmax.",
    ]
    return Table(
        "Operations with p and a gain", ("implementation", "p, gain", *layers), rows, notes
    )


def _reduction(name: str, p: int, gain: bool, c: cost.Configuration) -> str:
    options: dict[str, Any] = {"causal": c.causal, "sharpness": p, "gain": gain}
    return f"{cost.operations(c.tokens, c.heads, c.d_osc, **options).reduction(name):.2f}"


def _at(records: Sequence[Record], name: str, **where: Any) -> list[Any]:
    """A number of the row of the curve at these values, of each record that has one."""
    return [
        row[name]
        for record in records
        for row in record.curve
        if all(row.get(k) == v for k, v in where.items())
    ]


def _results(records: Sequence[Record], name: str) -> list[float]:
    return [record.result[name] for record in records]


def _heads(records: Sequence[Record], layer: int) -> list[dict[str, Any]]:
    """The rows of the heads of a layer, of all seeds."""
    return [row for record in records for row in record.curve if row.get("layer") == layer]


def _layer(
    ranks: list[Any], flat: list[Any], most: list[Any], learned: list[Any]
) -> tuple[str, ...]:
    """Gain, p, entropy, largest weight, effective ranks; what a model has not is left empty."""
    read = "readout" if "readout" in ranks[0] else "sharpened"
    betas = _span([row["beta"] for row in learned if "beta" in row])
    return (
        f"β {betas}" if betas else _span([row["gain"] for row in learned]),
        "" if betas else _span([row["sharpness"] for row in learned]),
        f"{fmean(row['median'] for row in flat):.3f}",
        _most(most),
        *(
            f"{fmean(row[name] for row in ranks):.2f}" if name in ranks[0] else ""
            for name in ("attention", "similarity", read)
        ),
    )


def _most(rows: list[Any]) -> str:
    """1.84 of 1.88, 0.98: the largest weight, its bound, and the mean of their ratio."""
    names = ("weight", "bound", "share") if "bound" in rows[0] else ("weight",)
    weight, *limits = (f"{fmean(row[name] for row in rows):.2f}" for name in names)
    return f"{weight} of {', '.join(limits)}" if limits else weight


def _span(values: list[float]) -> str:
    """The mean, and the range where there is one."""
    if not values:
        return ""
    low, high = min(values), max(values)
    return f"{low:g}" if low == high else f"{fmean(values):.2f} ({low:.2f} to {high:.2f})"


def _largest(records: Sequence[Record]) -> str:
    names = {"similarity": "S", "sharpened": "S^p", "readout": "readout"}
    there = {n: [r.result[f"{n}.rank"] for r in records if f"{n}.rank" in r.result] for n in names}
    return ", ".join(f"{names[n]} {max(x):.0f}" for n, x in there.items() if x)


def _cut(records: Sequence[Record]) -> str:
    shares = [r.result["clamped"] for r in records if "clamped" in r.result]
    return f"{100 * fmean(shares):.2f}" if shares else ""


def _change(records: Sequence[Record], kind: str, level: float) -> str:
    """+0.13±0.05, in per cent of perplexity; of one model without the error."""
    by_model = [fmean(x) for x in _at(records, "nats", physics=kind, level=level)]
    if not by_model:
        return NO_RECORDS
    if not all(map(math.isfinite, by_model)):
        return NOT_FINITE
    found = of_sample(by_model) if len(by_model) > 1 else Estimate(by_model[0], 0.0)
    return robust.shown(found, WIKITEXT2)


def _percent(shares: list[float]) -> str:
    if not all(map(math.isfinite, shares)):
        return NOT_FINITE
    return f"{100 * fmean(shares):.2f}" if shares else NO_RECORDS
