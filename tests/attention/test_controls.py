"""Controls: each is the oscillator layer with one part replaced."""

import pytest
import torch
from torch.nn import functional as F

import lohe
from accuracy import ROUNDING
from lohe import ops
from lohe.attention import DirectAttention, ExponentialAttention, PositionOffsetAttention

HEADS, TOKENS, D_MODEL, D_OSC = 3, 10, 12, 5
SHARP = {"sharpness": 4, "gain": "learned"}


@pytest.fixture
def x(rng):
    return torch.randn(2, TOKENS, D_MODEL, dtype=torch.float64, generator=rng)


@pytest.fixture
def key_mask(rng):
    mask = torch.rand(2, TOKENS, generator=rng) > 0.3
    mask[:, 0] = True
    return mask


def build(rng, kind=lohe.OscillatorAttention, **options):
    return kind(D_MODEL, HEADS, 20, D_OSC, generator=rng, **options).double()


def twins(rng, kind, mine, theirs):
    """A layer of this kind, and the oscillator layer with all that both have."""
    layer, oscillator = build(rng, kind, **mine), build(rng, **theirs)
    oscillator.load_state_dict(layer.state_dict(), strict=False)
    return layer, oscillator


@pytest.mark.parametrize("options", [{}, SHARP, {"sharpness": 2.5, "gain": 3.0}])
@pytest.mark.parametrize("causal", [False, True])
def test_without_dynamics_it_is_the_oscillator_layer_settled_at_that_z(
    rng, x, key_mask, options, causal
):
    options = options | {"causal": causal}
    direct, oscillator = twins(rng, DirectAttention, options, options)
    if direct.log_gain is not None:
        torch.nn.init.normal_(direct.log_gain, generator=rng)
        oscillator.load_state_dict(direct.state_dict(), strict=False)
    oscillator.settle = lambda h: direct.oscillators(x)
    out, weights = direct(x, key_mask=key_mask, need_weights=True)
    expected, theirs = oscillator(x, key_mask=key_mask, need_weights=True)
    torch.testing.assert_close(out, expected, rtol=0, atol=ROUNDING)
    torch.testing.assert_close(weights, theirs, rtol=0, atol=ROUNDING)
    torch.testing.assert_close(direct(x, key_mask=key_mask), out, rtol=0, atol=ROUNDING)
    mask = torch.ones(TOKENS, TOKENS, dtype=torch.bool).tril()
    assert (direct(x, mask=mask, need_weights=True)[1].triu(1) == 0).all()


def test_a_map_of_each_token_can_say_what_equal_couplings_say(rng, x):
    """With F = 0 every h_i is Σ r_j up to a factor, and so is U e_i where e has a constant."""
    direct, oscillator = twins(rng, DirectAttention, SHARP, SHARP)
    torch.nn.init.zeros_(oscillator.to_f.weight)
    x[..., 0] = 1
    with torch.no_grad():
        direct.to_z.weight.zero_()
        total = F.normalize(direct.anchors[:, :TOKENS], dim=-1).sum(1)
        direct.to_z.weight[:, 0] = total.flatten()
    torch.testing.assert_close(direct(x), oscillator(x), rtol=0, atol=ROUNDING)


def test_without_dynamics_an_oscillator_depends_on_its_own_token_alone(rng, x):
    layer = build(rng, DirectAttention)
    changed = x.clone()
    changed[:, 4] += 1
    moved = (layer.oscillators(changed) - layer.oscillators(x)).abs().amax(dim=(0, 1, 3))
    assert moved[4] > 1e-3
    assert moved.count_nonzero() == 1
    assert (layer.oscillators(x).norm(dim=-1) - 1).abs().max() < ROUNDING


def test_the_direct_layer_explains_what_it_refuses(rng):
    for changes, message in (
        ({"sharpness": 0.5}, "sharpness must be a number >= 1"),
        ({"gain": "big"}, "gain must be a number > 0, \"learned\" or None, got 'big'"),
    ):
        with pytest.raises(ValueError, match=message):
            build(rng, DirectAttention, **changes)
    with pytest.raises(ValueError, match=r"for 20 positions, got 21.*max_tokens >= 21"):
        build(rng, DirectAttention)(torch.zeros(1, 21, D_MODEL, dtype=torch.float64))


@pytest.mark.parametrize("causal", [False, True])
def test_the_exponential_readout_is_a_softmax_over_cosines(rng, x, key_mask, causal):
    layer = build(rng, ExponentialAttention, beta=3.0, causal=causal)
    out, weights = layer(x, key_mask=key_mask, need_weights=True)
    f, g, v = layer.front_end(x, x, x)
    z = layer.oscillators(layer.problem(f, g, v, key_mask=key_mask))
    cosine = z @ F.normalize(layer.anchors[:, :TOKENS], dim=-1).mT
    allowed = key_mask[:, None, None].expand_as(weights)
    allowed = allowed.tril() if causal else allowed
    expected = (layer.log_beta.exp()[:, None, None] * cosine).masked_fill(~allowed, -torch.inf)
    torch.testing.assert_close(weights, expected.softmax(-1), rtol=0, atol=ROUNDING)
    by_hand = layer.to_out((weights @ v).transpose(1, 2).flatten(2))
    torch.testing.assert_close(out, by_hand, rtol=0, atol=ROUNDING)
    assert torch.equal(layer(x, key_mask=key_mask), out)


def test_the_exponential_readout_is_uniform_as_beta_vanishes(rng, x):
    layer = build(rng, ExponentialAttention, beta=1e-9, causal=True)
    _, weights = layer(x, need_weights=True)
    uniform = torch.ones(TOKENS, TOKENS, dtype=torch.float64).tril()
    uniform = (uniform / uniform.sum(-1, keepdim=True)).expand_as(weights)
    torch.testing.assert_close(weights, uniform, rtol=0, atol=1e-8)


def test_the_exponential_readout_is_the_limit_of_sharp_ones(rng, x):
    """(1 + β z·r / p)^p -> exp(β z·r), with an error that falls like 1 / p."""
    beta, errors = 2.0, []
    exponential = build(rng, ExponentialAttention, beta=beta)
    _, limit = exponential(x, need_weights=True)
    for p in (100, 1000):
        sharp = build(rng, sharpness=p, gain=beta / p)
        sharp.load_state_dict(exponential.state_dict(), strict=False)
        errors.append((sharp(x, need_weights=True)[1] - limit).abs().max().item())
    assert errors[0] < 0.01
    assert errors[0] / errors[1] == pytest.approx(10, rel=0.05)


def test_a_row_without_any_key_reads_nothing(rng, x):
    mask = torch.ones(TOKENS, TOKENS, dtype=torch.bool)
    mask[4] = False
    for kind in (DirectAttention, ExponentialAttention):
        layer = build(rng, kind)
        inside = x.clone().requires_grad_()
        out, weights = layer(inside, mask=mask, need_weights=True)
        assert (weights[:, :, 4] == 0).all()
        torch.testing.assert_close(out[:, 4], layer.to_out.bias.expand(2, -1))
        assert torch.autograd.grad(out.sum(), inside)[0].isfinite().all()


@pytest.mark.parametrize("start", [1.5, 2, 4.0])
@pytest.mark.parametrize("causal", [False, True])
def test_learned_sharpness_starts_as_the_fixed_one(rng, x, key_mask, start, causal):
    options = {"gain": "learned", "causal": causal}
    fixed = build(rng, sharpness=start, **options)
    learned = build(rng, sharpness=start, learn_sharpness=True, **options)
    learned.load_state_dict(fixed.state_dict(), strict=False)
    torch.testing.assert_close(learned.sharpness, torch.full((HEADS,), float(start)).double())
    found, expected = learned(x, key_mask=key_mask), fixed(x, key_mask=key_mask)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)  # log(p - 1) in float32


def test_each_head_learns_its_own_sharpness(rng, x):
    layer = build(rng, sharpness=3, learn_sharpness=True)
    assert layer.log_excess is not None
    (gradient,) = torch.autograd.grad(layer(x).square().sum(), layer.log_excess)
    assert (gradient != 0).all()
    assert len(set(gradient.tolist())) == HEADS
    with torch.no_grad():
        layer.log_excess.copy_(torch.tensor([-1.0, 0.0, 2.0]))
    _, weights = layer(x, need_weights=True)
    for head, p in enumerate(layer.sharpness.tolist()):
        single = build(rng, sharpness=p)
        single.load_state_dict(layer.state_dict(), strict=False)
        theirs = single(x, need_weights=True)[1][:, head]
        torch.testing.assert_close(weights[:, head], theirs, rtol=0, atol=ROUNDING)


def test_learned_sharpness_decodes_and_says_so(rng, x):
    layer = build(rng, sharpness=3, learn_sharpness=True, gain="learned", causal=True)
    out, cache = layer.decode(x[:, :6])
    rest, _ = layer.decode(x[:, 6:], cache)
    torch.testing.assert_close(torch.cat([out, rest], 1), layer(x), rtol=0, atol=ROUNDING)
    assert "sharpness=learned" in repr(layer)


def test_sharpness_one_cannot_be_learned(rng):
    with pytest.raises(ValueError, match="a start above 1, got sharpness=1"):
        build(rng, learn_sharpness=True)


def test_a_layer_that_attends_in_its_own_way_does_not_decode(rng, x):
    for layer in (
        build(rng, ExponentialAttention, causal=True),
        PositionOffsetAttention(D_MODEL, HEADS, 20, causal=True, generator=rng).double(),
    ):
        with pytest.raises(ValueError, match="attends in a way of its own"):
            layer.decode(x)


def test_settling_is_replaceable_under_an_exponential_readout(rng, x):
    layer = build(rng, ExponentialAttention)
    plain = layer(x)
    layer.settle = lambda h: ops.fixed_point(2 * h)
    torch.testing.assert_close(layer(x), plain, rtol=0, atol=ROUNDING)
    with pytest.raises(ValueError, match=r"beta must be positive and finite, got 0\.0"):
        build(rng, ExponentialAttention, beta=0.0)
