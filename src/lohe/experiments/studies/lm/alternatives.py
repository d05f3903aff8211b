"""Alternatives to a larger d_osc (Appendix E): offsets, gains, heads and width.

WikiText-2, d_osc = 2, as published: the anchors are free.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import torch

from lohe.attention.ablations import SMALLEST_AMPLIFICATION, CouplingAmplification
from lohe.experiments.evidence import Evidence
from lohe.experiments.item import Item
from lohe.experiments.measures import Bench, Findings, Measure, on_seeds
from lohe.experiments.reported import published
from lohe.experiments.setting import Setting
from lohe.experiments.studies.lm.language_modeling import printed_oscillator, printed_softmax
from lohe.experiments.studies.lm.perplexity import (
    READINGS,
    about,
    log_ratio,
    mean,
    perplexities,
    ratio,
    same_ratio,
    same_value,
)
from lohe.experiments.tables import Table, printed_gap, shown, shown_gap
from lohe.experiments.verdicts import (
    Claim,
    Line,
    Verdict,
    of_sample,
    rules,
)
from lohe.measure.significance import mean_std
from lohe.models import Amplified, Mechanism, PositionOffset, Softmax, attention_layers
from lohe.train import Run

SEEDS = 5
READING = "as published"
BASE = READINGS[READING]
SMALL = 0.1  # lm-offset, lm-amplification: part of the gap
MOST = 2 / 3  # lm-heads: part of the gap
CHANGES: Mapping[str, tuple[str, Mechanism]] = {
    "offset": ("learned offsets δ(i - j) of the anchors", PositionOffset(BASE)),
    "amplification": ("learned gains β of the couplings", Amplified(BASE)),
}
WIDTHS = (128, 256)  # with 8 heads and d_ff = 4 d_model


@dataclass(frozen=True)
class GainRange:
    """Learned gains |β| >= 0.1 of the couplings, over layers, heads and trained positions."""

    run: Run

    def take(self, bench: Bench) -> Findings:
        (tokens,) = bench.data(self.run).train.inputs["tokens"].shape[1:]
        wrapped = [layer.to_f for layer in attention_layers(bench.model(self.run))]
        gains = torch.stack(
            [w.coupling_gain[:, :tokens] for w in wrapped if isinstance(w, CouplingAmplification)]
        )
        beta = gains.detach().abs().clamp(min=SMALLEST_AMPLIFICATION)
        return Findings(
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
    seeds, both = setting.seeds(SEEDS), (Softmax(), BASE)
    mechanisms = [*both, *(mechanism for _, mechanism in CHANGES.values())]
    plain = [setting.wikitext2(m, seed) for m in mechanisms for seed in seeds]
    scaled = [wider(setting.wikitext2(m, seed), d) for d in WIDTHS for m in both for seed in seeds]
    return plain + scaled


def measures(setting: Setting) -> list[Measure]:
    """The gains that were learned."""
    _, amplified = CHANGES["amplification"]
    return on_seeds(GainRange(setting.wikitext2(amplified)), setting.seeds(SEEDS))


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


def of_ours(evidence: Evidence) -> Found:
    """Our own, as far as they are recorded."""
    setting, metric = evidence.setting, "valid_published.perplexity"

    def scaled(attention: Mechanism, d_model: int) -> list[float]:
        return evidence.values(wider(setting.wikitext2(attention), d_model), metric)

    gains = [r.result for r in evidence.measured_seeds(measures(setting)[0])]
    spans = [(g["smallest"], g["largest"]) for g in gains]
    return Found(
        perplexities(evidence, "wikitext2", Softmax()),
        perplexities(evidence, "wikitext2", BASE),
        {c: perplexities(evidence, "wikitext2", m) for c, (_, m) in CHANGES.items()},
        {d: (scaled(Softmax(), d), scaled(BASE, d)) for d in WIDTHS},
        (min(a for a, _ in spans), max(b for _, b in spans)) if spans else None,
    )


def table(evidence: Evidence) -> Table:
    """Appendix E: alternatives to a larger d_osc, WikiText-2, d_osc = 2."""
    here, theirs = of_ours(evidence), of_paper()
    rows = [("recipe: 4 heads, d_model 128", *_cells(here, theirs, lambda f: (f.softmax, f.base)))]
    for change, (what, _) in CHANGES.items():
        cells = _cells(here, theirs, lambda f, c=change: (f.softmax, f.changed[c]))
        rows.append((what, *cells))
    for d in WIDTHS:
        rows.append((f"8 heads, d_model {d}", *_cells(here, theirs, lambda f, d=d: f.heads[d])))
    columns = ("change", "softmax", "oscillator", "gap", "paper: softmax", "oscillator", "gap")
    recorded = bool(here.base or any(here.changed.values()))
    notes = ["Perplexity, d_osc = 2, free anchors."]
    notes += about(evidence, "claim-alternatives", recorded, ["wikitext2"])
    return Table("Appendix E. Alternatives to a larger d_osc", columns, rows, notes)


def _cells(here: Found, theirs: Found, pick) -> list[str]:
    cells = []
    for found, less in ((here, shown_gap), (theirs, printed_gap)):
        softmax, oscillator = pick(found)
        cells += [shown(softmax), shown(oscillator), less(oscillator, softmax)]
    return cells


def lines(evidence: Evidence) -> list[Line]:
    """Every number of Appendix E's elimination of alternatives."""
    here, theirs, setting = of_ours(evidence), of_paper(), evidence.setting
    found = [_change_line(change, here, theirs) for change in CHANGES]
    found.append(_gain_line(here, theirs))
    for d in WIDTHS:
        for n, who in enumerate(("softmax", "oscillator")):
            values, paper = here.heads[d][n], theirs.heads[d][n]
            same = same_value(values, of_sample(paper), setting)
            what = f"8 heads, d_model {d}, {who}"
            found.append(Line(what, shown(paper), shown(values), same, None, READING))
        (base, values), (paper_base, paper) = here.heads[d], theirs.heads[d]
        expected = log_ratio(of_sample(paper), of_sample(paper_base))
        found.append(
            Line(
                f"8 heads, d_model {d}, ratio to softmax (gap)",
                f"{fmean(paper) / fmean(paper_base):.3f} ({printed_gap(paper, paper_base)})",
                ratio(values, base),
                same_ratio(values, base, expected),
                gap_stays(here) if d == WIDTHS[-1] else None,
                READING,
            )
        )
    return found


def _change_line(change: str, here: Found, theirs: Found) -> Line:
    what, _ = CHANGES[change]
    paper, values = theirs.changed[change], here.changed[change]
    expected = log_ratio(of_sample(paper), of_sample(theirs.base))
    return Line(
        f"{what}, change of PPL",
        printed_gap(paper, theirs.base) + _spread(paper),
        shown_gap(values, here.base) + _spread(values),
        same_ratio(values, here.base, expected),
        closes_little(f"lm-{change}", values, here.base, here.softmax),
        READING,
    )


def _spread(values: Sequence[float]) -> str:
    """Of the changed model alone, as printed."""
    return f" ± {mean_std(values)[1]:.2f}" if len(values) > 1 else ""


def _gain_line(here: Found, theirs: Found) -> Line:
    paper, found = (
        f"[{f.gains[0]:.2f}, {f.gains[1]:.2f}]" if f.gains else "no records" for f in (theirs, here)
    )
    same: Verdict = "not comparable" if here.gains else "no records"
    note = "no margin was set for a range; its lower end is the published clamp"
    return Line("range of the learned gains β", paper, found, same, None, READING, note)


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
    found = f"gain {gain.value:.2f}, at most {high:.2f}, of a gap of {distance:.2f}"
    return Claim(claim, high < SMALL * distance, f"{found} ({100 * high / distance:.0f} %)")


def gap_stays(here: Found) -> Claim:
    """lm-heads: with 8 heads two thirds of the gap are left, at both widths."""
    pairs = {0: (here.softmax, here.base), **here.heads}
    if not all(a and b for a, b in pairs.values()):
        return Claim("lm-heads", None, "runs are missing")
    gaps = {d: fmean(b) - fmean(a) for d, (a, b) in pairs.items()}
    said = ", ".join(f"{gaps[d]:.2f} at d_model {d}" for d in WIDTHS)
    if gaps[0] <= 0 or not all(math.isfinite(x) for x in gaps.values()):
        return Claim("lm-heads", None, f"there is no gap to keep: {gaps[0]:+.2f} in the recipe")
    holds = all(gaps[d] >= MOST * gaps[0] for d in WIDTHS)
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
