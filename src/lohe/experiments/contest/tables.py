"""What the records say, as tables and one sentence. Pure functions; what is missing is said."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from statistics import fmean
from typing import Any

import torch

from lohe.experiments.contest import choose, confirm, law
from lohe.experiments.contest.confirm import Comparison, Undecided, percent
from lohe.experiments.contest.divergence import has_diverged
from lohe.experiments.contest.law import LATER, Law, wanting
from lohe.experiments.contest.stages import (
    FITTED,
    HELD_OUT,
    Chosen,
    controls,
    in_both_protocols,
    to_confirm,
)
from lohe.experiments.contest.trials import (
    FAMILIES,
    STAGES,
    TRIED,
    Configuration,
    RunsOf,
    as_text,
    setting_text,
    trial_runs,
)
from lohe.experiments.evidence import Evidence
from lohe.experiments.store.records import Record
from lohe.experiments.tables import Table, shown
from lohe.experiments.verdicts import NO_RECORDS, Estimate
from lohe.measure.power_law import EXPONENTS, HeldOut
from lohe.models import ParameterCounts, parameter_counts
from lohe.tasks import Data, Split
from lohe.tasks.language import SPECIALS
from lohe.train import Run

TEST = "test.perplexity"
P_VALUE = "p-value"  # p alone is the exponent of the readout
BESIDE = ("validation", "test", "to best softmax, %", P_VALUE)
COLUMNS = ("mechanism", "d_osc", "p", "gain", "parameters", "seeds", "validation", "test")


def confirmed(evidence: Evidence) -> Table:
    """Every confirmed configuration by both protocols, and its distance from the best softmax."""
    title = "Confirmed on the test articles"
    columns = (*COLUMNS, *DISTANCE, *(f"{name}, published" for name in BESIDE))
    chosen = choose.chosen(evidence)
    if chosen is None:
        return Table(title, columns, [], [progress(evidence)])
    found = confirm.comparisons(evidence, chosen)
    corrected = confirm.p_values(found)
    rows = []
    for name, c in to_confirm(chosen).items():
        there = confirm.records(evidence, c, "strict")
        beside = ("", "", "", "")  # by the strict protocol only
        if name in in_both_protocols(chosen):
            apart, *_, p = distance(f"{name}, published", found, corrected)
            by_published = confirm.records(evidence, c, "published")
            beside = (*perplexities(by_published), apart, p)
        row = (name, *shape(c), seeds_shown(there), *perplexities(there))
        rows.append((*row, *distance(name, found, corrected), *beside))
    planned = f"Holm's correction is for the {len(found) - 1} comparisons that are planned besides "
    planned += "the primary test; one that lacks a seed or of which one diverged counts as 1."
    how = (f"{name}: {as_text(c)}." for name, c in to_confirm(chosen).items())
    return Table(title, columns, rows, [*PERPLEXITY, TWO_PROTOCOLS, *DISTANCE_NOTES, planned, *how])


def controlled(evidence: Evidence) -> Table:
    """The chosen oscillator with one part changed."""
    title = "What does the work: the chosen oscillator with one part changed"
    columns = (*COLUMNS, *DISTANCE, "to ours, %")
    chosen = choose.chosen(evidence)
    if chosen is None:
        return Table(title, columns, [], [progress(evidence)])
    found = confirm.comparisons(evidence, chosen)
    corrected = confirm.p_values(found)
    ours = confirm.records(evidence, chosen.ours, "strict")
    rows = []
    for name, c in controls(chosen.ours).items():
        there = confirm.records(evidence, c, "strict", "controls")
        row = (name, *shape(c), seeds_shown(there), *perplexities(there))
        planned = len(STAGES["controls"].seeds), len(STAGES["confirm"].seeds)
        to_ours = confirm.compare(there, ours, (name, "ours"), planned)
        rows.append((*row, *distance(name, found, corrected), change(to_ours)))
    without, whole = (
        _counts(STAGES["confirm"].runs(c)[0]).attention
        for c in (controls(chosen.ours)["no dynamics"], chosen.ours)
    )
    notes = [
        *DISTANCE_NOTES,
        "to ours: the same change against the chosen oscillator as it is.",
        f"no dynamics has fewer numbers in attention, {without:,} instead of {whole:,}: one map "
        "to d_osc takes the place of F and G. What it lacks may be these.",
    ]
    return Table(title, columns, rows, notes)


DISTANCE = ("to best softmax, %", "paired", "seeds and articles", P_VALUE)
PERPLEXITY = (
    "Perplexity, mean ± standard deviation over seeds. validation: its second half of articles, by "
    "which nothing was chosen.",
    "parameters: all / without embedding and output / in attention, in thousands.",
)
TWO_PROTOCOLS = (
    "Without a further word by the strict protocol; published: the same configurations trained and "
    "scored by the published one."
)
DISTANCE_NOTES = (
    "to best softmax: change of test perplexity in per cent with its 95 % interval by Welch; "
    "paired: the interval by seed; seeds and articles: that of a bootstrap over both. p-value: of "
    "ours Welch's, the primary test; of the others Holm-corrected, all together. The best softmax "
    "is that by the search, on the first half of validation. Seeds that diverged are named, and "
    "not in means.",
)


def chosen_table(evidence: Evidence) -> Table:
    """The best of each family in the trials and in the search."""
    rows = []
    for family in FAMILIES:
        recorded = len(trial_runs(family)) - len(choose.missing(evidence, trial_runs(family)))
        first = next((s for s in choose.in_trials(evidence, family) if s.nats), None)
        last = next(iter(choose.in_search(evidence, family)), None)
        shown = last or first
        rows.append(
            (
                family,
                f"{recorded}/{len(trial_runs(family))}",
                reached(first),
                reached(last),
                as_text(shown.configuration) if shown else "",
            )
        )
    columns = (
        "family",
        "models of the trials",
        "best of the trials",
        "best of the search",
        "which",
    )
    notes = [
        "Perplexity on the first half of the validation articles, strict, 10 epochs: exp of the "
        "mean over seeds of its logarithm. By these the configurations were chosen, so they "
        "flatter."
    ]
    return Table("The best of the trials and of the search", columns, rows, notes)


def search(evidence: Evidence) -> Table:
    """All that was tried of each family by learning rate, also where nothing was chosen by."""
    there = {family: choose.in_search(evidence, family) for family in FAMILIES}
    columns, rows = by_rate(evidence, there, STAGES["rates"].runs)
    notes = [
        "By learning rate, 10 epochs: perplexity on the first half of the validation articles, "
        "strict, which chose, as above, then on the second, which chose nothing; each exp of the "
        f"mean over {len(STAGES['rates'].seeds)} seeds of its logarithm, if nothing else is said. "
        "What has the best number of a family is in its first row. The test articles were closed.",
        *([f"Trained on {on}."] if (on := _machines(evidence)) else []),
    ]
    return Table("The search of learning rates", columns, rows, notes)


def by_rate(
    evidence: Evidence,
    there: Mapping[str, Sequence[choose.Standing]],
    runs_of: RunsOf,
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Columns and rows of what was tried: a row a setting and dropout, a column a learning rate."""
    tried = {s.configuration.learning_rate for found in there.values() for s in found}
    rates, rows = sorted(tried), []
    for family, found in there.items():
        by_setting: dict[Configuration, dict[float, str]] = {}
        for s in found:
            setting = replace(s.configuration, learning_rate=0.0)
            cells = by_setting.setdefault(setting, {})
            records = evidence.of(runs_of(s.configuration))
            cells[s.configuration.learning_rate] = _both_halves(s, records)
        for c, cells in by_setting.items():
            which = (setting_text(c), f"{c.dropout:g}")
            rows.append((family, *which, *(cells.get(rate, "") for rate in rates)))
    return ("family", "which", "dropout", *(f"{rate:g}" for rate in rates)), rows


def on_later(records: Sequence[Record]) -> float:
    """Perplexity on the half that chooses nothing: exp of the mean over seeds of its logarithm."""
    return math.exp(fmean(math.log(r.result[LATER]) for r in records))


def _both_halves(s: choose.Standing, records: Sequence[Record]) -> str:
    """76.72, 89.76"""
    if s.mean == math.inf:
        return "diverged"
    later = on_later(records)
    few = "" if s.complete else f" ({len(s.nats)} of {s.seeds} seeds)"
    return f"{math.exp(s.mean):.2f}, {later:.2f}{few}"


def _machines(evidence: Evidence) -> str:
    """Kinds of device, what the products of the head were made of, and how many models by each."""
    searched = (s.configuration for f in FAMILIES for s in choose.searched(evidence, f))
    there = (r for c in searched for r in evidence.of(STAGES["rates"].runs(c)))
    found = Counter(
        ", ".join(x for x in map(r.environment.get, ("device", "head")) if x) for r in there
    )
    return "; ".join(f"{name} ({n})" for name, n in sorted(found.items()))


def law_table(evidence: Evidence) -> Table:
    """The fits, the dimensions held out, and where it ends."""
    title = "Perplexity = floor + C d_osc^-α on the second half of validation"
    columns = ("curve", "fit", "95 % of α", *(f"d_osc = {d}" for d in HELD_OUT), "floor - softmax")
    chosen = choose.chosen(evidence)
    if chosen is None:
        return Table(title, columns, [], [progress(evidence)])
    rows = [
        (curve_name(name, chosen), *_law_cells(x)) for name, x in law.laws(evidence, chosen).items()
    ]
    notes = [
        f"Fitted to d_osc {', '.join(map(str, FITTED))}; the columns of "
        f"{' and '.join(map(str, HELD_OUT))}: observed, the 95 % interval predicted, and whether "
        f"it is inside. floor - softmax: against {as_text(chosen.best)}, with its 95 % interval "
        "over seeds, whose resampled deviations are widened for their small number. Exponents are "
        f"searched from {EXPONENTS[0]:g} to {EXPONENTS[-1]:g}."
    ]
    return Table(title, columns, rows, notes)


def progress(evidence: Evidence) -> str:
    runs = [run for family in TRIED for run in trial_runs(family)]
    left = len(choose.missing(evidence, runs))
    if left:
        return f"Of the trials {len(runs) - left} of {len(runs)} models are recorded."
    settled = sum(choose.settled(evidence, family) for family in FAMILIES)
    return (
        f"The trials are complete; of {len(FAMILIES)} families {settled} have their learning rate."
    )


def shape(c: Configuration) -> tuple[str, ...]:
    """d_osc, p, gain and parameters; what a mechanism has not is left empty."""
    m: Any = c.mechanism
    gain = getattr(m, "gain", None)
    is_oscillator = hasattr(m, "d_osc")
    p = getattr(m, "sharpness", None)
    learned = hasattr(m, "start")
    return (
        str(m.d_osc) if is_oscillator else "",
        "learned" if learned else f"{p:g}" if p is not None else "",
        (str(gain) if gain is not None else "1") if is_oscillator and hasattr(m, "gain") else "",
        sizes(STAGES["confirm"].runs(c)[0]),
    )


def sizes(run: Run) -> str:
    """Parameters of a run's model, in thousands: all / without embedding and output / attention."""
    counts = _counts(run)
    found = (counts.total, counts.non_embedding, counts.attention)
    return " / ".join(f"{n / 1000:,.0f}" for n in found)


@cache
def _counts(run: Run) -> ParameterCounts:
    task: Any = run.task
    row = torch.zeros(1, task.tokens, dtype=torch.int16)
    words = tuple(map(str, range(task.vocab + len(SPECIALS))))
    data = Data({"train": Split({"tokens": row}, {"next": row})}, words, "")
    return parameter_counts(run.model.build(data))


def perplexities(there: Sequence[Record]) -> tuple[str, str]:
    """On the second half of validation, and on test."""
    return shown_finite(there, LATER), shown_finite(there, TEST)


def shown_finite(there: Sequence[Record], metric: str) -> str:
    """Mean and deviation without what diverged."""
    finite = [r.result[metric] for r in there if not has_diverged(r) and metric in r.result]
    return shown(finite) if finite or not there else "diverged"


def seeds_shown(there: Sequence[Record]) -> str:
    """How many, and which of them diverged: 10 (104 diverged)."""
    bad = [str(r.seed) for r in there if has_diverged(r)]
    return f"{len(there)} ({', '.join(bad)} diverged)" if bad else str(len(there))


def epochs_shown(there: Sequence[Record]) -> str:
    """Which epoch was chosen, of each seed."""
    return ", ".join(str(r.notes["epoch"] + 1) for r in there if "epoch" in r.notes)


def distance(
    name: str, found: Mapping[str, Comparison | Undecided], corrected: Mapping[str, float]
) -> tuple[str, ...]:
    """The cells of `DISTANCE`."""
    if name not in found:
        return ("", "", "", "")  # the best softmax itself
    c = found[name]
    if isinstance(c, Undecided):
        return (change(c), "", "", "")
    return (change(c), *intervals(c), f"{corrected[name]:.2g}")


def intervals(c: Comparison) -> tuple[str, str]:
    """Of 95 %: paired by seed, and by a bootstrap over seeds and articles."""
    paired = _interval(*c.paired.interval(0.95)) if c.paired else ""
    return paired, _interval(*c.articles) if c.articles else ""


def change(c: Comparison | Undecided) -> str:
    """Of test perplexity in per cent, with its 95 % interval by Welch; or why there is none."""
    if isinstance(c, Undecided):
        return c.why
    return estimated(c.welch)


def estimated(apart: Estimate, unit: str = "") -> str:
    """A difference of log perplexities as a change in per cent, with its 95 % interval."""
    return f"{percent(apart.value):+.2f}{unit} {_interval(*apart.interval(0.95))}"


def _interval(low: float, high: float) -> str:
    return f"[{percent(low):+.2f}, {percent(high):+.2f}]"


def codes(records: Iterable[Record]) -> str:
    """By which versions of the code they were made, and how many by each."""
    found = Counter(r.code_version for r in records)
    return ", ".join(f"{version} ({n})" for version, n in sorted(found.items()))


def reached(standing: choose.Standing | None) -> str:
    """Mean perplexity on the half that chooses."""
    if standing is None:
        return NO_RECORDS
    mean, n = standing.mean, len(standing.nats)
    if mean == math.inf:
        return "diverged"
    return f"{math.exp(mean):.2f} ({n} {'seed' if n == 1 else 'seeds'})"


def curve_name(name: str, chosen: Chosen) -> str:
    m: Any = chosen.ours.mechanism
    return "p = 1, no gain" if name == "p = 1" else f"p = {m.sharpness:g}, learned gain"


def _law_cells(here: Law) -> tuple[str, ...]:
    if here.fit is None or here.spread is None or here.held_out is None:
        return (here.lacks, *[""] * (2 + len(HELD_OUT)))
    fit, spread, tested = here.fit, here.spread, here.held_out
    low, high = spread.exponent_interval
    end = spread.above_baseline
    return (
        f"{fit.floor:.1f} {fit.prefactor:+.1f} d^{-fit.exponent:.2f}",
        f"[{low:.2f}, {high:.2f}]",
        *(_held_out(tested[d]) if d in tested else wanting(here.samples.get(d)) for d in HELD_OUT),
        here.no_floor
        or here.no_softmax
        or f"{here.above_softmax:+.1f} [{end[0]:+.1f}, {end[1]:+.1f}]",
    )


def _held_out(here: HeldOut) -> str:
    inside = {True: ", inside", False: ", outside", None: ""}[here.inside]
    return f"{here.observed:.1f}; [{here.low:.1f}, {here.high:.1f}]{inside}"
