"""Rayleigh's test against the distribution it is about: steps of length one, n of them."""

import math

import numpy as np
import pytest

from lohe.measure.circular import rayleigh, resultant


def test_turning_all_directions_changes_nothing():
    angles = [0.1, 0.5, 2.0, 3.0]
    assert resultant([a + 1.3 for a in angles]) == pytest.approx(resultant(angles))
    assert rayleigh([a + 1.3 for a in angles]) == pytest.approx(rayleigh(angles))


def test_a_regular_polygon_balances():
    polygon = [2 * math.pi * k / 9 for k in range(9)]
    assert resultant(polygon) == pytest.approx(0, abs=1e-12)
    assert rayleigh(polygon) == pytest.approx(1, abs=0.02)


def test_nine_uniform_directions_are_rejected_as_often_as_the_level_says():
    rng = np.random.default_rng(0)
    p = np.array([rayleigh(row) for row in rng.uniform(0, 2 * np.pi, (20_000, 9)).tolist()])
    for level in (0.01, 0.05, 0.1, 0.5):
        error = math.sqrt(level * (1 - level) / len(p))
        assert np.mean(p < level) == pytest.approx(level, abs=4 * error + 0.03 * level)


def test_a_preferred_direction_is_found():
    rng = np.random.default_rng(0)
    p = [rayleigh(row) for row in rng.vonmises(1.0, 2.0, (200, 9)).tolist()]
    assert np.mean(np.array(p) < 0.05) > 0.8
    assert rayleigh([0.7] * 9) < 1e-5


def test_an_unknown_direction_is_not_uniform():
    assert math.isnan(rayleigh([math.nan, 1.0]))
