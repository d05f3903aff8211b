"""Figure 6: the law of the published seeds, a law that flattens, and the rule read from both."""

import pytest
from language_records import ON_OURS, ON_THEIRS, as_printed, by_what, evidence

from lohe.experiments.reported import published
from lohe.experiments.studies.lm import design_rule, scaling_law
from lohe.experiments.studies.lm.laws import UNSEEN, our_law, published_laws
from lohe.experiments.studies.lm.perplexity import oscillator
from lohe.experiments.verdicts import Agreement, Claim, judge
from lohe.models import Oscillator, Softmax

DIMENSIONS = (2, 4, 8, 16, 32)
# printed in Section 4.2, Figure 6's caption and the introduction
FITS = {
    "WikiText-2": "15.17 d^-0.42 [0.386, 0.463]",
    "TinyStories": "3.58 d^-0.60 [0.572, 0.627]",
}
CORPORA = "TinyStories, gaps at d_osc = 2, 4, 8, 16, 32"
SQUARED = {"WikiText-2": "0.997", "TinyStories": "0.994"}
HELD_OUT = {
    "WikiText-2": "2.523; predicted 2.635 [2.159, 3.111]",
    "TinyStories": "0.264; predicted 0.296 [0.260, 0.332]",
}


def with_gaps(gaps: dict[int, float], base: float = 100.0):
    """WikiText-2 as defined with these gaps; its seeds are within a few hundredths."""
    recipe = ON_OURS.wikitext2
    values = {recipe(Softmax()): seeds(base, 5)}
    for d, gap in gaps.items():
        values[recipe(oscillator("as defined", d))] = seeds(base + gap, 10 if d == UNSEEN else 5)
    return evidence(ON_OURS, values)


def seeds(mean: float, n: int) -> list[float]:
    return [mean + 0.01 * (k - (n - 1) / 2) for k in range(n)]


def line_of(found, what: str):
    return by_what(scaling_law.lines(found))[f"WikiText-2, {what}", "as defined"]


@pytest.fixture(scope="module")
def printed():
    return evidence(ON_THEIRS, as_printed(ON_THEIRS))


def test_every_printed_number_has_a_line(printed):
    found = by_what(scaling_law.lines(printed))
    for corpus in FITS:
        for reading in ("as published", "as defined"):
            assert found[f"{corpus}, α of the fit C d^-α", reading].paper == FITS[corpus]
            assert found[f"{corpus}, R²", reading].paper == SQUARED[corpus]
            assert found[f"{corpus}, gap at d_osc = 64", reading].paper == HELD_OUT[corpus]
            assert found[f"{corpus}, α about 1/2", reading].paper == "0.5"
    for reading in ("as published", "as defined"):
        gaps = found[CORPORA, reading].paper
        assert gaps == "+2.24, +1.61, +1.11, +0.68, +0.44"
    assert len(found) == 2 * 2 * 4 + 2


def test_the_papers_own_runs_hold_all_its_claims(printed):
    judged = {(j.line.what, j.line.reading): j for j in judge(scaling_law.lines(printed))}
    for corpus, fit in FITS.items():
        j = judged[f"{corpus}, α of the fit C d^-α", "as published"]
        low, _, high = fit.partition("[")[2].partition(", ")
        assert j.line.ours.startswith(fit.partition("[")[0])
        # only the draws differ: ours begin anew for each corpus
        for bound in (low, high.rstrip("]")):
            assert float(bound) == pytest.approx(_nearest(j.line.ours, bound), abs=0.002)
        assert j.value == "reproduced"
        assert judged[f"{corpus}, R²", "as published"].claim == "holds"
        assert judged[f"{corpus}, gap at d_osc = 64", "as published"].claim == "holds"
        assert judged[CORPORA, "as published"].claim == "holds"
        assert judged[CORPORA, "as defined"].claim == "undecided"
        # what the introduction calls an approximate square root is none by its own seeds
        assert judged[f"{corpus}, α about 1/2", "as published"].value == "differs"


def _nearest(text: str, number: str) -> float:
    found = [float(x) for x in text.partition("[")[2].rstrip("]").split(", ")]
    return min(found, key=lambda x: abs(x - float(number)))


def test_standard_errors_come_from_the_resampling(printed):
    here = our_law(printed, "wikitext2", "as published")
    assert here.spread is not None
    assert here.exponent is not None
    assert here.exponent.se == here.spread.exponent_se
    low, high = here.spread.exponent_interval
    assert here.exponent.se == pytest.approx((high - low) / (2 * 1.96), rel=0.05)
    line = by_what(scaling_law.lines(printed))["WikiText-2, α of the fit C d^-α", "as published"]
    assert isinstance(line.value, Agreement)
    theirs = published_laws()["wikitext2"].spread
    assert theirs is not None
    combined = (here.exponent.se**2 + theirs.exponent_se**2) ** 0.5
    assert (line.value.difference.se, line.value.margin) == pytest.approx((combined, 0.05))


def test_the_published_laws_are_the_published_ones():
    for corpus, here in published_laws().items():
        paper = published("figure6")[corpus]
        assert here.fit is not None
        assert here.held_out is not None
        assert here.fit.exponent == pytest.approx(paper["exponent"], rel=1e-7)
        assert [here.held_out.low, here.held_out.high] == pytest.approx(paper["interval"], rel=1e-7)


def test_a_law_holds():
    found = with_gaps({d: 20 * d**-0.5 for d in (*DIMENSIONS, 64)})
    straight, unseen = line_of(found, "R²").claim, line_of(found, "gap at d_osc = 64").claim
    assert straight.holds
    assert "each doubling takes off 29, 29, 29, 29 % of the gap" in straight.found
    assert unseen.holds
    (rule,) = [c for c in _rules(found) if c.holds is not None]
    assert rule.holds
    assert rule.found == "d_osc = 64.0"


def test_a_gap_that_flattens_is_no_law():
    """As with anchors on the sphere: a part of the gap falls, the rest stays."""
    found = with_gaps({d: 8.5 + 12 / d for d in (*DIMENSIONS, 64)})
    straight, unseen = line_of(found, "R²").claim, line_of(found, "gap at d_osc = 64").claim
    assert straight.holds is False
    assert "takes off 21, 13, 7, 4 % of the gap (published 30, 24, 23, 25 %)" in straight.found
    assert unseen.holds is False
    assert "above the 95 % interval" in unseen.found
    (rule,) = [c for c in _rules(found) if c.holds is not None]
    assert rule.holds is False  # the rule gives a dimension below 32


def _rules(found) -> list[Claim]:
    return [line.claim for line in design_rule.lines(found) if line.claim]


def test_a_gap_that_is_none_allows_no_law():
    found = with_gaps({2: 3.0, 4: 2.0, 8: 1.0, 16: -1.0, 32: -2.0, 64: -3.0})
    assert line_of(found, "R²").claim.holds is None
    assert line_of(found, "α of the fit C d^-α").value == "inconclusive"
    # the gap itself is still compared
    assert isinstance(line_of(found, "gap at d_osc = 64").value, Agreement)
    assert {c.holds for c in _rules(found)} == {None}


def test_a_missing_dimension_is_missing():
    found = with_gaps({2: 8.0, 4: 4.0, 8: 2.0, 16: 1.0})
    assert line_of(found, "α of the fit C d^-α").value == "no records"
    assert line_of(found, "gap at d_osc = 64").value == "no records"
    rows = {row[0]: row[1:] for row in scaling_law.numbers(found).rows}
    assert rows["WikiText-2, as defined"][0] == "no fit"
    assert rows["WikiText-2, paper"][0] == "15.17 d^-0.420"


def test_the_rule_from_the_papers_own_numbers(printed):
    """(15.17 / 2.523)^(1/0.420) = 71, (3.582 / 0.2635)^(1/0.5986) = 78."""
    found = {(line.what, line.reading): line for line in design_rule.lines(printed)}
    for corpus, d in {"WikiText-2": "71", "TinyStories": "78"}.items():
        line = found[f"{corpus}, d_osc for the gap seen at 64", "as published"]
        assert (line.paper, line.ours) == (f"{d}, from its own numbers", d)
        assert line.claim is not None
        assert line.claim.holds


def test_the_budget_is_the_papers():
    """d_osc = 32 on WikiText-2 needs 4 · 50 · 31 = 6,200 oscillators a layer (Section 5)."""
    here = published_laws()["wikitext2"]
    assert here.fit is not None
    part = here.fit.gap(32) / here.base
    assert design_rule._budget(here, "wikitext2", part * 1.0001) == "32 (6,200)"


def test_the_runs_held_out_are_ten():
    listed = scaling_law.runs(ON_OURS)
    for anchors in ("free", "sphere"):
        for seed in range(10):
            assert ON_OURS.wikitext2(Oscillator(d_osc=64, anchors=anchors), seed) in listed
    assert len(listed) == 11 * (5 + 3) + 2 * (10 + 3)  # of stories three


def test_each_of_our_laws_is_resampled_on_its_own(printed):
    """Runs of one corpus must not move the interval of another."""
    task = ON_THEIRS.corpora.wikitext2
    alone = {r: values for r, values in as_printed(ON_THEIRS).items() if r.task == task}
    both = our_law(printed, "wikitext2", "as published")
    one = our_law(evidence(ON_THEIRS, alone), "wikitext2", "as published")
    assert (one.fit, one.held_out) == (both.fit, both.held_out)
