"""Alternatives to a larger d_osc (Appendix E): offsets, gains, heads and width.

WikiText-2, d_osc = 2, with free anchors, as published, and on the sphere, as defined.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import torch

from lohe.attention.ablations import SMALLEST_AMPLIFICATION, CouplingAmplification
from lohe.experiments.evidence import Evidence
from lohe.experiments.item import Item
from lohe.experiments.measures import Bench, Measure, Taken, on_seeds
from lohe.experiments.reported import published
from lohe.experiments.setting import Setting
from lohe.experiments.studies.lm.language_modeling import printed_oscillator, printed_softmax
from lohe.experiments.studies.lm.perplexity import (
    READINGS,
    about,
    log_ratio,
    perplexities,
    ratio,
    same_ratio,
    same_value,
)
from lohe.experiments.tables import Table, printed_gap, shown, shown_gap
from lohe.experiments.verdicts import Claim, Line, Verdict, bound, mean, of_sample, rules
from lohe.measure.significance import mean_std
from lohe.models import (
    Amplified,
    Mechanism,
    Oscillator,
    PositionOffset,
    Softmax,
    attention_layers,
)
from lohe.train import Run

SEEDS = 5
CHANGES: Mapping[str, tuple[str, Callable[[Oscillator], Mechanism]]] = {
    "offset": ("learned offsets δ(i - j) of the anchors", PositionOffset),
    "amplification": ("learned gains β of the couplings", Amplified),
}
WIDTHS = (128, 256)  # with 8 heads and d_ff = 4 d_model


@dataclass(frozen=True)
class GainRange:
    """Learned gains |β| >= 0.1 of the couplings, over layers, heads and trained positions."""

    run: Run

    def take(self, bench: Bench) -> Taken:
        (tokens,) = bench.data(self.run).train.inputs["tokens"].shape[1:]
        wrapped = [layer.to_f for layer in attention_layers(bench.model(self.run))]
        gains = torch.stack(
            [w.coupling_gain[:, :tokens] for w in wrapped if isinstance(w, CouplingAmplification)]
        )
        beta = gains.detach().abs().clamp(min=SMALLEST_AMPLIFICATION)
        return Taken(
            {
                "smallest": beta.min().item(),
                "largest": beta.max().item(),
                "mean": beta.mean().item(),
                "std": beta.std().item(),
            }
        )


def wider(run: Run, d_model: int) -> Run:
    """The recipe with 8 heads."""
    return replace(run, model=replace(run.model, heads=8, d_model=d_model, d_ff=4 * d_model))


def runs(setting: Setting) -> list[Run]:
    """WikiText-2, d_osc = 2: the recipe, two changes of the mechanism, two of the model."""
    seeds, unchanged = setting.seeds(SEEDS), (Softmax(), *READINGS.values())
    changed = [change(base) for base in READINGS.values() for _, change in CHANGES.values()]
    plain = [setting.wikitext2(m, seed) for m in (*unchanged, *changed) for seed in seeds]
    return plain + [
        wider(setting.wikitext2(m, seed), d) for d in WIDTHS for m in unchanged for seed in seeds
    ]


def measures(setting: Setting) -> list[Measure]:
    """The gains that were learned."""
    seeds = setting.seeds(SEEDS)
    return [m for reading in READINGS for m in on_seeds(_gain_range(setting, reading), seeds)]


def _gain_range(setting: Setting, reading: str) -> GainRange:
    return GainRange(setting.wikitext2(Amplified(READINGS[reading])))


@dataclass(frozen=True)
class Found:
    """Perplexities by seed, ours or the published ones."""

    softmax: Sequence[float]
    base: Sequence[float]
    changed: Mapping[str, Sequence[float]]
    heads: Mapping[int, tuple[Sequence[float], Sequence[float]]]  # softmax, oscillator
    gains: tuple[float, float] | None


def of_paper() -> Found:
    """Published."""
    theirs = published("claim-alternatives")
    heads = {d: theirs["heads"][str(d)] for d in WIDTHS}
    low, high = theirs["gain_range"]
    return Found(
        printed_softmax("wikitext2"),
        printed_oscillator("wikitext2", 2),
        {change: theirs[change] for change in CHANGES},
        {d: (x["softmax"], x["oscillator"]) for d, x in heads.items()},
        (low, high),
    )


def of_ours(evidence: Evidence, reading: str) -> Found:
    """Our own, as far as they are recorded."""
    setting, metric, base = evidence.setting, "valid_published.perplexity", READINGS[reading]

    def scaled(attention: Mechanism, d_model: int) -> list[float]:
        return evidence.values(wider(setting.wikitext2(attention), d_model), metric)

    gains = [r.result for r in evidence.measured_seeds(_gain_range(setting, reading))]
    spans = [(g["smallest"], g["largest"]) for g in gains]
    return Found(
        perplexities(evidence, "wikitext2", Softmax()),
        perplexities(evidence, "wikitext2", base),
        {c: perplexities(evidence, "wikitext2", m(base)) for c, (_, m) in CHANGES.items()},
        {d: (scaled(Softmax(), d), scaled(base, d)) for d in WIDTHS},
        (min(a for a, _ in spans), max(b for _, b in spans)) if spans else None,
    )


def table(evidence: Evidence) -> Table:
    """Appendix E: alternatives to a larger d_osc, WikiText-2, d_osc = 2."""
    picks: dict[str, Callable[[Found], tuple[Sequence[float], Sequence[float]]]] = {
        "recipe: 4 heads, d_model 128": lambda f: (f.softmax, f.base)
    }
    for change, (what, _) in CHANGES.items():
        picks[what] = lambda f, c=change: (f.softmax, f.changed[c])
    for d in WIDTHS:
        picks[f"8 heads, d_model {d}"] = lambda f, d=d: f.heads[d]
    rows, recorded = [], False
    cohorts = {reading: (of_ours(evidence, reading), shown_gap) for reading in READINGS}
    for who, (found, less) in {**cohorts, "paper": (of_paper(), printed_gap)}.items():
        recorded = recorded or (who != "paper" and bool(found.base))
        for what, pick in picks.items():
            softmax, oscillator = pick(found)
            cells = shown(softmax), shown(oscillator), less(oscillator, softmax)
            rows.append((f"{what}, {who}", *cells))
    columns = ("change", "softmax", "oscillator", "gap")
    notes = ["Perplexity, d_osc = 2; as published with free anchors, as defined on the sphere."]
    notes += about(evidence, "claim-alternatives", recorded, ["wikitext2"])
    return Table("Appendix E. Alternatives to a larger d_osc", columns, rows, notes)


def lines(evidence: Evidence) -> list[Line]:
    """Every number of Appendix E's elimination of alternatives."""
    return [line for reading in READINGS for line in _lines(evidence, reading)]


def _lines(evidence: Evidence, reading: str) -> Iterator[Line]:
    here, theirs, setting = of_ours(evidence, reading), of_paper(), evidence.setting
    for change in CHANGES:
        yield _change_line(change, here, theirs, reading)
    yield _gain_line(here, theirs, reading)
    for d in WIDTHS:
        (base, values), (paper_base, paper) = here.heads[d], theirs.heads[d]
        if reading == "as published":
            for who, a, b in (("softmax", base, paper_base), ("oscillator", values, paper)):
                same = same_value(a, of_sample(b), setting)
                yield Line(f"8 heads, d_model {d}, {who}", shown(b), shown(a), same, None, reading)
        expected = log_ratio(of_sample(paper), of_sample(paper_base))
        yield Line(
            f"8 heads, d_model {d}, ratio to softmax (gap)",
            f"{fmean(paper) / fmean(paper_base):.3f} ({printed_gap(paper, paper_base)})",
            ratio(values, base),
            same_ratio(values, base, expected),
            gap_stays(here) if d == WIDTHS[-1] else None,
            reading,
        )


def _change_line(change: str, here: Found, theirs: Found, reading: str) -> Line:
    what, _ = CHANGES[change]
    paper, values = theirs.changed[change], here.changed[change]
    expected = log_ratio(of_sample(paper), of_sample(theirs.base))
    return Line(
        f"{what}, change of PPL",
        printed_gap(paper, theirs.base) + _spread(paper),
        shown_gap(values, here.base) + _spread(values),
        same_ratio(values, here.base, expected),
        closes_little(f"lm-{change}", values, here.base, here.softmax),
        reading,
    )


def _spread(values: Sequence[float]) -> str:
    """Of the changed model alone, as printed."""
    return f" ± {mean_std(values)[1]:.2f}" if len(values) > 1 else ""


def _gain_line(here: Found, theirs: Found, reading: str) -> Line:
    paper, found = (
        f"[{f.gains[0]:.2f}, {f.gains[1]:.2f}]" if f.gains else "no records" for f in (theirs, here)
    )
    same: Verdict = "not comparable" if here.gains else "no records"
    note = "no margin was set for a range; its lower end is the published clamp"
    return Line("range of the learned gains β", paper, found, same, None, reading, note)


def closes_little(
    claim: str, changed: Sequence[float], base: Sequence[float], softmax: Sequence[float]
) -> Claim:
    """lm-offset, lm-amplification: the 90 % upper bound of the gain is below a tenth of the gap."""
    after, before, goal = mean(changed), mean(base), mean(softmax)
    if after is None or before is None or goal is None:
        return Claim(claim, None, "fewer than two usable runs")
    gain, distance = before - after, before.value - goal.value
    _, high = gain.interval(rules()["levels"]["reproduced"])
    if distance <= 0:
        return Claim(claim, None, f"there is no gap to close: {distance:+.2f}")
    share, most = high / distance, bound(claim)
    found = f"gain {gain.value:.2f}, at most {high:.2f}, of a gap of {distance:.2f} "
    found += f"({100 * share:.0f} %, where less than {100 * most:.0f} was to be shown)"
    return Claim(claim, share < most, found)


def gap_stays(here: Found) -> Claim:
    """lm-heads: with 8 heads two thirds of the gap are left, at both widths."""
    pairs = {0: (here.softmax, here.base), **here.heads}
    if not all(a and b for a, b in pairs.values()):
        return Claim("lm-heads", None, "runs are missing")
    gaps = {d: fmean(b) - fmean(a) for d, (a, b) in pairs.items()}
    said = ", ".join(f"{gaps[d]:.2f} at d_model {d}" for d in WIDTHS)
    if gaps[0] <= 0 or not all(math.isfinite(x) for x in gaps.values()):
        return Claim("lm-heads", None, f"there is no gap to keep: {gaps[0]:+.2f} in the recipe")
    holds = all(gaps[d] >= bound("lm-heads") * gaps[0] for d in WIDTHS)
    return Claim("lm-heads", holds, f"gaps {said} with 8 heads, {gaps[0]:.2f} in the recipe")


ITEMS = {
    "claim-alternatives": Item(
        title="Appendix E. Alternatives to a larger d_osc",
        runs=runs,
        measures=measures,
        table=table,
        lines=lines,
    ),
}
