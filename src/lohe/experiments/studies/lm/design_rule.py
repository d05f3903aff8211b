"""How many oscillators for a wanted gap: the power law of Figure 6, read backwards."""

import math
from statistics import fmean

from lohe import cost
from lohe.experiments.evidence import Evidence
from lohe.experiments.item import Item
from lohe.experiments.studies.lm.laws import PAPER, UNSEEN, Law, laws, our_law, published_laws
from lohe.experiments.studies.lm.perplexity import CORPORA, READINGS, about, name
from lohe.experiments.studies.lm.scaling_law import runs
from lohe.experiments.tables import Table
from lohe.experiments.verdicts import Claim, Line

HEADS = 4
CONTEXT = {"wikitext2": 50, "tinystories": 128}  # as the paper counts it; a model sees one less
LARGEST = 10_000  # beyond it a dimension is only said to be large
WANTED = (0.1, 0.05, 0.02, 0.01)  # gaps as parts of softmax's perplexity


def table(evidence: Evidence) -> Table:
    """Section 5's design rule d_osc = (C / Δ)^(1/α), in d_osc and in oscillators a layer."""
    rows, recorded = [], False
    for corpus in CORPORA:
        for who, here in laws(evidence, corpus):
            recorded = recorded or who != PAPER
            cells = [_budget(here, corpus, part) for part in WANTED]
            rows.append((f"{CORPORA[corpus]}, {who}", *cells, _back(here)))
    wanted = tuple(f"{100 * part:g} %" for part in WANTED)
    columns = ("corpus, reading", *wanted, "gap at 64")
    notes = [
        "d_osc at which the gap is a part of softmax's perplexity, and the oscillators "
        "n_h T (d_osc - 1) of a layer. Last: d_osc that the rule gives for the gap observed at 64.",
        "Weights depend on the anchors through R Rᵀ only: no d_osc above the number of words that "
        "a model sees, 49 and 127, adds anything, whatever the rule gives.",
    ]
    notes += about(evidence, "claim-design-rule", recorded)
    return Table("The design rule d_osc = (C / gap)^(1/α)", columns, rows, notes)


def _budget(here: Law, corpus: str, part: float) -> str:
    d = here.fit.dimension(part * here.base) if here.fit else math.nan
    if math.isnan(d):
        return "no fit" if here.fit is None else "none"
    if d > LARGEST:
        return f"> {LARGEST:,}"
    d_osc = max(2, math.ceil(d))
    count = cost.oscillators(CONTEXT[corpus], HEADS, d_osc)
    return f"{d_osc} ({count:,})"


def _back(here: Law) -> str:
    d = _rule(here)
    return "no records" if d is None else f"{d:.0f}"


def _rule(here: Law) -> float | None:
    """d_osc that the rule gives for the gap observed at 64."""
    if here.fit is None or not here.unseen:
        return None
    d = here.fit.dimension(fmean(here.unseen) - here.base)
    return d if math.isfinite(d) else None


def lines(evidence: Evidence) -> list[Line]:
    """The rule, asked for the dimension that it has not seen."""
    found = []
    for corpus in CORPORA:
        for reading in READINGS:
            here, theirs = our_law(evidence, corpus, reading), published_laws()[corpus]
            d = _rule(here)
            holds = None if d is None else UNSEEN / 2 <= d <= UNSEEN * 2
            said = "no fit, or no gap above 0 to ask for" if d is None else f"d_osc = {d:.1f}"
            found.append(
                Line(
                    f"{name(evidence.setting, corpus)}, d_osc for the gap seen at {UNSEEN}",
                    f"{_back(theirs)}, from its own numbers",
                    _back(here),
                    "not reported" if here.unseen else "no records",
                    Claim("lm-design-rule", holds, said),
                    reading,
                )
            )
    return found


ITEMS = {
    "claim-design-rule": Item(
        title="Section 5. The design rule d_osc = (C / gap)^(1/α)",
        runs=runs,
        table=table,
        lines=lines,
    ),
}
