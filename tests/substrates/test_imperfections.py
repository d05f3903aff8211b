"""Appendix C's imperfections: their statistics, their limits, and one draw for both passes."""

import inspect
import math

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from lohe import sphere
from lohe.dynamics import Euler, Torchode, flow
from lohe.substrates import (
    DeviceMismatch,
    FiniteHorizon,
    FrequencyDisorder,
    Integrated,
    Mismatch,
    SequentialStart,
    StateNoise,
    UniformStart,
)
from lohe.substrates.imperfections import check_generator, check_horizon, check_scale


def drive(couplings, anchors):
    return torch.einsum("...ij,...jd->...id", couplings, anchors)


def reseeded(build):
    """A function that gives the imperfection the same draw in every call."""

    def call(*args):
        return build(torch.Generator().manual_seed(3))(*args)

    return call


def drives(*shape, generator, dtype=torch.float64):
    return torch.randn(shape, generator=generator, dtype=dtype)


def layer_inputs(generator, heads=2, queries=4, keys=4):
    shape = (3, heads, queries, keys)
    couplings = torch.rand(shape, generator=generator, dtype=torch.float64)
    return couplings, sphere.uniform(heads, keys, 3, generator=generator, dtype=torch.float64)


SETTLING = [
    lambda g: StateNoise(sphere.normalize, 0.3, g),
    lambda g: FiniteHorizon(0.8, generator=g),
    lambda g: FiniteHorizon(0.8, start=SequentialStart(0.05, g)),
    lambda g: FrequencyDisorder(sphere.normalize, 0.4, 5.0, g),
    lambda g: Integrated(0.8, Torchode(rtol=1e-10, atol=1e-10), generator=g),
    lambda g: StateNoise(FrequencyDisorder(FiniteHorizon(0.8, generator=g), 0.4, 5.0, g), 0.1, g),
]


@pytest.mark.parametrize("build", SETTLING)
def test_settling_keeps_shape_dtype_and_sphere(build, rng):
    for dtype in (torch.float32, torch.float64):
        h = drives(2, 5, 3, generator=rng, dtype=dtype)
        z = build(rng)(h)
        assert z.shape == h.shape
        assert z.dtype == dtype
        torch.testing.assert_close(z.norm(dim=-1), torch.ones(2, 5, dtype=dtype))


@pytest.mark.parametrize("build", SETTLING)
def test_one_draw_serves_forward_and_backward(build, rng):
    h = drives(2, 3, generator=rng).requires_grad_()
    assert torch.autograd.gradcheck(reseeded(build), h, atol=1e-4)


def test_one_draw_serves_forward_and_backward_of_the_drive(rng):
    inputs = [a.requires_grad_() for a in layer_inputs(rng)]
    assert torch.autograd.gradcheck(reseeded(lambda g: Mismatch(drive, 0.5, g)), inputs)


@pytest.mark.parametrize("build", SETTLING)
def test_each_call_draws_anew_and_a_seed_draws_the_same(build, rng):
    h = drives(4, 3, generator=rng)
    settle = build(rng)
    assert not torch.equal(settle(h), settle(h))
    assert torch.equal(reseeded(build)(h), reseeded(build)(h))


# --- the drive -----------------------------------------------------------------------------------


def test_mismatch_is_log_normal(rng):
    couplings = 2 * torch.ones(200, 50, 50, dtype=torch.float64)
    seen = []
    Mismatch(lambda w, r: seen.append(w) or w, 0.5, rng)(couplings, couplings)
    error = (seen[0] / couplings).log()
    n = error.numel()
    assert abs(error.mean()) < 5 * 0.5 / math.sqrt(n)
    assert abs(error.std() - 0.5) < 5 * 0.5 / math.sqrt(2 * n)


def test_mismatch_leaves_masked_couplings_at_zero(rng):
    couplings, anchors = layer_inputs(rng)
    causal = couplings.tril()
    h = Mismatch(drive, 0.5, rng)(causal, anchors)
    torch.testing.assert_close(sphere.normalize(h[..., 0, :]), anchors[:, 0].expand(3, 2, 3))


def test_a_device_keeps_its_mismatch(rng):
    couplings, anchors = layer_inputs(rng)
    device = DeviceMismatch(drive, 0.5, heads=2, tokens=6, generator=rng)
    assert torch.equal(device(couplings, anchors), device(couplings, anchors))
    ratio = DeviceMismatch(lambda w, r: w, 0.5, heads=2, tokens=6, generator=rng)(
        torch.ones(3, 2, 4, 4), torch.ones(2, 4, 4)
    )
    assert torch.equal(ratio[0], ratio[2])  # the same for every example
    assert ratio[0].unique().numel() == 2 * 4 * 4  # another for every head and pair


def test_one_example_cannot_tell_errors_that_stay_from_errors_drawn_anew():
    """So the mean over devices of what examples score is that over draws; of many examples on one
    device it is not."""
    couplings, anchors = (x.float() for x in layer_inputs(torch.Generator().manual_seed(1)))
    heads, tokens = couplings.shape[-3:-1]

    def met_by(examples):
        anew, kept = (torch.Generator().manual_seed(0) for _ in "ab")
        w = couplings[:examples]
        device = DeviceMismatch(drive, 0.5, heads, tokens, generator=kept)
        return Mismatch(drive, 0.5, anew)(w, anchors), device(w, anchors)

    anew, kept = met_by(examples=1)
    torch.testing.assert_close(kept, anew)
    anew, kept = met_by(examples=2)
    assert not torch.allclose(kept[1], anew[1])


def test_a_device_is_the_same_when_decoding(rng):
    couplings, anchors = layer_inputs(rng, queries=6, keys=6)
    device = DeviceMismatch(drive, 0.5, heads=2, tokens=6, generator=rng)
    full = device(couplings.tril(), anchors)
    # token 3 alone, with the four keys it sees
    step = device(couplings[:, :, 3:4, :4], anchors[:, :4])
    torch.testing.assert_close(step[:, :, 0], full[:, :, 3])


def test_a_device_has_a_size(rng):
    couplings, anchors = layer_inputs(rng)
    with pytest.raises(ValueError, match=r"2 heads of 3 × 3 .* got 2 heads of 4 × 4.*tokens=4"):
        DeviceMismatch(drive, 0.5, heads=2, tokens=3, generator=rng)(couplings, anchors)
    with pytest.raises(ValueError, match=r"got 2 heads"):
        DeviceMismatch(drive, 0.5, heads=4, tokens=4, generator=rng)(couplings, anchors)


# --- settling ------------------------------------------------------------------------------------


def test_without_imperfection_nothing_changes(rng):
    h = drives(5, 3, generator=rng)
    z_star = sphere.normalize(h)
    torch.testing.assert_close(StateNoise(sphere.normalize, 0.0, rng)(h), z_star)
    torch.testing.assert_close(FrequencyDisorder(sphere.normalize, 0.0, 30.0, rng)(h), z_star)
    torch.testing.assert_close(FiniteHorizon(1e4, generator=rng)(h), z_star)
    couplings, anchors = layer_inputs(rng)
    torch.testing.assert_close(
        Mismatch(drive, 0.0, rng)(couplings, anchors), drive(couplings, anchors)
    )


def test_state_noise_is_isotropic_of_the_scale_asked(rng):
    h = torch.tensor([5.0, 0.0, 0.0], dtype=torch.float64).expand(100_000, 3)
    z = StateNoise(sphere.normalize, 1e-3, rng)(h)
    spread = z.std(dim=0) / 1e-3
    torch.testing.assert_close(spread[1:], torch.ones(2, dtype=torch.float64), rtol=0.02, atol=0)
    assert spread[0] < 0.01  # along z* the projection takes it back


@pytest.mark.parametrize("scale", [0.2, 0.2 / math.sqrt(2)], ids=["ours", "published"])
def test_frequency_disorder_has_the_scale_it_says(scale, rng):
    # on the circle a locked oscillator lags by asin(ω/‖h‖), ω ~ N(0, scale²)
    h = torch.tensor([2.0, 0.0], dtype=torch.float64).expand(20_000, 2)
    z = FrequencyDisorder(sphere.normalize, scale, 30.0, rng)(h)
    omega = 2 * z[:, 1]
    n = len(omega)
    assert abs(omega.std() - scale) < 5 * scale / math.sqrt(2 * n)
    assert abs(omega.mean()) < 5 * scale / math.sqrt(n)


def test_every_oscillator_has_a_frequency_of_its_own(rng):
    h = torch.tensor([2.0, 0.0, 1.0], dtype=torch.float64).expand(2, 3, 3)
    z = FrequencyDisorder(sphere.normalize, 0.3, 30.0, rng)(h)
    assert z.reshape(6, 3).unique(dim=0).shape == (6, 3)


def test_finite_horizon_is_the_flow_from_its_start(rng):
    h = drives(5, 3, generator=rng)
    z0 = sphere.uniform(5, 3, generator=rng, dtype=torch.float64)
    assert torch.equal(FiniteHorizon(1.5, start=lambda h: z0)(h), flow(z0, h, 1.5))


@pytest.mark.parametrize(
    "build",
    [
        lambda g: FiniteHorizon(3.0, start=sphere.normalize),
        lambda g: FiniteHorizon(3.0, start=SequentialStart(0.0, g)),
        lambda g: Integrated(3.0, Euler(0.1), start=sphere.normalize),
        lambda g: FrequencyDisorder(sphere.normalize, 0.4, 3.0, g),
    ],
)
def test_a_fully_masked_sequence_leaves_the_others_alone(build, rng):  # h = 0 over all its tokens
    h = drives(2, 4, 3, generator=rng)
    h[0] = 0
    h.requires_grad_()
    z = build(rng)(h)
    (gradient,) = torch.autograd.grad(z.square().sum() + z.sum(), h)
    assert (z[0, 1:] == 0).all()
    assert z.isfinite().all()
    assert gradient.isfinite().all()
    assert (gradient[1] != 0).any()


def test_integration_agrees_with_the_closed_form(rng):
    h = drives(5, 3, generator=rng)
    exact = reseeded(lambda g: FiniteHorizon(2.0, generator=g))(h)
    for solver, tolerance in ((Torchode(rtol=1e-8, atol=1e-8), 1e-6), (Euler(1e-3), 1e-2)):
        solved = reseeded(lambda g, s=solver: Integrated(2.0, s, generator=g))(h)
        torch.testing.assert_close(solved, exact, rtol=0, atol=tolerance)


def test_a_failed_integration_raises(rng):
    h = drives(5, 3, generator=rng)
    settle = Integrated(30.0, Torchode(max_steps=2), generator=rng)
    with pytest.raises(RuntimeError, match=r"max_steps=2.*'MAX_STEPS': 5.*of 5.*FiniteHorizon"):
        settle(h)


def test_uniform_start_knows_nothing_of_the_drive(rng):
    h = torch.tensor([5.0, 0.0, 0.0]).expand(50_000, 3)
    z0 = UniformStart(rng)(h)
    assert z0.mean(0).abs().max() < 5 / math.sqrt(3 * len(z0))


def test_sequential_start_is_where_the_previous_token_rests(rng):
    h = drives(2000, 4, 3, generator=rng)
    z0 = SequentialStart(0.05, rng)(h)
    previous = sphere.normalize(h[:, :-1])
    offset = z0[:, 1:] - previous
    # noise of 0.05 in each of the two tangent directions
    assert abs(offset.square().sum(-1).mean().sqrt() - 0.05 * math.sqrt(2)) < 0.002
    # the first token starts anywhere
    first = (z0[:, 0] * sphere.normalize(h[:, 0])).sum(-1)
    assert abs(first.mean()) < 5 / math.sqrt(3 * len(h))
    torch.testing.assert_close(SequentialStart(0.0, rng)(h)[:, 1:], previous)


def test_what_looks_at_previous_tokens_says_so(rng):
    start = SequentialStart(0.05, rng)
    looking = (FiniteHorizon(30.0, start=start), Integrated(30.0, Euler(), start=start))
    alone = (
        FiniteHorizon(30.0, generator=rng),
        FiniteHorizon(30.0, start=sphere.normalize),
        Integrated(30.0, Euler(), generator=rng),
    )
    for settle, found in ((looking, True), (alone, False)):
        for inner in settle:
            wrapped = (StateNoise(inner, 0.1, rng), FrequencyDisorder(inner, 0.1, 30.0, rng))
            assert [s.within_sequence for s in (inner, *wrapped)] == [found] * 3
    assert start.within_sequence


def test_devices_compare(rng):
    device, other = (DeviceMismatch(drive, 0.5, heads=2, tokens=3, generator=rng) for _ in "ab")
    assert device == device
    assert device != other
    assert len({device, other}) == 2


def test_they_show_what_they_are(rng):
    shown = repr(StateNoise(FiniteHorizon(30.0, generator=rng), 0.1, rng))
    assert shown == "StateNoise(settle=FiniteHorizon(horizon=30.0, start=None), scale=0.1)"


@pytest.mark.parametrize("scale", [-0.1, math.nan, math.inf])
def test_scale_is_not_negative(scale, rng):
    for build in (
        lambda: Mismatch(drive, scale, rng),
        lambda: DeviceMismatch(drive, scale, 1, 1, rng),
        lambda: StateNoise(sphere.normalize, scale, rng),
        lambda: FrequencyDisorder(sphere.normalize, scale, 30.0, rng),
        lambda: SequentialStart(scale, rng),
    ):
        with pytest.raises(ValueError, match=rf"scale >= 0, got {scale}"):
            build()


@pytest.mark.parametrize("horizon", [0.0, -1.0, math.nan, math.inf])
def test_horizon_is_positive(horizon, rng):
    for build in (
        lambda: FrequencyDisorder(sphere.normalize, 0.1, horizon, rng),
        lambda: FiniteHorizon(horizon, generator=rng),
        lambda: Integrated(horizon, Euler(), generator=rng),
    ):
        with pytest.raises(ValueError, match=rf"positive, finite time, got horizon={horizon}"):
            build()


def test_a_start_is_given_once(rng):
    for given in ({}, {"generator": rng, "start": sphere.normalize}):
        with pytest.raises(ValueError, match=r"FiniteHorizon .*start=.*or generator=.*not both"):
            FiniteHorizon(30.0, **given)
        with pytest.raises(ValueError, match="Integrated needs to know where"):
            Integrated(30.0, Euler(), **given)


def test_wrong_kinds_of_arguments_are_named(rng):
    owner = UniformStart(rng)
    for check, given, said in (  # past the tests' own checks of types
        (check_generator, 0, r"UniformStart draws from a torch\.Generator, got 0\. Give"),
        (check_horizon, "30", "positive, finite time, got horizon='30'"),
        (check_scale, "0.5", r"a number scale >= 0, got '0\.5'"),
    ):
        with pytest.raises(ValueError, match=said):
            inspect.unwrap(check)(owner, given)


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing_draws_the_same_or_says_so(reentrant, rng):
    h = torch.randn(5, 3, generator=rng, requires_grad=True)

    def slope(generator, call):
        generator.manual_seed(1)
        z = call(StateNoise(FiniteHorizon(0.5, generator=generator), 0.1, generator))
        return torch.autograd.grad(z[:, 0].sum(), h)[0] if not reentrant else backward(z)

    def backward(z):  # a reentrant checkpoint knows .backward() only
        h.grad = None
        z[:, 0].sum().backward()
        return h.grad

    def again(device):
        return checkpoint(device, h, use_reentrant=reentrant)

    with torch.random.fork_rng():
        own = torch.default_generator
        torch.testing.assert_close(slope(own, again), slope(own, lambda device: device(h)))
    with pytest.raises(RuntimeError, match=r"checkpointing .*generator=torch\.default_generator"):
        slope(rng, again)
