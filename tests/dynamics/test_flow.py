"""The exact flow without natural frequencies, against ODE solvers, itself and float64."""

import inspect
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import solve_ivp
from torch.autograd import gradcheck

from lohe import sphere
from lohe.dynamics import flow
from lohe.theory import energy

DIMENSIONS = [2, 3, 8, 32]


def starts_and_drives(*shape, generator, dtype=torch.float64):
    z0 = sphere.uniform(*shape, generator=generator, dtype=dtype)
    return z0, torch.randn(shape, generator=generator, dtype=dtype)


def dop853(z0, h, t):
    """One state at time t, integrated to 12 digits."""
    h = h.numpy()
    found = solve_ivp(
        lambda _, z: h - z * (z @ h), (0, t), z0.numpy(), method="DOP853", rtol=1e-12, atol=1e-12
    )
    return torch.as_tensor(found.y[:, -1])


@st.composite
def problems(draw):
    """(z0, h, t) in float64 with lengths over many decades, starts at every angle to the drive."""
    d = draw(st.sampled_from(DIMENSIONS))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    z0, h = starts_and_drives(d, generator=generator)
    h = sphere.normalize(h) * 10 ** draw(st.floats(-6, 6))
    toward = draw(st.sampled_from([0.0, 1.0, -1.0, -1e6, -1e12]))
    z0 = sphere.normalize(z0 + toward * sphere.normalize(h))
    return z0, h, 10 ** draw(st.floats(-6, 6))


@pytest.mark.parametrize("d", DIMENSIONS)
@pytest.mark.parametrize("t", [0.01, 1.0, 10.0])
def test_agrees_with_dop853(d, t, rng):
    z0, h = starts_and_drives(5, d, generator=rng)
    expected = torch.stack([dop853(z0[k], h[k], t) for k in range(5)])
    assert (flow(z0, h, t) - expected).abs().max() < 1e-9


@given(problems())
def test_state_stays_on_the_sphere(problem):
    assert abs(flow(*problem).norm() - 1) < 1e-14


@given(problems())
def test_energy_never_rises(problem):  # Theorem 3
    z0, h, t = problem
    assert energy(flow(z0, h, t), h) <= energy(z0, h) + 1e-14 * h.norm()


@given(problems(), st.floats(0, 1))
def test_time_composes(problem, part):
    # flow for s, then for t - s; rounding in between is amplified by up to e^(‖h‖(t - s))
    z0, h, t = problem
    t = min(t, 10 / h.norm().item())
    halfway = flow(z0, h, part * t)
    torch.testing.assert_close(
        flow(halfway, h, t - part * t), flow(z0, h, t), rtol=0, atol=1e-15 * math.exp(10)
    )


@given(problems(), st.floats(1e-3, 1e3))
def test_strength_and_time_are_one_thing(problem, c):
    z0, h, t = problem
    # near the antipode the last digits of c h decide, up to e^(‖h‖t)
    tolerance = 1e-14 * math.exp(min(30.0, h.norm().item() * c * t))
    torch.testing.assert_close(flow(z0, c * h, t), flow(z0, h, c * t), rtol=0, atol=tolerance)


@pytest.mark.parametrize("d", DIMENSIONS)
def test_half_angle_law(d, rng):  # tan(θ/2) = tan(θ₀/2) exp(-‖h‖t)
    z0, h = starts_and_drives(100, d, generator=rng)
    z_star = sphere.normalize(h)
    law = torch.tan(sphere.angle(z0, z_star) / 2) * torch.exp(-0.7 * h.norm(dim=-1))
    torch.testing.assert_close(torch.tan(sphere.angle(flow(z0, h, 0.7), z_star) / 2), law)


@pytest.mark.parametrize("e_folds", [10.0**k for k in range(-6, 7)])
@pytest.mark.parametrize("off_antipode", [None, 1e-1, 1e-3])
def test_float32_loses_only_its_last_digits(e_folds, off_antipode, rng):
    z0, h = starts_and_drives(500, 3, generator=rng, dtype=torch.float32)
    z_star = sphere.normalize(h)
    if off_antipode is not None:
        side = sphere.normalize(sphere.tangent(z_star, z0))
        z0 = sphere.normalize(-z_star + off_antipode * side)
    t = e_folds / h.norm(dim=-1)
    error = (flow(z0, h, t) - flow(z0.double(), h.double(), t.double())).norm(dim=-1)
    # z0 + z* carries the rounding of its terms, so tan(θ/2) is uncertain by ε/‖z0 + z*‖
    eps = torch.finfo(torch.float32).eps
    assert (error < 4 * eps * (1 + 1 / (z0 + z_star).norm(dim=-1))).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("e_folds", [1e-6, 1.0, 30.0, 1e3, 1e6])
def test_start_on_the_antipode_stays(e_folds, dtype, rng):
    h = torch.randn(50, 8, generator=rng, dtype=dtype)
    z0 = -sphere.normalize(h)
    torch.testing.assert_close(flow(z0, h, e_folds / h.norm(dim=-1)), z0)


def test_start_a_hair_off_the_antipode_leaves():
    z0 = torch.tensor([-1.0, 1e-18])  # 41 e-folds away from the equator, in float32
    h = torch.tensor([2.0, 0.0])
    time_to_equator = math.log(2e18) / 2
    torch.testing.assert_close(
        flow(z0, h, time_to_equator), torch.tensor([0.0, 1.0]), atol=1e-5, rtol=0
    )
    torch.testing.assert_close(flow(z0, h, 40.0), torch.tensor([1.0, 0.0]))


@pytest.mark.parametrize("t", [1e-6, 1.0, 1e6])
def test_nothing_moves_without_a_drive(t, rng):
    z0 = sphere.uniform(10, 3, generator=rng)
    torch.testing.assert_close(flow(z0, torch.zeros(3), t), z0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_rounded_once_at_the_end(dtype, rng):
    z0, h = (x.to(dtype) for x in starts_and_drives(50, 3, generator=rng))
    z = flow(z0, h, 1.2345)
    assert z.dtype == dtype
    assert torch.equal(z, flow(z0.float(), h.float(), 1.2345).to(dtype))


def test_time_has_the_digits_of_the_widest(rng):
    z0, h = starts_and_drives(50, 3, generator=rng)
    h = h.float()
    still = torch.zeros(3, 3)
    exact = flow(z0, h.double(), 0.1)
    torch.testing.assert_close(flow(z0, h, 0.1), exact, rtol=0, atol=1e-14)
    torch.testing.assert_close(flow(z0, h, 0.1, still), exact, rtol=0, atol=1e-14)


def test_whole_numbers_are_numbers():
    z0, h, quarter = torch.tensor([0, 1]), torch.tensor([2, 0]), torch.tensor([[0, -1], [1, 0]])
    ask = inspect.unwrap(flow)  # past the tests' own checks of dtypes
    torch.testing.assert_close(ask(z0, h, 0.5), flow(z0.float(), h.float(), 0.5))
    turned = flow(z0.float(), h.float(), 0.5, quarter.float())
    torch.testing.assert_close(ask(z0, h, 0.5, quarter), turned)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_no_start_and_no_drive_is_no_state_and_no_gradient(dtype, rng):  # a fully masked sequence
    h = torch.stack([torch.zeros(3, dtype=dtype), torch.ones(3, dtype=dtype)]).requires_grad_()
    z = flow(sphere.normalize(h), h, 3.0)
    (gradient,) = torch.autograd.grad(z.sum(), h)
    assert torch.equal(z[0], torch.zeros(3, dtype=dtype))
    assert torch.equal(gradient[0], torch.zeros(3, dtype=dtype))
    assert gradient.isfinite().all()


def test_arguments_broadcast(rng):
    z0, h = starts_and_drives(4, 1, 3, generator=rng)[0], torch.randn(5, 3, dtype=torch.float64)
    z = flow(z0, h, torch.linspace(0, 2, 5, dtype=torch.float64))
    assert z.shape == (4, 5, 3)
    torch.testing.assert_close(z[2, 3], flow(z0[2, 0], h[3], 1.5))


# --- gradients -----------------------------------------------------------------------------------


def unit_flow(x, h, t):
    """The flow as a function of any x, so that finite differences stay on the sphere."""
    return flow(sphere.normalize(x), h, t)


@pytest.mark.parametrize("t", [1e-3, 0.5, 1.5, 8.0])
@pytest.mark.parametrize("d", [2, 5])
def test_gradient(t, d, rng):
    z0, h = starts_and_drives(3, d, generator=rng)
    time = torch.full((3,), t, dtype=torch.float64)
    assert gradcheck(unit_flow, [a.requires_grad_() for a in (z0, h, time)])


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("t", [0.1, 0.6, 3.0])
def test_gradient_on_the_equilibria(sign, t):
    h = torch.tensor([0.6, -1.2, 0.9], dtype=torch.float64)
    z0 = sign * sphere.normalize(h)
    time = torch.tensor(t, dtype=torch.float64)
    assert gradcheck(unit_flow, [a.requires_grad_() for a in (z0, h, time)], atol=1e-4)


def test_gradient_without_a_drive(rng):  # dz/dh = t (I - zzᵀ)
    z0 = sphere.uniform(3, generator=rng, dtype=torch.float64)
    h = torch.zeros(3, dtype=torch.float64)
    slope = torch.func.jacrev(lambda h: flow(z0, h, 2.5))(h)
    torch.testing.assert_close(slope, 2.5 * (torch.eye(3) - torch.outer(z0, z0)))


@pytest.mark.parametrize("e_folds", [1e-6, 1e-3, 1e-1])
def test_gradient_keeps_its_digits_in_float32(e_folds, rng):
    z0, h = starts_and_drives(3, generator=rng, dtype=torch.float32)
    t = e_folds / h.norm().item()
    slope = torch.func.jacrev(lambda h: flow(z0, h, t))(h)
    exact = torch.func.jacrev(lambda h: flow(z0.double(), h, t))(h.double())
    torch.testing.assert_close(slope, exact.float(), rtol=1e-5, atol=1e-6 * t)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("e_folds", [0.0, 1e-6, 1.0, 90.0, 1e3, 1e6])
@pytest.mark.parametrize("place", ["anywhere", "rest", "antipode", "no drive"])
def test_gradients_are_finite_everywhere(place, e_folds, dtype, rng):
    z0, h = starts_and_drives(20, 3, generator=rng, dtype=dtype)
    t = (e_folds / h.norm(dim=-1)).requires_grad_()
    if place == "no drive":
        h = torch.zeros_like(h)
    z0 = (
        {"rest": 1, "antipode": -1}[place] * sphere.normalize(h)
        if place in ("rest", "antipode")
        else z0
    )
    z = flow(z0.requires_grad_(), h.requires_grad_(), t)
    weights = torch.randn(z.shape, generator=rng, dtype=dtype)
    for gradient in torch.autograd.grad((z * weights).sum(), (z0, h, t)):
        assert gradient.isfinite().all()


def test_backward_in_time_is_refused():
    with pytest.raises(ValueError, match=r"forward in time, got t=-1.0.*flow\(z0, -h"):
        flow(torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0]), -1.0)


@pytest.mark.parametrize("t", [-1.0, math.nan])
def test_backward_in_time_is_refused_in_tensors_too(t):
    z0, h = torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])
    with pytest.raises(ValueError, match=rf"forward in time, got t={t}.*flow\(z0, -h"):
        flow(z0, h, torch.tensor([1.0, t]))


def test_time_may_be_mapped_over(rng):
    z0, h = starts_and_drives(3, generator=rng)
    t = torch.linspace(0, 2, 5, dtype=torch.float64)
    mapped = torch.vmap(lambda t: flow(z0, h, t))(t)
    torch.testing.assert_close(mapped, flow(z0, h, t), rtol=0, atol=0)


def test_another_sphere_and_a_number_for_a_frequency_are_refused():
    z0, h = torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])
    ask = inspect.unwrap(flow)  # past the tests' own checks of shapes
    with pytest.raises(ValueError, match=r"one sphere.*got shapes \(2,\) and \(3,\)"):
        ask(z0, torch.zeros(3), 1.0)
    with pytest.raises(ValueError, match=r"skew-symmetric tensor .* got 0.3. On the circle"):
        ask(z0, h, 1.0, frequency=0.3)


def test_frequencies_of_another_sphere_and_no_time_at_all_are_refused():
    z0, h = torch.tensor([0.0, 1.0]), torch.tensor([2.0, 0.0])
    with pytest.raises(ValueError, match=r"\(..., 2, 2\); got shape \(3, 3\)"):
        inspect.unwrap(flow)(z0, h, 1.0, torch.zeros(3, 3))
    with pytest.raises(ValueError, match="forward in time, got t=nan"):
        flow(z0, h, math.nan)


def test_example_of_the_docstring():
    z = flow(torch.tensor([0.0, 1.0]), torch.tensor([2.0, 0.0]), 0.5)
    np.testing.assert_allclose(z, [math.tanh(1), 1 / math.cosh(1)], rtol=1e-6)


def test_all_of_time():  # also beside an oscillator that nothing drives
    z0 = torch.tensor([[0.6, 0.8], [0.6, 0.8]], requires_grad=True)
    h = torch.tensor([[0.0, 2.0], [0.0, 0.0]], requires_grad=True)
    z = flow(z0, h, math.inf)
    torch.testing.assert_close(z, torch.tensor([[0.0, 1.0], [0.6, 0.8]]))
    for slope in torch.autograd.grad(z[:, 0].sum(), (z0, h)):
        assert slope.isfinite().all()
