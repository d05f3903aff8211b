"""Labels on a circle that do not overlap."""

import doctest

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lohe.viz import sentence
from lohe.viz.sentence import apart


@given(st.lists(st.floats(-np.pi, np.pi), min_size=2, max_size=12))
def test_labels_end_up_apart_and_in_order(angles):
    given_ = np.array(angles)
    placed = apart(given_, 0.2)
    around = np.sort(placed)
    gaps = np.diff(around, append=around[0] + 2 * np.pi)
    assert gaps.min() > 0.19
    assert np.array_equal(np.argsort(placed, kind="stable"), np.argsort(given_, kind="stable"))


def test_labels_with_room_stay():
    angles = np.array([2.0, -1.0, 0.5])
    assert np.array_equal(apart(angles, 0.2), angles)
    assert np.array_equal(apart(np.array([1.0]), 0.2), [1.0])


def test_docstring_examples():
    assert doctest.testmod(sentence) == doctest.TestResults(failed=0, attempted=1)
