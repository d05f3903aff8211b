"""Settling times and probabilities in closed form, against the flow they are closed forms of."""

import math

import pytest
import torch

from lohe import sphere
from lohe.dynamics import (
    Cause,
    Convergence,
    convergence,
    failure_cause,
    flow,
    settling_error,
    settling_time,
    unsettled_probability,
)


def population(n, d, generator):
    """Uniform starts; drives whose lengths spread over three decades."""
    z0 = sphere.uniform(n, d, generator=generator, dtype=torch.float64)
    norm = 10 ** (3 * torch.rand(n, 1, generator=generator, dtype=torch.float64) - 2)
    return z0, norm * sphere.uniform(n, d, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("d", [2, 8])
@pytest.mark.parametrize("tolerance", [1e-4, 0.01, 0.5, 1.9])
def test_at_the_settling_time_the_error_is_the_tolerance(d, tolerance, rng):
    z0, h = population(200, d, rng)
    time = settling_time(z0, h, tolerance)
    late = settling_error(z0, h) > tolerance
    assert late.any()
    error = settling_error(flow(z0, h, time), h)
    torch.testing.assert_close(
        error[late], torch.full_like(error[late], tolerance), rtol=1e-9, atol=0
    )
    assert (time[~late] == 0).all()


def test_settling_never_happens_on_the_antipode_or_without_a_drive():
    h = torch.tensor([[3.0, 4.0], [0.0, 0.0]])
    z0 = torch.tensor([[-0.6, -0.8], [0.0, 1.0]])
    assert (settling_time(z0, h, 0.01) == math.inf).all()
    torch.testing.assert_close(settling_error(z0, h), torch.tensor([2.0, 1.0]))


def test_settled_from_the_start():
    h = torch.tensor([3.0, 4.0])
    assert settling_time(h / 5, h, 0.01) == 0


def test_settling_times_have_gradients_or_none():
    # at rest, on the antipode, without a drive, and on the way
    h = torch.tensor([[3.0, 4.0], [3.0, 4.0], [0.0, 0.0], [2.0, 0.0]], requires_grad=True)
    z0 = torch.tensor([[0.6, 0.8], [-0.6, -0.8], [0.0, 1.0], [0.0, 1.0]], requires_grad=True)
    time = settling_time(z0, h, 0.01)
    slopes = torch.autograd.grad(time[time.isfinite()].sum(), (z0, h))
    assert all(slope.isfinite().all() for slope in slopes)
    assert all((slope[:3] == 0).all() for slope in slopes)
    assert slopes[1][3, 0].item() == pytest.approx(-math.log(200) / 4, rel=1e-5)  # log(200)/h


@pytest.mark.parametrize("norm", [1e-25, 1e25])
def test_settling_under_drives_whose_square_float32_cannot_hold(norm):
    z0, h = torch.tensor([0.0, 1.0]), torch.tensor([norm, 0.0])
    assert settling_time(z0, h, 0.01).item() * norm == pytest.approx(math.log(200), rel=1e-5)
    late = failure_cause(torch.tensor([-1.0, 1e-3]), h, horizon=6 / norm)
    assert late == Cause.ANTIPODAL_START
    assert failure_cause(z0, h, horizon=5 / norm) == Cause.WEAK_DRIVE


@pytest.mark.parametrize("d", [2, 3, 8, 32])
def test_unsettled_probability_is_the_fraction_of_late_starts(d, rng):
    n, horizon, tolerance = 200_000, 4.0, 0.3
    z0 = sphere.uniform(n, d, generator=rng, dtype=torch.float64)
    for norm in (0.2, 0.5, 0.8):
        h = torch.zeros(d, dtype=torch.float64)
        h[0] = norm
        late = settling_error(flow(z0, h, horizon), h) >= tolerance
        p = unsettled_probability(norm, horizon, tolerance, d).item()
        assert abs(late.double().mean().item() - p) < 5 * math.sqrt(p * (1 - p) / n) + 1e-9


def test_unsettled_probability_over_measured_norms_is_the_failure_rate(rng):
    # what predicts Table 6: the mean over ‖h‖, no integration
    z0, h = population(100_000, 2, rng)
    p = unsettled_probability(h.norm(dim=-1), 30.0, 0.01, 2)
    late = settling_time(z0, h, 0.01) > 30.0
    assert p.shape == (100_000,)
    assert abs(late.double().mean() - p.mean()) < 5 * 0.5 / math.sqrt(len(p))


def test_under_next_to_no_drive_nothing_settles_that_has_not():
    # as ‖h‖T -> 0 the late starts are those outside the tolerance's own cap
    p = unsettled_probability(1e-300, 30.0, 0.01, 3).item()
    torch.testing.assert_close(p, 1 - (0.01 / 2) ** 2)  # area of a cap on S²


@pytest.mark.parametrize("horizon", [0.0, 30.0, math.inf])
def test_without_a_drive_there_is_nothing_to_settle_to(horizon):
    assert unsettled_probability(0.0, horizon, 0.01, 3) == 1
    assert unsettled_probability(torch.tensor([0.0, 1.0]), horizon, 1.9, 2)[0] == 1


def test_unsettled_probability_of_a_drive_that_is_learned():
    norm = torch.tensor([0.2, 0.5], requires_grad=True)
    p = unsettled_probability(norm, 30.0, 0.01, 2)
    assert not p.requires_grad
    assert torch.equal(p, unsettled_probability(norm.detach(), 30.0, 0.01, 2))


def test_classes_of_the_paper():
    error = torch.tensor([0.0, 0.0099, 0.01, 0.05, 0.1, 0.11, 2.0, math.nan])
    expected = [Convergence.CONVERGED] * 2 + [Convergence.NEAR_THRESHOLD] * 3
    expected += [Convergence.APPARENTLY_ANTIPODAL] * 3
    assert convergence(error).tolist() == expected


@pytest.mark.parametrize(
    ("degrees", "norm", "cause"),
    [
        (10, 1.0, Cause.SETTLED),
        (90, 0.18, Cause.SETTLED),  # log(200) / 30 = 0.1766
        (90, 0.17, Cause.WEAK_DRIVE),
        (179.9, 0.18, Cause.ANTIPODAL_START),
        (179.9, 0.17, Cause.WEAK_DRIVE),
        (180, 1e-3, Cause.WEAK_DRIVE),
        (10, 0.0, Cause.WEAK_DRIVE),
    ],
)
def test_cause_of_failure(degrees, norm, cause):
    theta = math.radians(degrees)
    z0 = torch.tensor([math.cos(theta), math.sin(theta)], dtype=torch.float64)
    h = torch.tensor([norm, 0.0], dtype=torch.float64)
    assert failure_cause(z0, h, horizon=30.0) == cause


@pytest.mark.parametrize("tolerance", [0.01, math.sqrt(2), 1.9])
def test_without_a_drive_the_drive_is_to_blame(tolerance):
    z0, h = torch.tensor([1.0, 0.0]), torch.zeros(2)
    assert failure_cause(z0, h, 30.0, tolerance) == Cause.WEAK_DRIVE


def test_cause_on_the_antipode_itself():
    h = torch.tensor([3.0, 4.0])
    assert failure_cause(-sphere.normalize(h), h, horizon=30.0) == Cause.ANTIPODAL_START


def test_causes_and_classes_tell_one_story(rng):
    z0, h = population(5000, 2, rng)
    cause = failure_cause(z0, h, horizon=30.0)
    converged = convergence(settling_error(flow(z0, h, 30.0), h)) == Convergence.CONVERGED
    assert torch.equal(converged, cause == Cause.SETTLED)
    blamed = sphere.angle(z0, sphere.normalize(h))[cause == Cause.ANTIPODAL_START]
    assert len(blamed) > 10
    assert blamed.min() > math.pi / 2


@pytest.mark.parametrize("tolerance", [0.0, -0.1, 2.0, math.nan])
def test_tolerance_is_a_chord(tolerance):
    h = torch.tensor([1.0, 0.0])
    with pytest.raises(ValueError, match=r"distance between points .* got .* between 0 and 2"):
        settling_time(h, h, tolerance)
    with pytest.raises(ValueError, match="between 0 and 2"):
        unsettled_probability(1.0, 30.0, tolerance, 2)


@pytest.mark.parametrize(
    "wrong", [{"norm": -1.0}, {"horizon": -1.0}, {"horizon": float("nan")}, {"d_osc": 1}]
)
def test_no_probability_of_nonsense(wrong):
    asked = {"norm": 0.5, "horizon": 30.0, "tolerance": 0.01, "d_osc": 2} | wrong
    with pytest.raises(ValueError, match="a norm >= 0, a horizon is >= 0 and d_osc at least 2"):
        unsettled_probability(**asked)
