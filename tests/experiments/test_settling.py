"""Three ways to count who has settled, and why the others have not."""

import math

import pytest
import torch
from invented import SMOKE, Untrained, measured

from lohe import sphere, theory
from lohe.dynamics import flow
from lohe.dynamics.settling import half_angle_tangent
from lohe.experiments.studies.settle.convergence import settling
from lohe.experiments.studies.settle.drives import AS_PUBLISHED
from lohe.experiments.studies.settle.settling import Settled, Settling, late_starts, rk45, settled

T = 30.0
ENOUGH = -math.log(half_angle_tangent(0.01)) / T  # ‖h‖ with which an equatorial start just settles
RUN = AS_PUBLISHED.run(SMOKE, 2)


def drives(norm, count, d, rng):
    """Drives of these lengths (one number: all alike) in any direction."""
    length = torch.as_tensor(norm, dtype=torch.float64).expand(count)[:, None]
    return length * sphere.uniform(count, d, generator=rng, dtype=torch.float64)


def starts(h, rng, each=5):
    return sphere.uniform(each, *h.shape, generator=rng, dtype=h.dtype)


@pytest.mark.parametrize("d", [2, 8, 32])
def test_the_flow_settles_as_often_as_the_formula_says(rng, d):
    norm = 0.01 * 1000 ** torch.rand(2000, generator=rng, dtype=torch.float64)
    h = drives(norm, 2000, d, rng)
    row = settled(starts(h, rng), h, T)
    assert 0 < row["se"] < 0.005
    assert abs(row["converged"] - row["formula"]) < 4 * row["se"]
    assert abs(row["far"] - row["formula_far"]) < 4 * row["se"]


@pytest.mark.parametrize("d", [2, 8])
def test_every_trajectory_is_of_one_kind_and_has_one_cause(rng, d):
    h = drives(torch.logspace(-3, 1, 500), 500, d, rng)
    row = settled(starts(h, rng), h, T)
    assert row["converged"] + row["near"] + row["far"] == pytest.approx(1)
    assert row["weak_drive"] + row["antipodal_start"] == pytest.approx(1 - row["converged"])


def test_a_drive_that_is_too_weak_is_to_blame_for_all_that_it_delays(rng):
    h = drives(0.99 * ENOUGH, 2000, 2, rng)
    row = settled(starts(h, rng), h, T)
    assert row["antipodal_start"] == 0
    assert row["weak_drive"] > 0.45  # the half of the circle that is farther than the equator


def test_a_drive_that_is_not_leaves_the_cap_around_the_antipode(rng):
    h = drives(1.2 * ENOUGH, 4000, 2, rng)
    z0 = starts(h, rng)
    row = settled(z0, h, T)
    cap = 2 * math.atan(math.exp(-1.2 * ENOUGH * T) / half_angle_tangent(0.01))
    assert row["weak_drive"] == 0
    assert row["formula"] == pytest.approx(1 - theory.cap_probability(cap, 2).item())
    found = late_starts(z0, h, T, 10 * T)
    assert found["late"] == round((1 - row["converged"]) * z0[..., 0].numel())
    # the cap is 38 degrees wide: all of the late ones are inside 90, and 30 of every 38 in 30
    assert found["late.within_90"] == found["late"] > 1000
    share = math.degrees(cap) / 30
    assert found["late.within_30"] * share == pytest.approx(found["late"], rel=0.05)
    assert found["late.last"] == 0
    assert math.isnan(found["late.last_angle"])


@pytest.mark.parametrize("d", [2, 32])
def test_rk45_follows_the_flow(rng, d):
    h = drives(torch.logspace(-2, 1, 12), 12, d, rng)
    z0 = starts(h, rng, each=1)[0]
    state, evaluations = rk45(z0, h, T)
    # tolerance 1e-4 a step, and starts off the antipode: a hundredth at most in the end
    assert (state - flow(z0, h, T)).norm(dim=-1).max() < 1e-2
    assert evaluations > 12 * 6


def test_a_measure_is_the_same_twice_and_has_every_layer_and_horizon(rng):
    layers = [drives(torch.logspace(-3, 0, 20), 20, 2, rng) for _ in range(2)]
    measure = Settling(RUN, starts=3, solves=60)
    found, again = measure.settle(layers), measure.settle(layers)
    assert found == again
    assert [(row["layer"], row["horizon"]) for row in found.curve] == [
        (layer, horizon) for layer in range(2) for horizon in (30, 100, 500, 1000, 5000)
    ]
    assert found.result["trajectories"] == 60
    assert found.result["norm.least"] == pytest.approx(1e-3)
    assert found.result["norm.largest"] == pytest.approx(1)
    # all of them integrated: the same oscillators from the same starts
    assert found.result["rk45.unlike_flow"] == 0
    assert found.result["rk45.converged"] == found.curve[5]["converged"]
    error = found.curve[5]["mean_error"]
    assert found.result["rk45.mean_error"] == pytest.approx(error, abs=1e-3)


def test_on_a_model(rng):
    measure = settling(SMOKE, AS_PUBLISHED, 2)
    found = Settled(measured(measure, *vars(measure.take(Untrained())).values()))
    assert found.trajectories == 2 * 2 * 49 * 4  # starts, chunks, tokens, heads
    assert len(found.layers) == 2
    assert found.at()["horizon"] == T
    assert found.agrees


@pytest.mark.parametrize(
    ("rk45_", "flow_", "agrees"),
    [(0.9, 0.9, True), (0.927, 0.9, True), (0.935, 0.9, False), (0.9, 0.9035, False)],
)
def test_three_standard_errors_decide(rk45_, flow_, agrees):
    # 900 solves at 0.9: 0.01 for a tenth of the trajectories left out, times sqrt(0.9)
    row = {"layer": 0, "horizon": T, "converged": flow_, "formula": 0.9, "se": 0.001}
    result = {"trajectories": 9000, "rk45.solves": 900, "rk45.converged": rk45_}
    one = Settled(measured(Settling(RUN), result, [row]))
    assert one.rk45[1] == pytest.approx(0.01 * math.sqrt(0.9))
    assert one.agrees is agrees
