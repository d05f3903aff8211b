"""The exact flow with natural frequencies, locked and not, near its unstable point too."""

import inspect
import math

import mpmath
import pytest
import torch
from scipy.integrate import solve_ivp

from lohe import sphere
from lohe.dynamics import flow, lift, locking_margin, locking_rate, locks

EPS = torch.finfo(torch.float64).eps


def skew(*shape, scale=1.0, generator):
    upper = torch.randn(*shape, shape[-1], generator=generator, dtype=torch.float64).triu(1)
    return scale * (upper - upper.mT)


def drives(*shape, generator):
    """Unit drives, so that time counts e-folds."""
    return sphere.uniform(*shape, generator=generator, dtype=torch.float64)


def circle(omega):
    """ω [[0, -1], [1, 0]]."""
    return omega * torch.tensor([[0.0, -1.0], [1.0, 0.0]], dtype=torch.float64)


def dop853(z0, h, frequency, t):
    h, frequency = h.numpy(), frequency.numpy()
    found = solve_ivp(
        lambda _, z: frequency @ z + h - z * (z @ h),
        (0, t),
        z0.numpy(),
        method="DOP853",
        rtol=1e-12,
        atol=1e-12,
    )
    return torch.as_tensor(found.y[:, -1])


def fifty_digits(z0, h, frequency, t):
    """The same lift as in the library, in arithmetic where nothing cancels that matters."""
    with mpmath.workdps(50):
        d = len(h)
        a = mpmath.zeros(d + 1)
        for i in range(d):
            a[i, d] = a[d, i] = mpmath.mpf(h[i].item())
            for j in range(d):
                a[i, j] = mpmath.mpf(frequency[i, j].item())
        start = mpmath.matrix([mpmath.mpf(x) for x in z0.tolist()])
        start = mpmath.matrix([*(start / mpmath.norm(start)), 1])
        doublings = max(0, math.ceil(math.log2(t * (1 + frequency.norm().item()))))
        step = mpmath.expm(a * mpmath.mpf(t) / 2**doublings)
        for _ in range(doublings):
            step = step * step
            step = step / mpmath.norm(step)
        y = step * start
        return torch.tensor([float(y[i] / y[d]) for i in range(d)], dtype=torch.float64)


@pytest.mark.parametrize("d", [2, 3, 8, 32])
@pytest.mark.parametrize("scale", [0.2, 2.0], ids=["slow", "fast"])
@pytest.mark.parametrize("t", [0.3, 6.0])
def test_agrees_with_dop853(d, scale, t, rng):
    z0, h = drives(4, d, generator=rng), 1.5 * drives(4, d, generator=rng)
    frequency = skew(4, d, scale=scale, generator=rng)
    expected = torch.stack([dop853(z0[k], h[k], frequency[k], t) for k in range(4)])
    assert (flow(z0, h, t, frequency) - expected).abs().max() < 1e-9


def test_both_regimes_are_tested(rng):  # the cases above and below do contain both kinds
    h = drives(50, 8, generator=rng)
    assert locks(h, skew(50, 8, scale=0.05, generator=rng)).all()
    assert not locks(h, skew(50, 8, scale=20.0, generator=rng)).all()


@pytest.mark.parametrize("scale", [0.05, 5.0], ids=["locked", "unlocked"])
@pytest.mark.parametrize("t", [1e-6, 1.0, 1e3, 1e6])
def test_any_length_of_time(scale, t, rng):
    z0, h = drives(2, 4, generator=rng), drives(2, 4, generator=rng)
    frequency = skew(2, 4, scale=scale, generator=rng)
    expected = torch.stack([fifty_digits(z0[k], h[k], frequency[k], t) for k in range(2)])
    # an unlocked phase ωt is uncertain by its last digit
    tolerance = 10 * EPS * (1 + (scale > 1) * frequency.norm(dim=(-2, -1)).max() * t)
    assert (flow(z0, h, t, frequency) - expected).abs().max() < tolerance


@pytest.mark.parametrize("distance", [1e-2, 1e-5, 1e-8])
@pytest.mark.parametrize("t", [5.0, 15.0, 40.0])
def test_start_near_the_unstable_point(distance, t, rng):
    h, frequency = drives(3, generator=rng), skew(3, scale=0.3, generator=rng)
    rate = locking_rate(h, frequency)
    unstable = -torch.linalg.solve(rate * torch.eye(3) + frequency, h)  # (Ω + λ)z = -h
    z0 = sphere.normalize(unstable + distance * drives(3, generator=rng))
    error = flow(z0, h, t, frequency) - fifty_digits(z0, h, frequency, t)
    # the physics multiplies the rounding of z0 by e^(λt), until the start has left: by 1/distance
    assert error.abs().max() < 100 * EPS * min(1 / distance, math.exp(rate * t))


@pytest.mark.parametrize("detuning", [-1e-3, -1e-6, 0.0, 1e-6, 1e-3])
@pytest.mark.parametrize("t", [1e3, 1e4, 1e6])
def test_on_the_edge_of_locking(detuning, t):
    # |ω| = ‖h‖: the square of exp(At) cancels there, and took some to the other side of the circle
    h = torch.tensor([1.0, 0.0], dtype=torch.float64)
    z0 = torch.tensor([0.96, 0.28], dtype=torch.float64)
    error = flow(z0, h, t, circle(1 + detuning)) - fifty_digits(z0, h, circle(1 + detuning), t)
    assert error.abs().max() < 100 * EPS * t  # ωt is uncertain by its last digit


@pytest.mark.parametrize("d", [4, 5])
def test_on_the_edge_of_locking_in_more_dimensions(d, rng):
    frequency = skew(d, generator=rng)
    h = frequency @ drives(d, generator=rng)  # no part in the kernel of Ω
    h, z0 = h / locking_margin(h, frequency), drives(d, generator=rng)
    error = flow(z0, h, 1e5, frequency) - fifty_digits(z0, h, frequency, 1e5)
    assert error.abs().max() < 100 * EPS * 1e5


def test_a_start_on_the_unstable_point_stays():
    h = torch.tensor([1.0, 0.0], dtype=torch.float64)
    assert torch.equal(flow(-h, h, 100.0, circle(0.0)), -h)


@pytest.mark.parametrize("t", [0.5, 7.0, 300.0])
def test_adler(t):  # θ̇ = ω - ‖h‖ sin θ, θ(0) = 0, in closed form
    h = torch.tensor([1.0, 0.0], dtype=torch.float64)
    for omega in (0.6, 1.7):
        # w = tan(θ/2) obeys ẇ = (ω - 2w + ωw²)/2: roots are real when locked
        root = math.sqrt(abs(1 - omega**2))
        if omega < 1:
            w = omega * math.tanh(root * t / 2) / (root + math.tanh(root * t / 2))
        else:
            w = omega * math.tan(root * t / 2) / (root + math.tan(root * t / 2))
        expected = torch.tensor([1 - w**2, 2 * w], dtype=torch.float64) / (1 + w**2)
        torch.testing.assert_close(flow(h, h, t, circle(omega)), expected, rtol=0, atol=1e-12)


def test_locked_state_lags_by_asin(rng):
    h = 2 * torch.tensor([1.0, 0.0], dtype=torch.float64)
    z = flow(drives(2, generator=rng), h, 100.0, circle(1.2))
    torch.testing.assert_close(torch.atan2(z[1], z[0]).item(), math.asin(0.6))


def test_without_frequency_it_is_the_plain_flow(rng):
    z0, h = drives(20, 5, generator=rng), 3 * drives(20, 5, generator=rng)
    zero = torch.zeros(5, 5, dtype=torch.float64)
    torch.testing.assert_close(flow(z0, h, 2.0, zero), flow(z0, h, 2.0), rtol=0, atol=1e-13)


def test_without_drive_it_is_a_rotation(rng):
    z0, frequency = drives(20, 5, generator=rng), skew(5, generator=rng)
    expected = z0 @ torch.linalg.matrix_exp(3 * frequency).mT
    z = flow(z0, torch.zeros(5, dtype=torch.float64), 3.0, frequency)
    torch.testing.assert_close(z, expected, rtol=0, atol=1e-13)


def test_float32_starts_near_the_unstable_point(rng):
    # a float32 start is off the sphere by 1e-8, which must not count as distance from that point
    h, z0 = torch.tensor([1.0, 0.0]), sphere.normalize(torch.tensor([-1.0, 1e-3]))
    still = torch.zeros(2, 2)
    z = flow(z0, h, 7.0, still)
    assert (z - fifty_digits(z0, h, still, 7.0).float()).abs().max() < 1e-6


def test_time_composes_in_a_mixed_batch(rng):
    # times from 1e-3 to 1e3 side by side: every element takes its own number of doublings
    z0, h = drives(7, 3, generator=rng), drives(7, 3, generator=rng)
    frequency = skew(7, 3, scale=0.5, generator=rng)
    t = torch.logspace(-3, 3, 7, dtype=torch.float64)
    z = flow(z0, h, t, frequency)
    twice = flow(flow(z0, h, 0.4 * t, frequency), h, 0.6 * t, frequency)
    torch.testing.assert_close(twice, z, rtol=0, atol=1e-11)
    alone = torch.stack([flow(z0[k], h[k], t[k], frequency[k]) for k in range(7)])
    torch.testing.assert_close(alone, z, rtol=0, atol=1e-14)


def test_arguments_broadcast_and_dtype_is_kept(rng):
    z0 = drives(4, 1, 3, generator=rng).float()
    h = drives(5, 3, generator=rng).float()
    z = flow(z0, h, 2.0, skew(3, generator=rng).float())
    assert z.shape == (4, 5, 3)
    assert z.dtype == torch.float32


@pytest.mark.parametrize("t", [0.7, 9.0])
@pytest.mark.parametrize("scale", [0.2, 4.0], ids=["locked", "unlocked"])
def test_gradient(t, scale, rng):
    upper = scale * torch.randn(3, 3, generator=rng, dtype=torch.float64)

    def lifted(x, h, t, m):
        return flow(sphere.normalize(x), h, t, m - m.mT)

    inputs = [drives(3, generator=rng), drives(3, generator=rng), torch.tensor(t).double(), upper]
    assert torch.autograd.gradcheck(lifted, [a.requires_grad_() for a in inputs])


def test_frequency_must_be_skew_symmetric(rng):
    frequency = skew(3, generator=rng)
    frequency[0, 1] += 0.5
    h = drives(3, generator=rng)
    for asked in (flow, lambda z, h, t, f: locks(h, f)):
        with pytest.raises(ValueError, match=r"skew-symmetric.*got \|Ω \+ Ωᵀ\| up to 0.5.*M - Mᵀ"):
            asked(h, h, 1.0, frequency)


def test_each_frequency_is_measured_by_its_own_size(rng):
    # rounding of a fast oscillator does not excuse a slow one, nor the other way about
    slow = torch.tensor([[0.0, -1e-16], [0.0, 0.0]], dtype=torch.float64)
    h = drives(2, 2, generator=rng)
    with pytest.raises(ValueError, match=r"got \|Ω \+ Ωᵀ\| up to 1e-16 with \|Ω\| up to 1e-16"):
        flow(h, h, 1.0, torch.stack([circle(1.0), slow]))


# --- locking -------------------------------------------------------------------------------------


@pytest.mark.parametrize("omega", [0.0, 0.4, -1.9, 2.1, 50.0])
def test_on_the_circle_locking_is_adlers(omega):
    h = torch.tensor([1.2, -1.6], dtype=torch.float64)  # ‖h‖ = 2
    assert locks(h, circle(omega)) == (abs(omega) < 2)
    margin = 2 / abs(omega) if omega else math.inf
    torch.testing.assert_close(locking_margin(h, circle(omega)).item(), margin)
    rate = math.sqrt(max(0.0, 4 - omega**2))
    torch.testing.assert_close(locking_rate(h, circle(omega)).item(), rate)


def test_locking_is_decided_before_rounding():
    # in bfloat16 or float32 the margin is 1, in which no oscillator locks
    for dtype, omega in ((torch.bfloat16, 0.999), (torch.float32, 1 - 1e-9)):
        h = torch.tensor([1.0, 0.0], dtype=dtype)
        assert locking_margin(h, circle(omega)) == 1
        assert locks(h, circle(omega))
        assert locking_rate(h, circle(omega)) > 0
        assert not locks(h, circle(2 - omega))


def test_whole_numbers_lock_too():
    h, omega = torch.tensor([3, 0]), torch.tensor([[0, -2], [2, 0]])
    margin, rate = (inspect.unwrap(ask)(h, omega) for ask in (locking_margin, locking_rate))
    torch.testing.assert_close(margin, torch.tensor(1.5))
    torch.testing.assert_close(rate, torch.tensor(math.sqrt(5)))


@pytest.mark.parametrize("d", [2, 4, 8])
def test_the_margin_is_how_much_weaker_the_drive_may_get(d, rng):
    h, frequency = drives(50, d, generator=rng), skew(50, d, generator=rng)
    margin = locking_margin(h, frequency)[:, None]
    assert locks(h / margin * 1.01, frequency).all()
    assert not locks(h / margin * 0.99, frequency).any()
    assert (locking_rate(h / margin * 0.99, frequency) == 0).all()
    # an independent witness: at rest hᵀ(λ² - Ω²)⁻¹h = ‖z‖² = 1
    h = 1.5 * h / margin
    squares = locking_rate(h, frequency)[:, None, None] ** 2 * torch.eye(d) - frequency @ frequency
    rest = torch.linalg.solve(squares, h)
    torch.testing.assert_close((h * rest).sum(-1), torch.ones(50).double(), rtol=1e-6, atol=0)


def test_in_odd_dimension_almost_everything_locks(rng):
    frequency = skew(50, 3, scale=30.0, generator=rng)
    h = drives(50, 3, generator=rng)
    assert locks(h, frequency).all()
    assert (locking_margin(h, frequency) == math.inf).all()
    turning = torch.einsum("bde,be->bd", frequency, h)  # no part in the kernel of Ω
    assert not locks(turning / turning.norm(dim=-1, keepdim=True), frequency).any()


@pytest.mark.parametrize("d", [3, 5])
def test_what_eigh_leaves_of_the_kernel_does_not_lock(d, rng):
    frequency, x = skew(50_000, d, generator=rng), drives(50_000, d, generator=rng)
    axis = torch.linalg.svd(frequency).Vh[:, -1]  # of the kernel
    x = sphere.normalize(sphere.tangent(axis, x))
    h = torch.einsum("bde,be->bd", frequency, x)
    torch.testing.assert_close(locking_margin(h, frequency), torch.ones(len(h)).double())


def test_the_rate_is_the_observed_one(rng):
    h, frequency = drives(6, 4, generator=rng), skew(6, 4, scale=0.1, generator=rng)
    rate = locking_rate(h, frequency)
    z0 = drives(6, 4, generator=rng)
    rest = flow(z0, h, 200.0, frequency)
    early, late = ((flow(z0, h, t, frequency) - rest).norm(dim=-1) for t in (10.0, 20.0))
    torch.testing.assert_close((early / late).log() / 10, rate, rtol=0.05, atol=0)


def test_an_unlocked_oscillator_never_rests(rng):
    h = torch.tensor([1.0, 0.0], dtype=torch.float64)
    t = torch.linspace(1e4, 1e4 + 20, 200, dtype=torch.float64)
    z = flow(drives(2, generator=rng), h, t, circle(1.01))
    assert z.std(dim=0).min() > 0.1
    torch.testing.assert_close(z.norm(dim=-1), torch.ones_like(t))


@pytest.mark.parametrize(
    ("z", "h", "t", "omega"),
    [
        ((7, 5), (7, 5), (), (7, 5)),
        ((5,), (), (7, 1), (7, 5)),  # whatever is broadcast
        ((3, 7, 5), (5,), (7, 1), ()),
        ((100,), (), (), ()),  # one matrix for all
        ((0, 5), (5,), (), (5,)),
    ],
)
def test_many_matrices_are_taken_in_parts(z, h, t, omega, rng, monkeypatch):
    d = 4
    z0, h = drives(*z, d, generator=rng), 3 * drives(*h, d, generator=rng)
    t = 2 * torch.rand(t, generator=rng, dtype=torch.float64)
    frequency = skew(*omega, d, generator=rng)
    whole = flow(z0, h, t, frequency)
    sizes, exponential = [], lift.matrix_exp

    def noted(x):
        sizes.append(x.numel())
        return exponential(x)

    monkeypatch.setattr(lift, "matrix_exp", noted)
    monkeypatch.setattr(lift, "ENTRIES", 3 * (d + 1) ** 2)
    parts = flow(z0, h, t, frequency)
    assert max(sizes) <= lift.ENTRIES
    assert parts.shape == whole.shape == torch.broadcast_shapes(whole.shape, z0.shape)
    assert torch.allclose(parts, whole, rtol=0, atol=8 * EPS)


def test_parts_have_the_gradient_of_the_whole(rng, monkeypatch):
    monkeypatch.setattr(lift, "ENTRIES", 2 * 4**2)
    given = [drives(5, 3, generator=rng), drives(5, 3, generator=rng), skew(5, 3, generator=rng)]
    z0, h, half = (x.requires_grad_() for x in given)
    assert torch.autograd.gradcheck(lambda z, h, m: flow(z, h, 1.5, m - m.mT), (z0, h, half))
