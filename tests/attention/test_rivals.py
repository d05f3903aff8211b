"""Softmax's relatives: each does what its name says, and no more."""

import math

import pytest
import torch

import lohe
from accuracy import ROUNDING
from lohe.attention import (
    AlibiAttention,
    CosineAttention,
    PositionedAttention,
    RotaryAttention,
    TemperatureAttention,
)
from lohe.attention.rivals import alibi_slopes, turned

HEADS, TOKENS, D_MODEL = 3, 10, 12
BUILD = {
    "temperature": lambda **o: TemperatureAttention(D_MODEL, HEADS, **o),
    "positions": lambda **o: PositionedAttention(D_MODEL, HEADS, TOKENS, deviation=1.0, **o),
    "rotary": lambda **o: RotaryAttention(D_MODEL, HEADS, **o),
    "alibi": lambda **o: AlibiAttention(D_MODEL, HEADS, **o),
    "cosine": lambda **o: CosineAttention(D_MODEL, HEADS, **o),
}
EACH = pytest.mark.parametrize("name", BUILD)


@pytest.fixture
def x(rng):
    return torch.randn(2, TOKENS, D_MODEL, dtype=torch.float64, generator=rng)


def plain(rng, layer, **options):
    """Softmax attention with the same projections."""
    other = lohe.SoftmaxAttention(D_MODEL, HEADS, generator=rng, **options).double()
    other.load_state_dict(layer.state_dict(), strict=False)
    return other


def scores(layer, x):
    q, k, _ = layer.front_end(x)
    s = q @ k.mT / q.shape[-1] ** 0.5
    bias = layer.score_bias(q)
    return s if bias is None else s + bias


@EACH
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("padded", [False, True])
def test_fused_and_plain_weights_agree_also_where_a_row_has_no_key(rng, x, name, causal, padded):
    layer = BUILD[name](causal=causal, generator=rng).double()
    key_mask = torch.rand(2, TOKENS, generator=rng) > 0.4 if padded else None
    if key_mask is not None:
        key_mask[0, :2] = False  # causal: the first queries of one sequence have no key at all
    outputs, gradients = [], []
    for need_weights in (False, True):
        inside = x.clone().requires_grad_()
        out = layer(inside, key_mask=key_mask, need_weights=need_weights)
        out = out[0] if need_weights else out
        outputs.append(out)
        gradients.append(torch.autograd.grad(out.square().sum(), inside)[0])
    torch.testing.assert_close(*outputs, rtol=0, atol=ROUNDING)
    torch.testing.assert_close(*gradients, rtol=0, atol=ROUNDING)
    _, weights = layer(x, key_mask=key_mask, need_weights=True)
    expected = scores(layer, x)
    allowed = torch.ones(2, HEADS, TOKENS, TOKENS, dtype=torch.bool)
    allowed = allowed.tril() if causal else allowed
    allowed = allowed if key_mask is None else allowed & key_mask[:, None, None]
    expected = expected.masked_fill(~allowed, -torch.inf).softmax(-1).nan_to_num()
    torch.testing.assert_close(weights, expected, rtol=0, atol=ROUNDING)


@EACH
def test_everything_learns(rng, x, name):
    layer = BUILD[name](causal=True, generator=rng).double()
    layer(x).square().sum().backward()
    for parameter in layer.parameters():
        assert (parameter.grad != 0).any()


@EACH
def test_half_precision_stays_close(rng, x, name):
    layer = BUILD[name](causal=True, generator=rng)
    exact = layer(x.float())
    with torch.autocast("cpu", torch.bfloat16):
        assert (layer(x.float()) - exact).abs().max() < 0.05 * exact.abs().max()
        assert layer.front_end(x.float())[0].dtype == torch.bfloat16


def test_temperature_one_is_softmax_and_another_divides_the_scores(rng, x):
    layer = TemperatureAttention(D_MODEL, HEADS, causal=True, generator=rng).double()
    assert torch.equal(layer(x), plain(rng, layer, causal=True)(x))
    hot = TemperatureAttention(D_MODEL, HEADS, temperature=2.5, causal=True).double()
    hot.load_state_dict({"log_temperature": hot.log_temperature} | plain(rng, layer).state_dict())
    torch.testing.assert_close(scores(hot, x), scores(layer, x) / 2.5, rtol=1e-7, atol=0)


def test_positions_are_added_to_the_input_and_count_as_anchors_do(rng, x):
    layer = PositionedAttention(D_MODEL, HEADS, 20, generator=rng).double()
    assert torch.equal(layer(x), plain(rng, layer)(x + layer.table[:TOKENS]))
    big = PositionedAttention(128, 4, 50, generator=rng)
    oscillator = lohe.OscillatorAttention(128, 4, 50, d_osc=32, generator=rng)
    sizes = [sum(p.numel() for p in m.parameters()) for m in (big, oscillator)]
    assert big.table.numel() == oscillator.anchors.numel() == 50 * 128
    assert sizes[0] == sizes[1]
    assert abs(big.table.std() / 0.02 - 1) < 0.05
    with pytest.raises(ValueError, match=r"for 20 tokens, got 21.*max_tokens >= 21"):
        layer(torch.zeros(1, 21, D_MODEL, dtype=torch.float64))


def test_rotary_scores_depend_on_the_distance_alone(rng):
    layer = RotaryAttention(16, 2, generator=rng).double()
    word = torch.randn(1, 1, 16, dtype=torch.float64, generator=rng).expand(1, TOKENS, 16)
    s = scores(layer, word)[0]  # the same q and k everywhere: a Toeplitz matrix
    torch.testing.assert_close(s[:, 1:, 1:], s[:, :-1, :-1], rtol=0, atol=ROUNDING)
    assert (s[:, 0] - s[:, 0, :1]).abs().max() > 1e-3
    unturned = scores(plain_16(layer), word)[0]
    diagonal = s.diagonal(dim1=1, dim2=2) - unturned.diagonal(dim1=1, dim2=2)
    assert diagonal.abs().max() < ROUNDING


def plain_16(layer):
    other = lohe.SoftmaxAttention(16, 2).double()
    other.load_state_dict(layer.state_dict())
    return other


def test_rotary_positions_are_complex_phases(rng):
    layer = RotaryAttention(16, 2, base=100.0, generator=rng)
    x = torch.randn(3, TOKENS, 8, dtype=torch.float64, generator=rng)
    found = torch.view_as_complex(
        turned(x, layer.angles(TOKENS, 8, x.device)).unflatten(-1, (4, 2))
    )
    pairs = torch.view_as_complex(x.unflatten(-1, (4, 2)))
    for t in range(TOKENS):
        for k in range(4):
            phase = torch.exp(torch.tensor(1j * t * 100.0 ** (-k / 4), dtype=torch.complex128))
            torch.testing.assert_close(found[:, t, k], pairs[:, t, k] * phase)


def test_rotary_positions_need_pairs():
    with pytest.raises(ValueError, match="pairs of channels, and a head has 3"):
        RotaryAttention(12, 4)


@pytest.mark.parametrize("heads", [1, 2, 3, 4, 5, 8, 12])
def test_alibi_biases_fall_linearly_with_distance_at_each_heads_slope(rng, heads):
    layer = AlibiAttention(12 * heads, heads, generator=rng).double()
    bias = layer.score_bias(torch.zeros(1, heads, TOKENS, 4, dtype=torch.float64))
    assert bias.shape == (1, heads, TOKENS, TOKENS)
    slope = torch.tensor(alibi_slopes(heads)).double()
    i, j = torch.meshgrid(torch.arange(TOKENS), torch.arange(TOKENS), indexing="ij")
    torch.testing.assert_close(bias[0], -slope[:, None, None] * (i - j).abs())
    assert len(set(alibi_slopes(heads))) == heads
    assert all(2**-8 <= m < 1 for m in alibi_slopes(heads))
    x = torch.randn(1, TOKENS, 12 * heads, dtype=torch.float64, generator=rng)
    torch.nn.init.zeros_(layer.to_q.weight)  # the bias alone: geometric weights
    layer.causal = True
    _, weights = layer(x, need_weights=True)
    assert (weights.triu(1) == 0).all()
    ratio = weights[0, :, -1, :-1] / weights[0, :, -1, 1:]
    torch.testing.assert_close(ratio, torch.exp(-slope)[:, None].expand_as(ratio))


def test_alibi_slopes_of_any_number_of_heads():
    assert alibi_slopes(8) == [2.0**-h for h in range(1, 9)]
    for heads in (3, 5, 6, 7, 12):  # those of the power below first; the others lie between
        power = 2 ** int(math.log2(heads))
        assert alibi_slopes(heads)[:power] == alibi_slopes(power)
        assert set(alibi_slopes(heads)[power:]) == set(
            alibi_slopes(2 * power)[0::2][: heads - power]
        )


def test_cosine_scores_are_bounded_and_blind_to_the_length_of_q_and_k(rng, x):
    layer = CosineAttention(D_MODEL, HEADS, scale=7.0, generator=rng).double()
    before = layer(x)
    s = scores(layer, x)
    assert s.abs().max() <= 7.0 * (1 + 1e-7)
    q, k = (to(x).unflatten(-1, (HEADS, -1)).transpose(1, 2) for to in (layer.to_q, layer.to_k))
    cosine = torch.cosine_similarity(q[:, :, :, None], k[:, :, None], dim=-1)
    torch.testing.assert_close(s, 7.0 * cosine, rtol=1e-6, atol=1e-9)  # log 7 is kept in float32
    with torch.no_grad():
        layer.to_q.weight *= 13.0
        layer.to_k.weight *= 0.2
    torch.testing.assert_close(layer(x), before, rtol=0, atol=ROUNDING)


@pytest.mark.parametrize("bad", [0.0, -1.0, math.inf])
def test_a_scale_that_has_no_logarithm_is_explained(bad):
    with pytest.raises(ValueError, match=f"scale must be positive and finite, got {bad}"):
        CosineAttention(D_MODEL, HEADS, scale=bad)
    with pytest.raises(ValueError, match="temperature must be positive and finite"):
        TemperatureAttention(D_MODEL, HEADS, temperature=bad)
