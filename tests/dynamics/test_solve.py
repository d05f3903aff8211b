"""Solvers: they converge at their order to the exact flow, and say so when they do not arrive."""

import math
import sys

import pytest
import torch

from lohe import sphere
from lohe.dynamics import (
    Euler,
    Scipy,
    Status,
    Torchode,
    fixed_query,
    flow,
    kuramoto,
    lohe,
    solve,
)

ADAPTIVE = [
    (Torchode("heun"), 2),
    (Torchode("dopri5"), 5),
    (Torchode("tsit5"), 5),
    (Scipy("RK45"), 5),
    (Scipy("DOP853"), 8),
]


def starts_and_drives(*shape, generator):
    z0 = sphere.uniform(*shape, generator=generator, dtype=torch.float64)
    return z0, torch.randn(shape, generator=generator, dtype=torch.float64)


def tightened(solver, tolerance):
    return type(solver)(solver.method, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    "solver",
    [Torchode(rtol=1e-9, atol=1e-9), Scipy(rtol=1e-9, atol=1e-9), Scipy("DOP853", 1e-9, 1e-9)],
    ids=repr,
)
def test_agrees_with_the_exact_flow(solver, rng):
    z0, h = starts_and_drives(2, 3, 4, generator=rng)
    solution = solve(lambda t, z: fixed_query(z, h), z0, 3.0, solver)
    assert solution.succeeded
    assert solution.failures() == {}
    assert solution.state.shape == z0.shape
    assert solution.status.shape == solution.steps.shape == solution.evaluations.shape == (2, 3)
    assert (solution.state - flow(z0, h, 3.0)).abs().max() < 1e-7


@pytest.mark.parametrize("project", [None, sphere.normalize])
def test_euler_has_order_one(project, rng):
    z0, h = starts_and_drives(10, 3, generator=rng)
    errors = [
        (solve(lambda t, z: fixed_query(z, h), z0, 1.0, Euler(s, project)).state - flow(z0, h, 1.0))
        .norm()
        .item()
        for s in (0.01, 0.005)
    ]
    assert 0.9 < math.log2(errors[0] / errors[1]) < 1.1


def test_euler_lands_on_the_horizon(rng):  # 0.3 does not divide 1
    solution = solve(lambda t, z: torch.ones_like(z), torch.zeros(4, 2), 1.0, Euler(0.3))
    torch.testing.assert_close(solution.state, torch.ones(4, 2))
    assert solution.steps.tolist() == [4] * 4


@pytest.mark.parametrize(("solver", "order"), ADAPTIVE, ids=lambda x: getattr(x, "method", x))
def test_observed_order(solver, order, rng):
    # error ~ steps^-order as the tolerance falls
    z0, h = starts_and_drives(3, generator=rng)
    tolerances = (1e-4, 1e-6) if order == 2 else (1e-6, 1e-11)
    error, steps = [], []
    for tolerance in tolerances:
        solution = solve(lambda t, z: fixed_query(z, h), z0, 5.0, tightened(solver, tolerance))
        error.append((solution.state - flow(z0, h, 5.0)).norm().item())
        steps.append(solution.steps.item())
    observed = math.log(error[0] / error[1]) / math.log(steps[1] / steps[0])
    assert order - 0.7 < observed < order + 1.5


@pytest.mark.parametrize("solver", [Torchode(rtol=1e-8, atol=1e-8), Scipy(rtol=1e-8, atol=1e-8)])
def test_mutually_coupled_oscillators_share_a_clock(solver, rng):
    # Eq. 1 on the circle and Kuramoto phases reach the same place; a state has two axes, and one
    phase = torch.randn(2, 5, generator=rng, dtype=torch.float64)
    couplings = torch.rand(2, 5, 5, generator=rng, dtype=torch.float64)
    x = torch.stack([phase.cos(), phase.sin()], dim=-1)
    on_sphere = solve(lambda t, x: lohe(x, couplings), x, 2.0, solver, state_axes=2)
    in_phase = solve(lambda t, theta: kuramoto(theta, couplings), phase, 2.0, solver)
    assert on_sphere.status.shape == in_phase.status.shape == (2,)
    expected = torch.stack([in_phase.state.cos(), in_phase.state.sin()], dim=-1)
    torch.testing.assert_close(on_sphere.state, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("solver", [Torchode(rtol=1e-8), Scipy(rtol=1e-8), Euler(1e-4)])
def test_the_field_sees_time(solver):
    rate = torch.tensor([[1.0], [2.0], [3.0]], dtype=torch.float64)
    z0 = torch.zeros(3, 2, dtype=torch.float64)
    solution = solve(lambda t, z: (rate * torch.cos(t)).expand_as(z), z0, 2.0, solver)
    torch.testing.assert_close(
        solution.state, rate.expand(3, 2) * math.sin(2.0), rtol=1e-4, atol=1e-6
    )


def test_gradient_through_torchode_is_that_of_the_flow(rng):
    z0, h = starts_and_drives(4, 3, generator=rng)
    weights = torch.randn(4, 3, generator=rng, dtype=torch.float64)
    h.requires_grad_()
    tight = Torchode(rtol=1e-10, atol=1e-10)
    solved = solve(lambda t, z: fixed_query(z, h), z0, 1.0, tight).state
    (numeric,) = torch.autograd.grad((solved * weights).sum(), h)
    (exact,) = torch.autograd.grad((flow(z0, h, 1.0) * weights).sum(), h)
    torch.testing.assert_close(numeric, exact, rtol=1e-6, atol=1e-8)


def test_gradient_through_torchode_at_rest(rng):  # no drive, or a start on the fixed point
    z0 = torch.tensor([[0.6, 0.8], [1.0, 0.0]], dtype=torch.float64)
    h = torch.tensor([[0.0, 0.0], [1.0, 0.0]], dtype=torch.float64, requires_grad=True)
    solved = solve(lambda t, z: fixed_query(z, h), z0, 1.0, Torchode()).state
    (numeric,) = torch.autograd.grad(solved[:, 1].sum(), h)
    (exact,) = torch.autograd.grad(flow(z0, h, 1.0)[:, 1].sum(), h)
    torch.testing.assert_close(numeric, exact, rtol=0, atol=1e-3)


SOLVERS = [Torchode(), Scipy(), Euler()]


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("shape", [(2, 5), (5, 1), (5, 2)])
def test_coupled_oscillators_are_not_taken_for_trajectories(solver, shape, rng):
    # Eq. 1 over the last axis of the batch, and over the first
    x = sphere.uniform(*shape, 3, generator=rng)
    w = torch.rand(5, 5, generator=rng)
    along = shape.index(5)
    field = lambda t, x: lohe(x.movedim(along, -2), w).movedim(-2, along)  # noqa: E731
    with pytest.raises(ValueError, match=r"state_axes=1 .* trajectories .* state_axes=2"):
        solve(field, x, 2.0, solver)


def test_independence_is_seen_in_two_evaluations_and_leaves_no_trace(rng):
    z0, h = (x.requires_grad_() for x in starts_and_drives(4, 3, generator=rng))
    seen = []
    field = lambda t, z: seen.append(t) or t * fixed_query(z, h)  # noqa: E731
    state = solve(field, z0, 1.0, Euler(0.5)).state
    assert len(seen) == 2 + 2
    expected = z0
    for t in (0.0, 0.5):
        expected = expected + 0.5 * t * fixed_query(expected, h)
    assert torch.equal(state, expected)
    slopes = (torch.autograd.grad(x.square().sum(), (z0, h)) for x in (state, expected))
    assert all(torch.equal(a, b) for a, b in zip(*slopes, strict=True))


def test_a_field_may_be_a_gradient(rng):  # of the energy, by autograd in every call
    z0, h = starts_and_drives(4, 3, generator=rng)

    def field(t, z):
        z = z.requires_grad_()
        (slope,) = torch.autograd.grad((z * h).sum(), z)
        return sphere.tangent(z, slope).detach()

    tight = Torchode(rtol=1e-9, atol=1e-9)
    assert (solve(field, z0, 2.0, tight).state - flow(z0, h, 2.0)).abs().max() < 1e-7


def test_euler_may_be_mapped_over(rng):
    z0, h = starts_and_drives(2, 4, 3, generator=rng)
    ask = lambda z, h: solve(lambda t, z: fixed_query(z, h), z, 1.0, Euler()).state  # noqa: E731
    torch.testing.assert_close(torch.vmap(ask)(z0, h), ask(z0, h), rtol=0, atol=0)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("shape", [(0, 3), (2, 0, 3)])
def test_no_trajectories_are_no_work(solver, shape):
    solution = solve(lambda t, z: z, torch.zeros(shape), 1.0, solver)
    assert solution.state.shape == shape
    assert solution.status.shape == solution.steps.shape == solution.evaluations.shape == shape[:-1]
    assert solution.succeeded


def test_scipy_takes_half_precision(rng):
    z0, h = (x.bfloat16() for x in starts_and_drives(2, 3, generator=rng))
    solution = solve(lambda t, z: fixed_query(z, h), z0, 0.1, Scipy(rtol=1e-2, atol=1e-2))
    assert solution.succeeded
    assert solution.state.dtype == torch.bfloat16
    torch.testing.assert_close(solution.state, flow(z0, h, 0.1), rtol=0, atol=0.02)


# --- failures ------------------------------------------------------------------------------------


def test_torchode_out_of_steps_is_no_success():
    # the second trajectory is 10,000 times stiffer than the first, which arrives
    h = torch.tensor([[1.0, 0.0], [1e4, 0.0]], dtype=torch.float64)
    z0 = torch.tensor([[0.0, 1.0], [0.0, 1.0]], dtype=torch.float64)
    limited = Torchode(rtol=1e-5, atol=1e-5, max_steps=50)
    solution = solve(lambda t, z: fixed_query(z, h), z0, 1.0, limited)
    assert solution.status.tolist() == [Status.SUCCESS, Status.MAX_STEPS]
    assert not solution.succeeded
    assert solution.failures() == {"MAX_STEPS": 1}
    torch.testing.assert_close(solution.state[0], flow(z0, h, 1.0)[0], rtol=0, atol=1e-4)
    assert solution.state[1].isnan().all()


def test_torchode_arriving_on_the_last_step_is_a_success():
    z0 = torch.tensor([[0.0, 1.0]], dtype=torch.float64)
    h = torch.tensor([1.0, 0.0], dtype=torch.float64)
    field = lambda t, z: fixed_query(z, h)  # noqa: E731
    unlimited = solve(field, z0, 1.0, Torchode())
    solutions = [solve(field, z0, 1.0, Torchode(max_steps=n)) for n in range(1, 20)]
    enough = next(s for s in solutions if s.succeeded)
    assert enough.evaluations == unlimited.evaluations
    assert solutions[0].status.tolist() == [Status.MAX_STEPS]


@pytest.mark.parametrize(
    ("solver", "bystander"),
    [
        (Torchode(), Status.INTERRUPTED),  # torchode stops them all, and calls this a success
        (Scipy(), Status.SUCCESS),
        (Euler(0.01), Status.SUCCESS),
    ],
)
def test_not_finite_is_reported_where_it_happens(solver, bystander):
    h = torch.tensor([[1.0, 0.0], [torch.nan, 0.0]], dtype=torch.float64)
    z0 = torch.tensor([[0.0, 1.0], [0.0, 1.0]], dtype=torch.float64)
    solution = solve(lambda t, z: fixed_query(z, h), z0, 5.0, solver)
    assert solution.status.tolist() == [bystander, Status.NOT_FINITE]
    assert solution.state[1].isnan().all()
    assert solution.state[0].isfinite().all() == (bystander == Status.SUCCESS)


@pytest.mark.parametrize(
    ("solver", "bystander"),
    [(Torchode(), Status.INTERRUPTED), (Scipy(), Status.SUCCESS), (Euler(), Status.SUCCESS)],
)
def test_a_start_that_is_not_finite_is_reported_where_it_is(solver, bystander):
    z0 = torch.tensor([[0.0, 1.0], [torch.nan, 0.0]], dtype=torch.float64)
    solution = solve(lambda t, z: fixed_query(z, torch.ones_like(z)), z0, 5.0, solver)
    assert solution.status.tolist() == [bystander, Status.NOT_FINITE]


@pytest.mark.parametrize("solver", [Scipy(), Torchode(max_steps=200)])
def test_blow_up_in_finite_time_does_not_pass(solver):  # ż = z², z(0) = 1 ends at t = 1
    solution = solve(lambda t, z: z**2, torch.ones(1, 1, dtype=torch.float64), 2.0, solver)
    assert solution.status.item() != Status.SUCCESS
    assert solution.state.isnan().all()


def test_torchode_is_optional(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchode", None)
    with pytest.raises(ImportError, match=r'pip install "lohe\[ode\]".*Euler and Scipy'):
        solve(lambda t, z: z, torch.ones(1, 2), 1.0, Torchode())


def test_bad_questions_get_an_answer():
    z0 = torch.ones(3, 2)
    with pytest.raises(ValueError, match="positive, finite horizon, got 0"):
        solve(lambda t, z: z, z0, 0.0)
    with pytest.raises(ValueError, match=r"state_axes=3 .* shape \(3, 2\)"):
        solve(lambda t, z: z, z0, 1.0, state_axes=3)
    with pytest.raises(ValueError, match=r"\(3, 2\) to \(5, 3, 2\).*expand z0"):
        solve(lambda t, z: z.expand(5, 3, 2), z0, 1.0, Euler())
    with pytest.raises(ValueError, match=r"positive length, got step=-0.1"):
        Euler(-0.1)


def test_an_unknown_method_is_refused():
    with pytest.raises(ValueError, match=r"methods heun, dopri5, tsit5; got 'rk4'.*Scipy"):
        Torchode("rk4")
