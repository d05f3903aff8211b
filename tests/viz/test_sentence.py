"""Labels on a circle that do not overlap."""

import doctest

import matplotlib.pyplot as plt
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lohe.viz import sentence
from lohe.viz.sentence import apart
from lohe.viz.style import ANCHOR, drawing


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


def test_a_weak_coupling_is_seen_and_both_axes_name_words_alike():
    with drawing():
        figure, (left, right) = plt.subplots(1, 2)
        sentence.circle(
            left,
            anchors=np.array([0.0, 1.0]),
            lengths=np.ones(2),
            states=np.array([0.0, 1.0]),
            couplings=np.array([1.0, 1e-6]),
            paths=np.zeros((1, 3)),
            e_folds=6,
        )
        sentence.heat(right, np.eye(2), ["once", "upon"])
        plt.close(figure)
    widths = [line.get_linewidth() for line in left.lines if line.get_color() == ANCHOR]
    assert widths[:2] == [sentence.THICK, sentence.THIN]
    for labels in (right.get_xticklabels(), right.get_yticklabels()):
        assert [label.get_text() for label in labels] == ["1 once", "2 upon"]
