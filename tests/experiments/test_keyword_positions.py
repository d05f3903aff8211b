"""The two claims about positions, by the tests that rules.json states."""

from dataclasses import replace
from statistics import fmean

import keyword_records as given
import pytest
from keyword_records import COMPACTLY, difference, evidence, verdicts
from scipy import stats

from lohe.experiments import item
from lohe.experiments.reported import published
from lohe.experiments.studies.kws import keyword_cells as cells
from lohe.experiments.studies.kws.keyword_positions import ENCODINGS, parity_claim, positions_claim
from lohe.experiments.verdicts import gap

GRID = published("figure3")["per_seed"]


def grids(shift: float = 0.0):
    """The oscillator's accuracies by encoding, shifted, and softmax's."""
    shifted = {where: [x + shift for x in GRID["oscillator"][where]] for where in ENCODINGS}
    return shifted, GRID["softmax"]


def test_on_the_published_numbers_both_claims_hold():
    lines = item("claim-kws-positions").lines(evidence(COMPACTLY, given.published_grid(COMPACTLY)))
    found = verdicts(lines)
    assert len(found) == 2 * 2 * (2 * 3 + 1)
    printed = [line.paper for line in lines[:7] if line.paper != "not reported"]
    assert printed == ["+1.08", "+0.58", "-0.22", "parity"]
    for words in COMPACTLY.corpora.keywords:
        for reading in cells.READINGS:
            ahead = found[f"{words}: oscillator - softmax, no positions, pp ({reading})"]
            assert ahead[1] == "holds"
            assert found[f"{words}: parity with matched positions ({reading})"][1] == "holds"
    judged = [line for line in lines if line.paper not in ("parity", "not reported")]
    assert all(difference(line) == pytest.approx(0, abs=1e-9) for line in judged)


def test_a_gap_on_test_is_shown_and_decides_nothing():
    grid = given.published_grid(COMPACTLY)
    behind = [
        replace(r, result=r.result | {"test.accuracy": r.result["valid.accuracy"] - 2})
        if r.recipe["model"]["attention"]["type"] == "Oscillator"
        else replace(r, result=r.result | {"test.accuracy": r.result["valid.accuracy"]})
        for r in grid
    ]
    lines = item("claim-kws-positions").lines(evidence(COMPACTLY, behind))
    shown = [line.ours for line in lines if "on test" in line.what]
    gaps = [fmean(GRID["oscillator"][x]) - fmean(GRID["softmax"][x]) for x in cells.POSITIONS]
    assert shown == [f"{gap - 2:+.2f}" for gap in gaps] * 4
    parity = [line.claim for line in lines if line.paper == "parity" and line.claim]
    assert all(claim.holds for claim in parity)
    assert all("; on test it does not hold: " in claim.found for claim in parity)


def test_the_oscillator_is_ahead_by_welchs_test():
    a, b = GRID["oscillator"]["none"], GRID["softmax"]["none"]
    claim = positions_claim(a, b)
    assert claim.p == pytest.approx(stats.ttest_ind(a, b, equal_var=False).pvalue)
    assert claim.holds
    assert positions_claim(b, a).holds is False  # as significant, and the wrong way round
    assert positions_claim([x - 0.8 for x in a], b).holds is False
    assert positions_claim(a, b[:1]).holds is None


@pytest.mark.parametrize(("shift", "holds"), [(0.0, True), (3.0, True), (-0.1, False)])
def test_parity_is_about_the_lower_end_of_both_intervals(shift, holds):
    # learned positions: published mean -0.23, lower end -0.67, of which a tenth is too much
    assert parity_claim(*grids(shift)).holds is holds
    learned = gap(*(grid["learned"] for grid in grids()))
    expected = stats.ttest_ind(
        GRID["oscillator"]["learned"], GRID["softmax"]["learned"], equal_var=False
    ).confidence_interval(0.9)
    assert learned is not None
    assert learned.interval(0.9) == pytest.approx((expected.low, expected.high))


def test_parity_needs_both_encodings():
    oscillator, softmax = grids()
    missing = parity_claim(oscillator | {"learned": []}, softmax)
    assert (missing.verdict, missing.numbers) == ("no records", "oscillator learned missing")
    single = parity_claim(oscillator | {"learned": [90.0]}, softmax)
    assert (single.verdict, single.numbers[:15]) == ("undecided", "needs two seeds")
    nothing: dict[str, list[float]] = {where: [] for where in ENCODINGS}
    assert parity_claim(nothing, nothing).verdict == "no records"
