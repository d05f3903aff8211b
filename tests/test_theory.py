"""Section 3, checked by sampling, quadrature and limits."""

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad

import lohe
from lohe import sphere, theory
from lohe.dynamics import fixed_query
from lohe.ops import reference
from lohe.ops.coupling import COUPLINGS

DIMENSIONS = [2, 3, 4, 8, 16, 32, 64]


# --- Theorem 3 -----------------------------------------------------------------------------------


@given(st.integers(2, 20), st.integers(0, 2**31), st.floats(-6, 6))
def test_energy_falls_except_at_the_two_equilibria(d, seed, exponent):
    rng = torch.Generator().manual_seed(seed)
    z = sphere.uniform(10, d, generator=rng, dtype=torch.float64)
    h = 10**exponent * torch.randn(10, d, generator=rng, dtype=torch.float64)
    z_star, norm = sphere.normalize(h), h.norm(dim=-1)
    assert (theory.energy_rate(z, h) < 0).all()
    for equilibrium in (z_star, -z_star):
        assert (theory.energy_rate(equilibrium, h).abs() <= 1e-28 * norm**2).all()
    assert (theory.energy(z_star, h) <= theory.energy(z, h)).all()
    assert (theory.energy(z, h) <= theory.energy(-z_star, h)).all()


def test_energy_rate_is_the_derivative_along_the_flow(rng):
    z = sphere.uniform(10, 5, generator=rng, dtype=torch.float64)
    h = torch.randn(10, 5, generator=rng, dtype=torch.float64)
    (slope,) = torch.autograd.grad(theory.energy(z.requires_grad_(), h).sum(), z)
    z = z.detach()
    torch.testing.assert_close(theory.energy_rate(z, h), (slope * fixed_query(z, h)).sum(-1))
    stated = -(h.square().sum(-1) - (z * h).sum(-1).square())
    torch.testing.assert_close(theory.energy_rate(z, h), stated)


# --- Proposition 4 -------------------------------------------------------------------------------


def sampled_drives(couplings, d, n, generator):
    """‖h_i‖² over n draws of the anchors, (n, i)."""
    anchors = sphere.uniform(n, couplings.shape[-1], d, generator=generator, dtype=torch.float64)
    return torch.einsum("ij,njd->nid", couplings, anchors).square().sum(dim=-1)


@pytest.mark.parametrize("d", [2, 3, 8])
@pytest.mark.parametrize("causal", [False, True])
def test_mean_and_variance_of_the_drive(d, causal, rng):
    couplings = torch.rand(6, 6, generator=rng, dtype=torch.float64) + 0.1
    if causal:
        couplings = couplings.tril()
    n = 40_000
    squares = sampled_drives(couplings, d, n, rng)
    mean, variance = (
        theory.expected_drive_squared(couplings),
        theory.drive_squared_variance(couplings, d),
    )
    tolerance = 5 * (variance / n).sqrt() + 1e-12  # with one active anchor ‖h‖ is certain
    assert ((squares.mean(0) - mean).abs() < tolerance).all()
    torch.testing.assert_close(squares.var(0), variance, rtol=0.05, atol=1e-12)


@pytest.mark.parametrize("causal", [False, True])
def test_weak_drives_get_rare_with_dimension(causal, rng):
    couplings = torch.rand(12, 12, generator=rng, dtype=torch.float64) + 0.1
    if causal:
        couplings = couplings.tril()
    epsilon = 0.5
    mean = theory.expected_drive_squared(couplings)
    tails = []
    for d in (2, 4, 8, 16, 32):
        weak = sampled_drives(couplings, d, 10_000, rng) <= epsilon * mean
        frequency = weak.double().mean(0)
        assert (frequency <= theory.degenerate_bound(couplings, epsilon, d) + 1e-12).all()
        tails.append(frequency[-1].item())  # the position that sees all anchors
    assert tails[0] > 0.2
    # faster than any power of d, which would lose the same factor at each doubling
    factors = [after / before for before, after in pairwise(tails)]
    assert all(after < 0.9 * before for before, after in pairwise(factors))


def test_two_anchors_cancel_as_often_as_a_cap_is_large(rng):
    # ‖r_1 + r_2‖² <= 2ε iff cos φ <= ε - 1: the tail is exact, and below the bound
    couplings, epsilon = torch.ones(1, 2, dtype=torch.float64), 0.25
    for d in (2, 3, 8):
        exact = theory.cap_probability(math.acos(1 - epsilon), d).item()
        n = 100_000
        seen = (sampled_drives(couplings, d, n, rng) <= 2 * epsilon).double().mean().item()
        assert abs(seen - exact) < 5 * math.sqrt(exact / n)
        assert exact <= theory.degenerate_bound(couplings, epsilon, d).item()


def test_the_scale_of_couplings_does_not_matter():
    w = torch.tensor([1.0, 0.7, 0.2])
    expected = theory.degenerate_bound(w.double(), 0.1, 2).float()
    for scale in (1e-30, 5e-12, 1e12):
        torch.testing.assert_close(theory.degenerate_bound(scale * w, 0.1, 2), expected)
    assert theory.degenerate_bound(0 * w, 0.1, 2) == 1  # ‖h‖ = 0 <= 0


# --- Proposition 5 -------------------------------------------------------------------------------


@pytest.mark.parametrize("d", DIMENSIONS)
def test_cap_probability_is_the_integral(d):  # Eq. 10
    for angle in (0.01, 0.3, 1.0, math.pi / 2 - 1e-9, math.pi / 2, 2.0, 3.1):
        integral, _ = quad(
            lambda x: math.sin(x) ** (d - 2), 0, angle, epsabs=0, epsrel=1e-12, limit=200
        )
        expected = theory.cap_prefactor(d) * integral
        assert theory.cap_probability(angle, d).item() == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("d", DIMENSIONS)
def test_cap_probability_is_the_fraction_of_uniform_points(d, rng):
    n = 100_000
    angle = torch.linspace(0.2, 3.0, 8, dtype=torch.float64)
    pole = sphere.uniform(d, generator=rng, dtype=torch.float64)
    z = sphere.uniform(n, d, generator=rng, dtype=torch.float64)
    seen = (sphere.angle(z, pole)[:, None] < angle).double().mean(0)
    p = theory.cap_probability(angle, d)
    assert ((seen - p).abs() <= 5 * (p * (1 - p) / n).sqrt() + 1e-6).all()


def test_cap_keeps_its_digits_in_the_far_tail():
    # d = 64, α = 0.01: about 1e-127, by the first two terms of the series in α
    d, angle = 64, 0.01
    correction = 1 - (d - 2) / 6 * (d - 1) / (d + 1) * angle**2
    tail = theory.cap_asymptote(angle, d).item() * correction
    assert 0 < tail < 1e-120
    assert theory.cap_probability(angle, d).item() == pytest.approx(tail, rel=1e-5)


def test_known_caps():
    half = torch.tensor([0.0, math.pi / 2, math.pi], dtype=torch.float64)
    for d in DIMENSIONS:
        torch.testing.assert_close(
            theory.cap_probability(half, d), torch.tensor([0, 0.5, 1], dtype=torch.float64)
        )
    angle = torch.linspace(0, math.pi, 9, dtype=torch.float64)
    torch.testing.assert_close(theory.cap_probability(angle, 2), angle / math.pi)
    torch.testing.assert_close(theory.cap_probability(angle, 3), (1 - angle.cos()) / 2)


@pytest.mark.parametrize("d", DIMENSIONS)
def test_bound_and_asymptote(d):
    angle = torch.linspace(1e-3, math.pi / 2 - 1e-3, 50, dtype=torch.float64)
    p = theory.cap_probability(angle, d)
    assert (p <= theory.cap_bound(angle, d) * (1 + 1e-12)).all()
    ratio = theory.cap_probability(1e-3, d) / theory.cap_asymptote(1e-3, d)
    assert abs(ratio - 1) < 1e-6 * d


def test_cap_decays_exponentially_in_dimension():
    p = torch.stack([theory.cap_probability(1.0, d) for d in range(2, 200)])
    slope = p.log().diff()
    assert (slope < 0).all()
    assert slope[-1].item() == pytest.approx(math.log(math.sin(1.0)), rel=0.02)


def test_caps_of_an_angle_that_requires_grad():
    angle = torch.tensor([0.5, 1.0], requires_grad=True)
    p = theory.cap_probability(angle, 3)
    assert not p.requires_grad
    torch.testing.assert_close(p, (1 - angle.detach().double().cos()) / 2)


def test_the_whole_sphere_in_float32():  # its π is above π
    torch.testing.assert_close(theory.cap_probability(torch.tensor(math.pi), 3).item(), 1.0)
    torch.testing.assert_close(theory.cap_bound(torch.tensor(math.pi / 2), 2).item(), 0.5)


@pytest.mark.parametrize("angle", [45.0, -0.1, math.nan])
def test_caps_have_angles_in_radians(angle):
    for ask, most in ((theory.cap_probability, 3.14), (theory.cap_bound, 1.57)):
        for wrong in (angle, torch.tensor([1.0, angle], dtype=torch.float64)):
            with pytest.raises(ValueError, match=rf"radians, .* {most}; got {angle}.*math.radians"):
                ask(wrong, 3)


# --- rank of the readout -------------------------------------------------------------------------


@pytest.mark.parametrize(("d", "p"), [(2, 1), (2, 2), (2, 4), (3, 2), (4, 4), (8, 1), (8, 2)])
def test_rank_bound_is_attained(d, p, rng):
    tokens = 2 * theory.readout_rank_bound(d, p)
    z, r = (sphere.uniform(tokens, d, generator=rng, dtype=torch.float64) for _ in range(2))
    rank = torch.linalg.matrix_rank((1 + z @ r.mT) ** p, rtol=1e-11).item()
    assert rank == theory.readout_rank_bound(d, p)


def test_rank_bounds_of_the_paper_and_beyond():
    assert [theory.readout_rank_bound(d, 1) for d in (2, 8, 32)] == [3, 9, 33]
    assert theory.readout_rank_bound(2, 4) == 9
    assert theory.readout_rank_bound(4, 4) == 55
    assert theory.readout_rank_bound(4, 4.0) == 55


@pytest.mark.parametrize("sharpness", [2.5, math.inf, math.nan])
def test_a_real_power_has_no_rank_bound(sharpness):
    with pytest.raises(ValueError, match=rf"whole number p >= 1; got {sharpness}.*no bound"):
        theory.readout_rank_bound(2, sharpness)


# --- orthonormal anchors -------------------------------------------------------------------------


def orthonormal(heads: int, tokens: int, d: int, rng: torch.Generator) -> torch.Tensor:
    square = torch.randn(heads, d, d, generator=rng, dtype=torch.float64)
    return torch.linalg.qr(square).Q[:, :tokens]


@pytest.mark.parametrize("coupling", COUPLINGS)
@pytest.mark.parametrize("gain", [None, 0.3, 7.0])
def test_attention_at_p_1_is_a_mixture_of_uniform_and_couplings(coupling, gain, rng):
    f, g = 3 * torch.randn(2, 4, 2, 12, 8, generator=rng, dtype=torch.float64)
    r = orthonormal(2, 12, 16, rng)
    a = lohe.attention_weights(f, g, r, coupling=coupling, gain=gain, causal=True)
    allowed = torch.ones(12, 12, dtype=torch.bool).tril()
    w = reference.couplings(f, g, coupling, allowed=allowed)
    share = theory.uniform_share(w, gain or 1)[..., None]
    uniform = allowed.double() / allowed.sum(-1, keepdim=True)
    mixture = share * uniform + (1 - share) * w / w.sum(-1, keepdim=True)
    torch.testing.assert_close(a, mixture, rtol=1e-12, atol=1e-15)


@given(st.integers(1, 60), st.integers(0, 2**31), st.floats(0, 8))
def test_without_a_gain_most_of_attention_is_uniform(keys, seed, spread):
    rng = torch.Generator().manual_seed(seed)
    w = (spread * torch.randn(5, keys, generator=rng, dtype=torch.float64)).exp()
    share, root = theory.uniform_share(w), math.sqrt(keys)
    assert (share >= root / (root + 1) - 1e-12).all()
    assert (share <= keys / (keys + 1) + 1e-12).all()


@pytest.mark.parametrize("p", [1, 2, 8])
def test_softmax_is_a_limit_of_oscillators(p, rng):
    f, g = torch.randn(2, 1, 3, 10, 8, generator=rng, dtype=torch.float64)
    r = orthonormal(3, 10, 10, rng)
    softmax = (p * f @ g.mT / math.sqrt(8)).softmax(-1)
    errors = []
    for gain in (1e2, 1e4, 1e6, 1e8):
        a = lohe.attention_weights(f, g, r, coupling="exp", sharpness=p, gain=gain)
        errors.append(float((a - softmax).abs().max()))
    assert errors[-1] < 1e-6
    for larger, smaller in pairwise(errors):
        assert smaller < larger / 50  # as 1/γ


# --- how much one key can get --------------------------------------------------------------------


@given(
    d=st.integers(2, 20),
    keys=st.integers(1, 30),
    sharpness=st.sampled_from([1, 1.5, 2, 8]),
    gain=st.floats(0.1, 20),
    free=st.booleans(),
    seed=st.integers(0, 2**31),
)
def test_no_key_gets_more_than_the_largest_weight(d, keys, sharpness, gain, free, seed):
    rng = torch.Generator().manual_seed(seed)
    r = sphere.uniform(keys, d, generator=rng, dtype=torch.float64)
    if free:
        r = r * (0.1 + 3 * torch.rand(keys, 1, generator=rng, dtype=torch.float64))
    z = torch.cat([sphere.uniform(50, d, generator=rng, dtype=torch.float64), sphere.normalize(r)])
    a = (1 + gain * z @ r.mT).clamp(min=0) ** sharpness
    a = a[a.sum(-1) > 0] / a.sum(-1, keepdim=True)[a.sum(-1) > 0]
    lean = (z @ r.mean(0))[(1 + gain * z @ r.mT).amax(-1) > 0]
    most = theory.largest_weight(keys, sharpness, gain, lean, r.norm(dim=-1).max().item())
    assert (a.amax(-1) <= most * (1 + 1e-12)).all()


@pytest.mark.parametrize("sharpness", [1, 3.5, 8])
@pytest.mark.parametrize("gain", [0.5, 1.0, 12.0, 200.0])
@pytest.mark.parametrize("keys", [2, 3, 48])
def test_a_simplex_reaches_the_largest_weight(sharpness, gain, keys):
    r = sphere.normalize(torch.eye(keys, dtype=torch.float64) - 1 / keys)
    scores = (1 + gain * r @ r.mT).clamp(min=0) ** sharpness  # each oscillator at an anchor
    a = scores.diagonal() / scores.sum(-1)
    expected = theory.largest_weight(keys, sharpness, gain).expand(keys)
    torch.testing.assert_close(a, expected, rtol=1e-10, atol=0)


def test_as_published_no_key_gets_more_than_twice_the_uniform_weight():
    for keys in (2, 9, 48, 500):
        assert theory.largest_weight(keys) == pytest.approx(2 / keys)


@pytest.mark.parametrize("cosine", [-0.5, -0.02, 0.3, 0.9])
@pytest.mark.parametrize(("sharpness", "gain"), [(1, 1.0), (2.5, 0.4), (8, 7.0)])
def test_others_of_one_cosine_reach_the_largest_weight(cosine, sharpness, gain):
    """Also where the oscillator leans, to its anchors or away from them."""
    keys = 10
    scores = (1 + gain * torch.tensor([1.0, *[cosine] * (keys - 1)], dtype=torch.float64)).clamp(0)
    a = scores[0] ** sharpness / (scores**sharpness).sum()
    lean = (1 + (keys - 1) * cosine) / keys
    expected = theory.largest_weight(keys, sharpness, gain, lean)
    torch.testing.assert_close(a, expected, rtol=1e-12, atol=0)


def test_an_oscillator_that_leans_away_may_have_one_key_alone():
    """p = 1 on the sphere, as published; every other anchor is opposite."""
    r = torch.tensor([[[1.0, 0.0], *[[-1.0, 0.0]] * 9]], dtype=torch.float64)
    f = torch.zeros(1, 1, 1, 4, dtype=torch.float64)
    f[..., 0] = 40.0  # the first key is coupled much more strongly than the others
    g = torch.zeros(1, 1, 10, 4, dtype=torch.float64)
    g[..., 0, 0] = 1.0
    a = lohe.attention_weights(f, g, r)
    assert a[..., 0].item() == pytest.approx(1)
    assert theory.largest_weight(10, lean=-0.8) == 1
    assert theory.largest_weight(10) == pytest.approx(0.2)


def test_large_exponents_and_narrow_types_keep_the_digits():
    assert theory.largest_weight(48, 1024) == 1
    assert theory.largest_weight(48, 200, 100.0) == 1
    wide = theory.largest_weight(48, 8, 4.0, 0.25, 2.0)
    for dtype in (torch.float16, torch.float32):
        narrow = [torch.tensor([x], dtype=dtype) for x in (8, 4.0, 0.25, 2.0)]
        torch.testing.assert_close(theory.largest_weight(48, *narrow), wide[None])
    tiny = torch.tensor([1e30, 1e-20])
    torch.testing.assert_close(theory.uniform_share(tiny), theory.uniform_share(tiny.double()))


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda: theory.largest_weight(48, sharpness=0.5), r"p >= 1; got 0\.5"),
        (lambda: theory.largest_weight(0), "at least 1; got 0"),
        (lambda: theory.largest_weight(48, gain=-1), "gain must not be negative, got -1"),
        (lambda: theory.largest_weight(48, radius=math.nan), "radius must not be negative"),
        (lambda: theory.uniform_share(torch.ones(3), -2), "gain must not be negative, got -2"),
    ],
)
def test_bounds_of_nothing_are_refused(ask, said):
    with pytest.raises(ValueError, match=said):
        ask()


# --- questions without an answer -----------------------------------------------------------------


@given(
    d=st.integers(2, 5),
    keys=st.integers(2, 7),
    free=st.booleans(),
    causal=st.booleans(),
    seed=st.integers(0, 10_000),
)
def test_weight_response_is_the_derivative(d, keys, free, causal, seed):
    rng = torch.Generator().manual_seed(seed)
    w = torch.rand(3, keys, keys, generator=rng, dtype=torch.float64) + 0.1
    r = torch.randn(3, keys, d, generator=rng, dtype=torch.float64)
    r = 2 * r if free else r / r.norm(dim=-1, keepdim=True)
    allowed = torch.ones(keys, keys, dtype=torch.bool)
    allowed = allowed.tril() if causal else allowed

    def weights(w):
        z = reference.fixed_point(reference.drive(w * allowed, r))
        return reference.attention(reference.similarity(z, r), allowed=allowed)

    every = torch.autograd.functional.jacobian(weights, w)  # (3, i, j, 3, i, j)
    own = torch.einsum("bijbij->bij", every)
    found = theory.weight_response(reference.drive(w * allowed, r), r, allowed)
    # a weight between kept and clamped has no derivative: random numbers do not meet it
    torch.testing.assert_close(found, own, rtol=1e-9, atol=1e-11)


def test_the_cosine_rises_and_the_weight_may_fall(rng):
    w = torch.rand(200, 1, 5, generator=rng, dtype=torch.float64) + 0.1
    r = torch.randn(200, 5, 2, generator=rng, dtype=torch.float64)
    r = r / r.norm(dim=-1, keepdim=True)
    h = reference.drive(w, r)
    allowed = torch.ones(1, 5, dtype=torch.bool)
    response = theory.weight_response(h, r, allowed)
    cosine = reference.fixed_point(h) @ r.mT
    assert (1 - cosine.square() >= 0).all()  # ∂(z·r_j)/∂w_j times ‖h‖
    assert (response < 0).any()
    assert (response > 0).any()
    one = theory.weight_response(h, r[:, :1], allowed[:, :1])
    assert torch.equal(one, torch.zeros_like(one))  # a single key has all the weight


def test_bad_questions_get_an_answer():
    couplings = torch.ones(1, 3)
    with pytest.raises(ValueError, match=r"d_osc >= 2 dimensions, got 1"):
        theory.cap_probability(0.5, 1)
    with pytest.raises(ValueError, match=r"d_osc >= 2 dimensions, got 0"):
        theory.readout_rank_bound(0, 1)
    with pytest.raises(ValueError, match=r"p >= 1; got 0"):
        theory.readout_rank_bound(2, 0)
    with pytest.raises(ValueError, match=r"fraction of ‖w‖².*got 1.0.*between 0 and 1"):
        theory.degenerate_bound(couplings, 1.0, 2)
