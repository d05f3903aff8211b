"""False alarms against scipy's Welch and against counting."""

import math
from itertools import combinations

import pytest
from scipy import stats

from lohe.experiments.reported import published
from lohe.measure.significance import welch_false_alarms

LUMPS = [97.0 + k / 10 for k in range(9)] + [75.0, 75.5, 76.0]


@pytest.mark.parametrize("size", [2, 3, 4])
def test_false_alarms_are_counted_over_all_subsets(size):
    found = []
    for chosen in combinations(range(len(LUMPS)), size):
        a = [LUMPS[n] for n in chosen]
        b = [x for n, x in enumerate(LUMPS) if n not in chosen]
        found.append(stats.ttest_ind(a, b, equal_var=False).pvalue < 0.05)
    assert welch_false_alarms(LUMPS, size) == pytest.approx(sum(found) / len(found))


def test_two_heaps_without_spread_are_told_apart():
    # of the 20 halves two are the heaps themselves; the others have one stray value each, t = 1/√2
    assert welch_false_alarms([0.1, 0.1, 0.1, 0.7, 0.7, 0.7], 3) == 2 / 20


@pytest.mark.parametrize("value", [0.0, 0.1, 1e6 / 3])
def test_equal_values_raise_no_alarm(value):
    assert welch_false_alarms([value] * 7, 3) == 0


@pytest.mark.parametrize(
    ("mechanism", "metric", "rate"),
    [
        ("softmax", "overall", 0.28),
        ("softmax", "hard", 0.28),
        ("oscillator", "overall", 0.49),
        ("oscillator", "hard", 0.21),
    ],
)
def test_welch_cannot_judge_three_seeds_of_table_2(mechanism, metric, rate):
    values = published("table2")["per_seed"][mechanism][metric]
    assert welch_false_alarms(values, 3) == pytest.approx(rate, abs=0.01)


@pytest.mark.parametrize(("values", "size"), [([1.0, 2.0, 3.0], 2), (LUMPS, 1), ([0.0] * 60, 30)])
def test_subsets_must_be_countable(values, size):
    with pytest.raises(ValueError, match="subsets"):
        welch_false_alarms(values, size)


def test_a_value_that_is_not_known_is_no_absence_of_alarms():
    assert math.isnan(welch_false_alarms([1.0, 2.0, 3.0, 4.0, math.nan], 2))
