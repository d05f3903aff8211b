"""Smoothing a histogram for a violin loses nothing and leaks nowhere."""

import numpy as np
import pytest

from lohe.viz.violins import smoothed


@pytest.mark.parametrize("peak", [0, 1, 20, 39])
def test_smoothing_keeps_the_total_and_the_place(peak):
    counts = np.zeros(40)
    counts[peak] = 7
    found = smoothed(counts)
    assert found.sum() == pytest.approx(7)
    assert abs(int(found.argmax()) - peak) <= 1
    assert (found >= 0).all()


def test_a_flat_histogram_stays_flat():
    assert smoothed(np.full(50, 3)) == pytest.approx(np.full(50, 3.0), abs=1e-9)
