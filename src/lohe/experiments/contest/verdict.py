"""What was found, in sentences: the primary test, the goal, and ends of what was searched."""

import math
from collections.abc import Iterator
from typing import Any

from lohe.experiments.contest import choose, confirm, further, tables
from lohe.experiments.contest.confirm import BEST, Comparison, Undecided, percent
from lohe.experiments.contest.stages import LENGTHS, Chosen, asked, controls, narrower, to_confirm
from lohe.experiments.contest.trials import FAMILIES, OURS, RATES, STAGES, Configuration, as_text
from lohe.experiments.evidence import Evidence
from lohe.experiments.verdicts import Estimate

ALPHA = 0.01
POWER = 0.8  # of ten contests like this one, eight would show a difference of that size


def verdict(evidence: Evidence) -> str:
    """What the primary test says, whether another softmax is lower, and whether the goal is met."""
    chosen = choose.chosen(evidence)
    if chosen is None:
        return f"Nothing is decided yet. {tables.progress(evidence)}"
    said = primary(evidence, chosen), lower_on_test(evidence, chosen), goal(evidence, chosen)
    return " ".join(x for x in said if x)


def primary(evidence: Evidence, chosen: Chosen) -> str:
    """The primary test: ours, whatever its d_osc, against the best softmax by validation."""
    c = confirm.comparisons(evidence, chosen)["ours"]
    if isinstance(c, Undecided):
        return f"The comparison is {c.why}." if c.for_good else f"Nothing is decided yet: {c.why}."
    m: Any = chosen.ours.mechanism
    which = f"d_osc = {m.d_osc} and p = {m.sharpness:g}"
    numbers = f"test perplexity {_change(c.welch)} against {as_text(chosen.best)}"
    if c.welch.p >= ALPHA:
        least = percent(detectable(c.welch))
        return (
            f"No difference between the oscillator on the sphere, {which}, and {BEST} by "
            f"validation is shown: {numbers}. With this spread as many seeds would show {least:.1f}"
            " % in four of five cases."
        )
    if c.welch.value < 0:
        return (
            f"The oscillator on the sphere, {which}, is better than {BEST} by validation: "
            f"{numbers}."
        )
    return (
        f"{BEST.capitalize()} by validation is better than the oscillator on the sphere, {which}: "
        f"{numbers}."
    )


def lower_on_test(evidence: Evidence, chosen: Chosen) -> str:
    """Which confirmed softmax is lower on test than the one that validation chose, if one is.

    Chosen by test, it would be a choice by what is to be decided; but nobody should take ours for
    better than every softmax where it is not.
    """
    found, planned = confirm.comparisons(evidence, chosen), len(STAGES["confirm"].seeds)
    ours = confirm.records(evidence, chosen.ours, "strict")
    said = []
    for name, c in to_confirm(chosen).items():
        apart = found.get(name)
        if hasattr(c.mechanism, "d_osc") or not isinstance(apart, Comparison):
            continue
        if apart.welch.value < 0:
            there = confirm.records(evidence, c, "strict")
            to_it = confirm.compare(ours, there, ("ours", name), (planned, planned))
            text = f"On test {name} is lower than the softmax that validation chose"
            if isinstance(to_it, Comparison):
                text += f"; against it ours has {_change(to_it.welch)}, not corrected for number"
            said.append(f"{text}.")
    return " ".join(said)


def goal(evidence: Evidence, chosen: Chosen) -> str:
    """Better than the best softmax at d_osc 16 or 32, p < 0.01: of ours the primary p, or Holm's.

    Met as soon as it is at one of them. Open while that may still come: seeds lack there, or other
    planned comparisons do with which the correction may fall so far. Undecided where a run
    diverged.
    """
    names = {c: name for name, c in to_confirm(chosen).items()}
    found = confirm.comparisons(evidence, chosen)
    corrected = confirm.p_values(found)
    at_best = confirm.p_values(found, lacking=0.0)
    said, states = {}, set()
    for d, configuration in asked(chosen.ours).items():
        name = names[configuration]
        match found[name]:
            case Undecided(why, for_good):
                said[d] = why
                states.add("undecided" if for_good else "open")
            case Comparison(welch):
                p = corrected[name]
                said[d] = f"{percent(welch.value):+.2f} % (p-value {p:.2g})"
                ahead = welch.value < 0
                met, may_be = ahead and p < ALPHA, ahead and at_best[name] < ALPHA
                states.add("met" if met else "open" if may_be else "not met")
    if not said:
        return ""
    known = next(x for x in ("met", "open", "undecided", "not met") if x in states)
    cells = "; ".join(f"at d_osc = {d}: {text}" for d, text in said.items())
    return (
        f"The goal, better than {BEST} by validation at d_osc {' or '.join(map(str, said))} with "
        f"a p-value below {ALPHA:g}, is {known} ({cells})."
    )


def what_would_change_it(evidence: Evidence) -> str:
    """Where ours is not better as chosen: which of its other models are, or are not told apart."""
    chosen = choose.chosen(evidence)
    c = confirm.comparisons(evidence, chosen)["ours"] if chosen else Undecided("")
    if chosen is None or isinstance(c, Undecided) or (c.welch.value < 0 and c.welch.p < ALPHA):
        return ""
    others = dict(_others(evidence, chosen))
    if not others:
        return ""
    ahead = {what: x for what, x in others.items() if x.interval(0.95)[1] < 0}
    unclear = [what for what, x in others.items() if x.interval(0.95)[0] <= 0 and what not in ahead]
    shown = [f"{what} {_change(x)}" for what, x in ahead.items()]
    return (
        f"What would change it: {len(others)} other models of ours on the sphere, each against "
        f"{BEST} by its own 95 % interval, not corrected for number. Ahead: "
        f"{'; '.join(shown) or 'none'}. Not told apart: {'; '.join(unclear) or 'none'}. Behind: "
        f"{len(others) - len(ahead) - len(unclear)}."
    )


def _others(evidence: Evidence, chosen: Chosen) -> Iterator[tuple[str, Estimate]]:
    """Other d_osc, protocol and controls on test; lengths and epochs on validation.

    Without free anchors, which leave the sphere, and lengths at which nothing can be said.
    """
    found = confirm.comparisons(evidence, chosen)
    spheres = (name for name, c in controls(chosen.ours).items() if _is_spherical(c))
    for name in (*narrower(chosen.ours), "ours, published", *spheres):
        c = found[name]
        if isinstance(c, Comparison):
            yield f"{name} (test)", c.welch
    for what, runs_of in further.BY_LENGTH.items():
        ours, best = (evidence.of(runs_of(c)) for c in (chosen.ours, chosen.best))
        apart = further.difference(ours, best, "ours")
        itself = what == f"T = {LENGTHS[0]}"
        if isinstance(apart, Estimate) and not itself and not further.too_small(what, ours, best):
            yield f"{what} (validation)", apart
    # what spoils the softmax more than ours would change nothing
    best = further.at_its_best(evidence, chosen.best)
    for what, runs_of in further.EPOCHS.items():
        apart = further.difference(evidence.of(runs_of(chosen.ours)), best, "ours")
        if isinstance(apart, Estimate):
            yield f"{what} (validation, softmax as is best for it)", apart


def _is_spherical(c: Configuration) -> bool:
    return getattr(c.mechanism, "anchors", "sphere") == "sphere"


def detectable(welch: Estimate) -> float:
    """The difference that a two-sided test at `ALPHA` shows with a chance of `POWER`."""
    from scipy import special

    freedom = math.inf if welch.dof is None else welch.dof
    reach = (special.stdtrit(freedom, x) for x in (1 - ALPHA / 2, POWER))
    return welch.se * float(sum(reach))


def edges(evidence: Evidence) -> str:
    """Which winners are at an end of the learning rates, or ours at the largest p, of the search.

    The largest d_osc is no such end: with 48 inputs a larger one is the same class of functions.
    """
    chosen = choose.chosen(evidence)
    if chosen is None:
        return ""
    ends = {"largest": RATES[-1], "smallest": RATES[0]}
    names = {"ours": chosen.ours} | dict(chosen.softmaxes)
    said = []
    for end, rate in ends.items():
        there = [name for name, c in names.items() if c.learning_rate == rate]
        if there:
            said.append(
                f"Edge optimum, at the {end} learning rate that was searched, {rate:g}: "
                f"{'; '.join(there)}. One beyond may be better."
            )
    mechanism: Any = chosen.ours.mechanism
    if mechanism.sharpness == (most := max(FAMILIES[OURS].choices["sharpness"])):
        said.append(f"Edge optimum, at the largest p that was searched, {most}: ours.")
    return " ".join(said)


def _change(apart: Estimate) -> str:
    """-1.23 % [-2.00, -0.46], p-value 0.003: of perplexity, with its 95 % interval."""
    return f"{tables.estimated(apart, ' %')}, p-value {apart.p:.2g}"
