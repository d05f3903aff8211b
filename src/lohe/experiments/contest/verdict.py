"""What was found, in sentences: the primary test, the goal, and ends of what was searched."""

from typing import Any

from lohe.experiments.contest import choose, confirm, tables
from lohe.experiments.contest.confirm import Comparison, percent
from lohe.experiments.contest.trials import (
    FAMILIES,
    MATCHED,
    OURS,
    SHARED,
    STAGES,
    Chosen,
    Configuration,
    as_text,
    asked,
    to_confirm,
)
from lohe.experiments.evidence import Evidence
from lohe.experiments.verdicts import NO_RECORDS

ALPHA = 0.01


def verdict(evidence: Evidence) -> str:
    """What the primary test says, and then whether the goal is met."""
    chosen = choose.chosen(evidence)
    if chosen is None:
        return f"Nothing is decided yet. {tables.progress(evidence)}"
    return f"{primary(evidence, chosen)} {goal(evidence, chosen)}".strip()


def primary(evidence: Evidence, chosen: Chosen) -> str:
    """The primary test: ours, whatever its d_osc, against the best softmax."""
    c = confirm.comparisons(evidence, chosen)["ours"]
    if lost := _diverged(evidence, chosen.ours, chosen.best):
        return f"{lost} diverged; the comparison is undecided."
    there, wanted = _seeds(evidence, chosen.ours, chosen.best), len(STAGES["confirm"].seeds)
    if isinstance(c, str) or there < wanted:
        return f"Nothing is decided yet: {there} of {wanted} seeds are confirmed."
    d_osc = f"d_osc = {getattr(chosen.ours.mechanism, 'd_osc', '')}"
    low, high = (percent(x) for x in c.welch.interval(0.95))
    said = f"{percent(c.welch.value):+.2f} % [{low:+.2f}, {high:+.2f}]"
    numbers = f"test perplexity {said} against {as_text(chosen.best)}; p = {c.welch.p:.2g}"
    if c.welch.p >= ALPHA:
        return f"No difference is shown at {d_osc}: {numbers}."
    if c.welch.value < 0:
        return f"The oscillator on the sphere, {d_osc}, is better than the best softmax: {numbers}."
    return f"The best softmax is better than the oscillator on the sphere, {d_osc}: {numbers}."


def goal(evidence: Evidence, chosen: Chosen) -> str:
    """Better than the best softmax at d_osc 16 or 32, p < 0.01: of ours the primary p, or Holm's.

    Met as soon as it is at one of them; not met once neither is and no correction can change, which
    planned comparisons without records still do.
    """
    names = {c: name for name, c in to_confirm(chosen).items()}
    found = confirm.comparisons(evidence, chosen)
    corrected = confirm.p_values(found)
    lacking = NO_RECORDS in found.values()
    said, won = {}, {}
    for d, configuration in asked(chosen.ours).items():
        name, wanted = names[configuration], len(STAGES["confirm"].seeds)
        c, there = found[name], _seeds(evidence, configuration, chosen.best)
        if _diverged(evidence, configuration, chosen.best):
            said[d], won[d] = confirm.DIVERGED, None
        elif isinstance(c, str) or there < wanted:
            said[d], won[d] = f"{there} of {wanted} seeds", None
        else:
            said[d] = f"{percent(c.welch.value):+.2f} % (p = {corrected[name]:.2g})"
            better = _better(c, corrected[name])
            won[d] = None if not better and lacking and name != "ours" else better
    if not said:
        return ""
    known = "met" if any(won.values()) else "open" if None in won.values() else "not met"
    cells = "; ".join(f"at d_osc = {d} {text}" for d, text in said.items())
    return (
        f"The goal, better than the best softmax at d_osc {' or '.join(map(str, said))} with "
        f"p < {ALPHA:g}, is {known}: {cells}."
    )


def edges(evidence: Evidence) -> str:
    """Which winners are at an end of the learning rates, or ours at the largest p, of the search.

    The largest d_osc is no such end: with 48 inputs a larger one is the same class of functions.
    """
    chosen = choose.chosen(evidence)
    if chosen is None:
        return ""
    ends = {"largest": max(SHARED["learning_rate"]), "smallest": min(SHARED["learning_rate"])}
    names = {"ours": chosen.ours, "the best softmax": chosen.best, MATCHED: chosen.matched}
    said = []
    for end, rate in ends.items():
        there = [name for name, c in names.items() if c.learning_rate == rate]
        if there:
            said.append(
                f"Edge optimum: {'; '.join(there)} won at the {end} learning rate that was "
                f"searched, {rate:g}. One beyond may be better."
            )
    mechanism: Any = chosen.ours.mechanism
    if mechanism.sharpness == (most := max(FAMILIES[OURS].choices["sharpness"])):
        said.append(f"Edge optimum: ours won at the largest p that was searched, {most}.")
    return " ".join(said)


def _better(c: Comparison, p: float) -> bool:
    return c.welch.value < 0 and p < ALPHA


def _seeds(evidence: Evidence, *configurations: Configuration) -> int:
    """How many seeds the one with the fewest has."""
    return min(len(confirm.records(evidence, c, "strict")) for c in configurations)


def _diverged(evidence: Evidence, ours: Configuration, best: Configuration) -> str:
    """Which seeds of which diverged, or nothing."""
    lost = {
        name: confirm.diverged(confirm.records(evidence, c, "strict"))
        for name, c in {"ours": ours, "the best softmax": best}.items()
    }
    parts = [f"seed {', '.join(map(str, s))} of {name}" for name, s in lost.items() if s]
    return " and ".join(parts).capitalize()
