"""Verdicts are what the textbooks' tests say, by the rules that were committed."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from lohe.experiments.verdicts import (
    Agreement,
    Claim,
    Estimate,
    Line,
    counts,
    exactly,
    holm,
    judge,
    log,
    margin,
    of_sample,
    ours,
    printed,
    rules,
)

seeds = st.integers(0, 10_000)
SMALL = 1e-9  # relative; both sides are float64


def samples(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Two samples of unequal size and spread, their means about a unit apart."""
    rng = np.random.default_rng(seed)
    m, n = rng.integers(3, 12, 2)
    return rng.normal(rng.normal(), 1, m), rng.normal(0, rng.uniform(0.1, 3), n)


@given(seeds)
def test_the_difference_of_two_samples_is_welchs(seed):
    a, b = samples(seed)
    gap = of_sample(list(a)) - of_sample(list(b))
    welch = stats.ttest_ind(a, b, equal_var=False)
    interval = welch.confidence_interval(0.9)
    assert gap.dof == pytest.approx(welch.df, rel=SMALL)
    assert gap.p == pytest.approx(welch.pvalue, rel=1e-6)
    assert gap.interval(0.9) == pytest.approx((interval.low, interval.high), rel=SMALL)


def test_a_printed_mean_is_worth_its_sample():
    a, b = samples(1)
    by_print = printed(float(b.mean()), float(b.std(ddof=1)), len(b))
    by_sample = of_sample(list(b))
    assert by_print.value == pytest.approx(by_sample.value, rel=SMALL)
    assert by_print.se == pytest.approx(by_sample.se, rel=SMALL)
    assert (ours(list(a)) - by_print).dof == pytest.approx((ours(list(a)) - by_sample).dof)


@given(seeds, st.floats(0.2, 3.0))
def test_reproduced_is_two_one_sided_tests_at_five_percent(seed, bound):
    a, b = samples(seed)
    above = stats.ttest_ind(a, b - bound, equal_var=False, alternative="greater").pvalue
    below = stats.ttest_ind(a, b + bound, equal_var=False, alternative="less").pvalue
    verdict = Agreement(of_sample(list(a)) - of_sample(list(b)), bound).verdict()
    assert (verdict == "reproduced") == (max(above, below) <= 0.05)


@given(seeds, st.floats(0.2, 3.0))
def test_differs_needs_significance_and_size(seed, bound):
    a, b = samples(seed)
    p = stats.ttest_ind(a, b, equal_var=False).pvalue
    far = abs(a.mean() - b.mean()) > bound
    verdict = Agreement(of_sample(list(a)) - of_sample(list(b)), bound).verdict()
    assert (verdict == "differs") == (p < 0.05 and far and verdict != "reproduced")


def test_a_number_without_spread_is_equal_or_not():
    exact = margin("exact")
    assert Agreement(exactly(7.0) - exactly(7.0), exact).verdict() == "reproduced"
    assert Agreement(exactly(7.0) - exactly(8.0), exact).verdict() == "differs"
    assert (exactly(7.0) - exactly(8.0)).p == 0
    assert (exactly(7.0) - exactly(7.0)).p == 1


def test_one_value_has_no_error():
    with pytest.raises(ValueError, match="needs two values at least, got 1"):
        of_sample([1.0])


@given(seeds)
def test_the_logarithm_turns_ratios_into_differences(seed):
    """Delta method: a relative error of 1e-4 is an error of 1e-4 of the logarithm."""
    rng = np.random.default_rng(seed)
    x = Estimate(rng.uniform(1, 100), 0, 4, 5)
    x = Estimate(x.value, 1e-4 * x.value, 4, 5, (1e-4 * x.value) ** 2)
    logarithm = log(x)
    assert logarithm.value == pytest.approx(math.log(x.value))
    assert logarithm.se == pytest.approx(1e-4)
    assert logarithm.own == pytest.approx(1e-8)
    low, high = x.interval(0.9)
    assert logarithm.interval(0.9) == pytest.approx((math.log(low), math.log(high)), rel=1e-6)


def rejected(p: list[float], level: float) -> list[bool]:
    """Holm's procedure as he wrote it: the smallest first, stop at the first that fails."""
    out = [False] * len(p)
    for rank, n in enumerate(np.argsort(p, kind="stable")):
        if p[n] > level / (len(p) - rank):
            break
        out[n] = True
    return out


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8), st.floats(0.001, 0.5))
def test_holms_correction_rejects_what_holms_procedure_rejects(p, level):
    for x, y in zip(holm(p), rejected(p, level), strict=True):
        if abs(x - level) > 1e-12:
            assert (x <= level) == y


def test_holm_survives_what_is_not_a_number():
    assert holm([]) == []
    assert holm([math.nan, 0.01]) == [1.0, 0.02]
    assert holm([0.01, math.nan]) == [0.02, 1.0]


def judged_with(agreement: Agreement, n: int, lines: int) -> str:
    """The verdict if n seeds of ours had the same mean and spread, among so many lines."""
    d = agreement.difference
    assert d.dof is not None
    own, others = d.own * d.seeds / n, d.se**2 - d.own
    theirs = d.se**4 / d.dof - d.own**2 / (d.seeds - 1)
    dof = (own + others) ** 2 / (own**2 / (n - 1) + theirs) if theirs > 1e-12 else n - 1
    se = math.sqrt(own + others)
    low, high = stats.t.interval(0.9, dof, d.value, se)
    if -agreement.margin <= low and high <= agreement.margin:
        return "reproduced"
    p = min(1, lines * 2 * stats.t.sf(abs(d.value) / se, dof))
    return "differs" if p < 0.05 and abs(d.value) > agreement.margin else "inconclusive"


@pytest.mark.parametrize(
    ("effect", "coarse"), [(0.5, True), (-0.5, True), (0.9, False), (None, False)]
)
def test_a_margin_larger_than_the_printed_change_is_said(effect, coarse):
    line = Line("a", "b", "c", Agreement(Estimate(0.1, 0.1, 9.0), 0.7, effect=effect))
    (judged,) = judge([line])
    assert judged.value == "reproduced"
    assert judged.coarse is coarse
    assert ("larger than the published change" in judged.note) is coarse
    assert not replace(judged, value="inconclusive").coarse


def test_what_rounding_leaves_of_a_difference_is_none():
    line = Line("x", "0.0", "0.0", Agreement(Estimate(1.4e-15, 3e-15, 4), 4.0))
    (judged,) = judge([line])
    assert judged.note == "difference +0 [+0, +0], margin 4"


def test_a_number_of_another_corpus_is_told_apart():
    same = Agreement(exactly(0.0), 1.0)
    lines = [Line("a", "1 % (TinyStories)", "2 %", value) for value in (same, "not reported")]
    assert [judged.elsewhere for judged in judge(lines)] == [True, False]
    assert not judge([Line("a", "1 %", "2 %", same)])[0].elsewhere


@given(
    st.lists(st.floats(-3, 3), min_size=2, max_size=12, unique=True).filter(
        lambda x: np.std(x) > 0.1
    ),
    st.floats(0, 3),
    st.floats(0.1, 2),
    st.integers(1, 20),
)
def test_seeds_to_decide_are_the_fewest_that_do(sample, std, bound, lines):
    agreement = Agreement(ours(sample) - printed(0.0, std, 5), bound)
    if judged_with(agreement, len(sample), lines) != "inconclusive":
        return
    needed = agreement.seeds_to_decide(lines)
    if needed is None:
        assert judged_with(agreement, 10**6, lines) == "inconclusive"
    else:
        assert judged_with(agreement, needed, lines) != "inconclusive"
        assert judged_with(agreement, needed - 1, lines) == "inconclusive"


def test_no_number_of_seeds_helps_where_the_papers_error_is_the_larger():
    gap = ours([1.0, 1.1, 0.9]) - printed(0.0, 10.0, 5)
    assert Agreement(gap, 2.0).seeds_to_decide() is None
    (judged,) = judge([Line("x", "0", "1", Agreement(gap, 2.0))])
    assert judged.value == "inconclusive"
    assert "no number of our seeds decides" in judged.note


def test_what_a_claim_allows_is_said_in_words_too():
    words = {0.1: "a tenth", 2 / 3: "two thirds", 3.0: "three standard errors"}
    seen = 0
    for name, claim in rules()["claims"].items():
        given = claim.get("bound", {})
        for x in given.values() if isinstance(given, dict) else [given]:
            forms = (f"{x:g}", f"{100 * x:g} %", words.get(x, f"{x:g}"))
            assert any(form in claim["test"] for form in forms), (name, x)
            seen += 1
    assert seen > 35


def test_rates_have_the_interval_of_agresti_and_caffo():
    """One success and one failure are added to each; its coverage is close to what it says."""
    agreement = counts(5, 200, 3, 50)
    a, b = 6 / 202, 4 / 52
    assert agreement.difference.value == pytest.approx(a - b)
    se = math.sqrt(a * (1 - a) / 202 + b * (1 - b) / 52)
    assert agreement.difference.se == pytest.approx(se)
    assert agreement.margin == margin("failure_rate")
    assert agreement.p == pytest.approx(stats.fisher_exact([[5, 195], [3, 47]]).pvalue)
    n = 30
    pairs = [(k, j) for k in range(n + 1) for j in range(n + 1)]
    low, high = np.array([counts(k, n, j, n).difference.interval(0.9) for k, j in pairs]).T
    first, second = np.array(pairs).T
    for p, q in [(0.05, 0.24), (0.06, 0.06), (0.3, 0.24)]:
        chance = stats.binom.pmf(first, n, p) * stats.binom.pmf(second, n, q)
        assert 0.88 < chance[(low <= p - q) & (p - q <= high)].sum() < 0.97


def apart(se: float) -> Agreement:
    return Agreement(Estimate(3.0, se, None, 5, se**2), 1.0)


def test_lines_of_an_item_are_corrected_together():
    se = 3.0 / stats.norm.isf(0.02)  # p = 0.04
    alone = judge([Line("a", "0", "3", apart(se))])
    both = judge([Line("a", "0", "3", apart(se)), Line("b", "0", "3", apart(se))])
    beside = judge([Line("a", "0", "3", apart(se)), Line("b", "9", "", "no records")])
    assert [j.value for j in alone] == ["differs"]
    assert [j.value for j in both] == ["inconclusive", "inconclusive"]
    assert [j.value for j in beside] == ["differs", "no records"]
    assert "difference +3 [" in alone[0].note
    assert "margin 1" in alone[0].note


def test_what_is_not_a_number_decides_nothing():
    nan = Agreement(Estimate(math.nan, math.nan, 4, 5, math.nan), 1.0)
    (judged,) = judge([Line("a", "0", "nan", nan)])
    assert judged.value == "inconclusive"
    assert nan.seeds_to_decide() is None


@pytest.mark.parametrize(
    ("holds", "value", "found", "verdict"),
    [
        (True, "not reported", "p = 0.01", "holds"),
        (False, "not comparable", "p = 0.5", "does not hold"),
        (None, "not reported", "one seed", "undecided"),
        (None, "no records", "", "no records"),
        (None, "not reported", "no records", "no records"),
        (True, "no records", "of one reading", "holds"),
    ],
)
def test_claims_have_words(holds, value, found, verdict):
    (judged,) = judge([Line("x", "", "", value, Claim("sva-failures", holds, found))])
    note = "" if found == "no records" else found  # the verdict has said it
    assert (judged.value, judged.claim_said, judged.note) == (value, verdict, note)


def test_a_claim_says_which_records_it_lacks():
    claim = Claim("kws-coupling", None, "elu +0.02 pp", lacks="relu")
    (judged,) = judge([Line("x", "", "", claim=claim)])
    assert (judged.claim_said, judged.note) == ("no records", "elu +0.02 pp; relu missing")
    decided = Claim("degenerate", False, "SVA 3 %", lacks="KWS")  # one part may refute the whole
    assert (decided.verdict, decided.numbers) == ("does not hold", "SVA 3 %; KWS missing")


def test_a_claim_stands_in_the_rules():
    assert Claim("sva-failures", True, "").statement.startswith("Training fails in fewer seeds")
    with pytest.raises(ValueError, match=r"'sva-luck' is no claim of rules.json. There are: kws-"):
        Claim("sva-luck", True, "")


def test_the_rules_are_whole():
    given_ = rules()
    assert given_.keys() == {
        "about",
        "committed",
        "seen_before",
        "changed",
        "levels",
        "rules",
        "margins",
        "claims",
    }
    assert all(0 < level < 1 for level in given_["levels"].values())
    for name, entry in given_["margins"].items():
        assert entry.keys() == {"value", "unit", "why"}, name
        assert isinstance(entry["value"], float), name
        assert entry["value"] >= 0, name
        assert entry["unit"], name
        assert entry["why"], name
    for name, entry in given_["claims"].items():
        assert entry.keys() - {"added", "bound"} == {"statement", "test"}, name
        assert entry["statement"].endswith("."), name
        assert entry["test"].endswith((".", ").")), name
