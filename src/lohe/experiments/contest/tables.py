"""What the records say, as tables and one sentence. Pure functions; what is missing is said."""

import math
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from typing import Any

import torch

from lohe.experiments.contest import choose, confirm, law
from lohe.experiments.contest.choose import Chosen
from lohe.experiments.contest.confirm import Comparison, percent
from lohe.experiments.contest.law import Law
from lohe.experiments.contest.trials import (
    FAMILIES,
    FITTED,
    HELD_OUT,
    LARGE,
    LARGE_TOKENS,
    LENGTHS,
    PUBLISHED,
    STAGES,
    Configuration,
    as_text,
    controls,
    larger,
    longer,
    narrower,
    trial_runs,
)
from lohe.experiments.evidence import Evidence
from lohe.experiments.store.records import Record
from lohe.experiments.tables import Table, plus_minus
from lohe.measure.significance import mean_std
from lohe.models import ParameterCounts, parameter_counts
from lohe.tasks import Data, Split, WikiText2Articles
from lohe.tasks.language import SPECIALS
from lohe.train import Run

NONE = "no records"
LATER, TEST = "later.perplexity", "test.perplexity"
ALPHA = 0.01
BESIDE = ("validation", "test", "to best softmax, %", "p")
COLUMNS = ("mechanism", "d_osc", "p", "gain", "parameters", "seeds", "validation", "test")


def rows_of(chosen: Chosen) -> dict[str, Configuration]:
    """What is confirmed, by name; a configuration that is two of them stands once."""
    named = {"ours": chosen.ours, f"best softmax ({chosen.family})": chosen.best}
    found: dict[Configuration, str] = {}
    for name, c in (named | dict(PUBLISHED) | narrower(chosen.ours)).items():
        found.setdefault(c, name)
    return {name: c for c, name in found.items()}


def confirmed(evidence: Evidence) -> Table:
    """Every confirmed configuration by both protocols, and its distance from the best softmax."""
    title = "Confirmed on the test articles"
    columns = (*COLUMNS, *DISTANCE, *(f"{name}, published" for name in BESIDE))
    chosen = choose.chosen(evidence)
    if chosen is None:
        return Table(title, columns, [], [progress(evidence)])
    found = comparisons(evidence, chosen)
    corrected = corrected_p(found)
    rows = []
    for name, c in rows_of(chosen).items():
        there = confirm.records(evidence, c, "strict")
        beside = ("", "", "", "")  # ours at other dimensions: by the strict protocol only
        if c not in narrower(chosen.ours).values():
            distance, *_, p = _distance(f"{name}, published", found, corrected)
            by_published = confirm.records(evidence, c, "published")
            beside = (*_perplexities(by_published), distance, p)
        row = (name, *_shape(c), str(len(there)), *_perplexities(there))
        rows.append((*row, *_distance(name, found, corrected), *beside))
    return Table(title, columns, rows, [*PERPLEXITY, *DISTANCE_NOTES])


def controlled(evidence: Evidence) -> Table:
    """The chosen oscillator with one part changed."""
    title = "What does the work: the chosen oscillator with one part changed"
    columns = (*COLUMNS, *DISTANCE, "to ours, %")
    chosen = choose.chosen(evidence)
    if chosen is None:
        return Table(title, columns, [], [progress(evidence)])
    found = comparisons(evidence, chosen)
    corrected = corrected_p(found)
    ours = confirm.records(evidence, chosen.ours, "strict")
    rows = []
    for name, c in controls(chosen.ours).items():
        there = confirm.records(evidence, c, "strict", "controls")
        row = (name, *_shape(c), str(len(there)), *_perplexities(there))
        to_ours = _distance(name, {name: confirm.compare(there, ours)}, {name: math.nan})[0]
        rows.append((*row, *_distance(name, found, corrected), to_ours))
    notes = [*DISTANCE_NOTES, "to ours: the same change against the chosen oscillator as it is."]
    return Table(title, columns, rows, notes)


DISTANCE = ("to best softmax, %", "paired", "seeds and articles", "p")
PERPLEXITY = (
    "Perplexity, mean ± standard deviation over seeds. validation: its second half of articles, by "
    "which nothing was chosen. Without a further word by the strict protocol; published: the same "
    "configurations trained and scored by the published one.",
    "parameters: all / without embedding and output / in attention, in thousands.",
)
DISTANCE_NOTES = (
    "to best softmax: change of test perplexity in per cent with its 95 % interval by Welch; "
    "paired: the interval by seed; seeds and articles: that of a bootstrap over both. p: of ours "
    "Welch's, the primary test; of the others Holm-corrected, all together.",
)


@lru_cache(maxsize=4)
def comparisons(evidence: Evidence, chosen: Chosen) -> dict[str, Comparison | None]:
    """Everything with the best softmax, by the name of its row; the protocol after the name."""
    found: dict[str, Comparison | None] = {}
    base = confirm.records(evidence, chosen.best, "strict")
    beside = confirm.records(evidence, chosen.best, "published")
    for name, c in rows_of(chosen).items():
        if c != chosen.best:
            found[name] = confirm.compare(confirm.records(evidence, c, "strict"), base)
        if c != chosen.best and c not in narrower(chosen.ours).values():
            there = confirm.records(evidence, c, "published")
            found[f"{name}, published"] = confirm.compare(there, beside)
    for name, c in controls(chosen.ours).items():
        there = confirm.records(evidence, c, "strict", "controls")
        found[name] = confirm.compare(there, base)
    return found


def corrected_p(found: Mapping[str, Comparison | None]) -> dict[str, float]:
    """Of ours the primary test's own p; of all others Holm's."""
    primary = found.get("ours")
    others = confirm.p_values({name: c for name, c in found.items() if name != "ours"})
    return others | ({"ours": primary.welch.p} if primary else {})


def verdict(evidence: Evidence) -> str:
    """What the primary test says, in a sentence."""
    chosen = choose.chosen(evidence)
    if chosen is None:
        return f"Nothing is decided yet. {progress(evidence)}"
    primary = comparisons(evidence, chosen)["ours"]
    there = [len(confirm.records(evidence, c, "strict")) for c in (chosen.ours, chosen.best)]
    wanted = len(STAGES["confirm"].seeds)
    if primary is None or min(there) < wanted:
        return f"Nothing is decided yet: {min(there)} of {wanted} seeds are confirmed."
    low, high = (percent(x) for x in primary.welch.interval(0.95))
    said = f"{percent(primary.welch.value):+.2f} % [{low:+.2f}, {high:+.2f}]"
    numbers = f"test perplexity {said} against {as_text(chosen.best)}; p = {primary.welch.p:.2g}"
    if primary.welch.p >= ALPHA:
        return f"No difference is shown: {numbers}."
    if primary.welch.value < 0:
        return f"The oscillator on the sphere is better than the best softmax: {numbers}."
    return f"The best softmax is better than the oscillator on the sphere: {numbers}."


def chosen_table(evidence: Evidence) -> Table:
    """The best of each family in the trials and in the finals."""
    rows = []
    for family in FAMILIES:
        recorded = len(trial_runs(family)) - len(choose.missing(evidence, trial_runs(family)))
        first = next((s for s in choose.in_trials(evidence, family) if s.nats), None)
        last = next(iter(choose.in_finals(evidence, family)), None)
        shown = last or first
        rows.append(
            (
                family,
                f"{recorded}/{len(trial_runs(family))}",
                _reached(first),
                _reached(last),
                as_text(shown.configuration) if shown else "",
            )
        )
    columns = ("family", "models tried", "best of the trials", "best of the finals", "which")
    notes = [
        "Perplexity on the first half of the validation articles, strict: exp of the mean over "
        "seeds of its logarithm; 10 epochs in the trials, 30 in the finals. By these the "
        "configurations were chosen, so they flatter."
    ]
    return Table("Chosen", columns, rows, notes)


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
        f"{' and '.join(map(str, HELD_OUT))}: observed, and the 95 % interval predicted. floor - "
        f"softmax: against {as_text(chosen.best)}, with its 95 % interval over seeds."
    ]
    return Table(title, columns, rows, notes)


def further(evidence: Evidence) -> Table:
    """Longer windows, and the larger model."""
    title = "Longer windows, and a larger model"
    columns = ("model", "seeds", "validation", "epoch chosen")
    chosen = choose.chosen(evidence)
    if chosen is None:
        return Table(title, columns, [], [progress(evidence)])
    rows = []
    for name, c in rows_of(chosen).items():
        if c in (chosen.ours, chosen.best):
            rows += [_further(evidence, f"{name}, windows of {t}", longer(c, t)) for t in LENGTHS]
        if c in (chosen.ours, chosen.best, PUBLISHED["softmax as published"]):
            size = f"{LARGE['layers']} layers, windows of {LARGE_TOKENS}"
            rows.append(_further(evidence, f"{name}, {size}", larger(c)))
    notes = [
        "Second half of the validation articles, strict. An epoch chosen early means that the "
        "model learns the corpus by heart from there on."
    ]
    return Table(title, columns, rows, notes)


def progress(evidence: Evidence) -> str:
    runs = [run for family in FAMILIES for run in trial_runs(family)]
    left = len(choose.missing(evidence, runs))
    if left:
        return f"Of the trials {len(runs) - left} of {len(runs)} models are recorded."
    finals = choose.final_runs(evidence) or []
    left = len(choose.missing(evidence, finals))
    done = f"{len(finals) - left} of {len(finals)} models"
    return f"The trials are complete; of the finals {done} are recorded."


def _shape(c: Configuration) -> tuple[str, ...]:
    """d_osc, p, gain and parameters; what a mechanism has not is left empty."""
    m: Any = c.mechanism
    counts = _counts(c)
    sizes = (counts.total, counts.non_embedding, counts.attention)
    gain = getattr(m, "gain", None)
    is_oscillator = hasattr(m, "d_osc")
    p = getattr(m, "sharpness", None)
    learned = hasattr(m, "start")
    return (
        str(m.d_osc) if is_oscillator else "",
        "learned" if learned else f"{p:g}" if p is not None else "",
        (str(gain) if gain is not None else "1") if is_oscillator and hasattr(m, "gain") else "",
        " / ".join(f"{n / 1000:,.0f}" for n in sizes),
    )


@cache
def _counts(c: Configuration) -> ParameterCounts:
    """Of the model of the strict protocol."""
    run, task = STAGES["confirm"].runs(c)[0], WikiText2Articles()
    row = torch.zeros(1, task.tokens, dtype=torch.int16)
    words = tuple(map(str, range(task.vocab + len(SPECIALS))))
    data = Data({"train": Split({"tokens": row}, {"next": row})}, words, "")
    return parameter_counts(run.model.build(data))


def _perplexities(there: Sequence[Record]) -> tuple[str, str]:
    """On the second half of validation, and on test."""
    later, test = ([r.result[m] for r in there if m in r.result] for m in (LATER, TEST))
    return shown(later), shown(test)


def shown(values: Sequence[float]) -> str:
    """Mean ± standard deviation, or that there is none."""
    return plus_minus(*mean_std(values)) if values else NONE


def _distance(
    name: str, found: Mapping[str, Comparison | None], corrected: Mapping[str, float]
) -> tuple[str, ...]:
    if name not in found:
        return ("", "", "", "")  # the best softmax itself
    c = found[name]
    if c is None:
        return (NONE, "", "", "")
    estimate, interval = percent(c.welch.value), _interval(*c.welch.interval(0.95))
    paired = _interval(c.paired.low, c.paired.high) if c.paired else ""
    articles = _interval(*c.articles) if c.articles else ""
    return (f"{estimate:+.2f} {interval}", paired, articles, f"{corrected[name]:.2g}")


def _interval(low: float, high: float) -> str:
    return f"[{percent(low):+.2f}, {percent(high):+.2f}]"


def _reached(standing: choose.Standing | None) -> str:
    if standing is None:
        return NONE
    mean = standing.mean
    return f"{math.exp(mean):.2f} ({len(standing.nats)} seeds)" if mean < math.inf else "diverged"


def curve_name(name: str, chosen: Chosen) -> str:
    m: Any = chosen.ours.mechanism
    return "p = 1" if name == "p = 1" else f"p = {m.sharpness:g}, learned gain"


def _law_cells(here: Law) -> tuple[str, ...]:
    if here.fit is None or here.spread is None or here.held_out is None:
        return (NONE, *[""] * (2 + len(HELD_OUT)))
    fit, spread, tested = here.fit, here.spread, here.held_out
    low, high = spread.exponent_interval
    end = spread.above_baseline
    return (
        f"{fit.floor:.1f} {fit.prefactor:+.1f} d^{-fit.exponent:.2f}",
        f"[{low:.2f}, {high:.2f}]",
        *(
            f"{tested[d].observed:.1f}; [{tested[d].low:.1f}, {tested[d].high:.1f}]"
            if d in tested
            else NONE
            for d in HELD_OUT
        ),
        f"{here.above_softmax:+.1f} [{end[0]:+.1f}, {end[1]:+.1f}]",
    )


def _further(evidence: Evidence, name: str, runs: Sequence[Run]) -> tuple[str, ...]:
    wanted, first = {run.seed for run in runs}, runs[0]
    there = [r for r in evidence.records(first) if r.seed in wanted]
    epochs = [r.notes["epoch"] + 1 for r in there if "epoch" in r.notes]
    return (
        name,
        str(len(there)),
        shown([r.result[LATER] for r in there]),
        ", ".join(map(str, epochs)),
    )
