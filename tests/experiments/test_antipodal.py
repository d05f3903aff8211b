"""Figure 2: draws from the sphere against Eq. 10, and draws from elsewhere."""

import numpy as np
import pytest
import torch
from invented import Untrained, claims, evidence, measured

from lohe.experiments.studies import antipodal
from lohe.experiments.studies.antipodal import CapFractions, chi_square, deviations, expected
from lohe.viz.style import drawing

ITEM = antipodal.ITEMS["figure2"]


@pytest.fixture
def bench():
    return Untrained()


@pytest.fixture
def taken(bench):
    measure = CapFractions()
    findings = measure.take(bench)
    return evidence([measured(measure, findings.result, findings.curve)])


@pytest.mark.parametrize("d", antipodal.DIMENSIONS)
def test_the_expected_counts_do_not_deviate(d):
    samples = 10**6
    within = samples * expected(50, d)
    assert np.abs(deviations(within, samples, d)).max() < 1e-9
    statistic, cells, p = chi_square(np.round(within).astype(int), samples, d)
    assert statistic < 0.1 * cells
    assert p > 0.99


def test_chi_square_is_uniform_for_uniform_starts(bench):
    # 40 samples of 6 dimensions: p below 5 % in about 5 % of them (12 ± 3.4)
    ps = []
    for seed in range(40):
        curve = CapFractions(samples=500, angles=20, seed=seed).take(bench).curve
        ps += [row["p"] for row in curve]
    assert 2 < sum(p < 0.05 for p in ps) < 26
    assert 0.42 < np.mean(ps) < 0.58


def test_another_dimension_is_told_apart(bench):
    rows = CapFractions().take(bench).curve
    four = np.array(next(row["within"] for row in rows if row["d_osc"] == 4))
    assert chi_square(four, 1000, 4)[2] > 0.01
    for other in (2, 8):
        assert chi_square(four, 1000, other)[2] < 1e-6
        assert np.abs(deviations(four, 1000, other)).max() > 4.5


def test_the_measure_is_the_papers(bench):
    findings = CapFractions().take(bench)
    assert [row["d_osc"] for row in findings.curve] == [2, 4, 8, 16, 32, 64]
    assert all(len(row["within"]) == 50 for row in findings.curve)
    assert all(row["within"] == sorted(row["within"]) for row in findings.curve)
    assert antipodal.grid(50)[0] == 0.01
    assert antipodal.grid(50)[-1] == pytest.approx(torch.pi / 2)


def test_the_claim_is_decided_by_the_largest_deviation(taken):
    lines = ITEM.lines(taken)
    assert claims(lines) == {("antipodal", ""): True}
    assert len(lines) == 7
    off = measured(CapFractions(), {}, [dict(row) for row in taken.measured(CapFractions()).curve])
    off.curve[2]["largest_deviation"] = 4.6
    assert claims(ITEM.lines(evidence([off]))) == {("antipodal", ""): False}


def test_the_table_has_a_row_a_dimension(taken):
    assert len(antipodal.table(taken).rows) == 6


@pytest.mark.parametrize("there", [True, False])
def test_the_figure_has_a_line_a_dimension(taken, there):
    with drawing():
        figure = antipodal.figure_2(taken if there else evidence())
    (ax,) = figure.axes
    drawn = [line for line in ax.lines if line.get_marker() == "o"]
    assert len(drawn) == (6 if there else 0)
    assert len(ax.get_legend_handles_labels()[1]) == 6
