"""Token by token equals all at once."""

import copy

import pytest
import torch

import lohe
from accuracy import ROUNDING
from lohe.models import Amplified
from lohe.substrates import FiniteHorizon, SequentialStart

OPTIONS = {
    "p = 1": {},
    "p = 2 as a state": {"sharpness": 2},
    "real p": {"sharpness": 2.5},
    "gain": {"gain": "learned"},
    "free anchors": {"anchors": "free"},
    "pads read": {"pads": "as-published"},
    "d_osc = 5": {"d_osc": 5},
}


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("steps", [[1] * 15, [6, 1, 1, 4, 3], [15]])
def test_decoding_equals_the_full_forward(rng, name, padded, steps):
    layer = lohe.OscillatorAttention(8, 2, 60, causal=True, generator=rng, **OPTIONS[name]).double()
    x = torch.randn(3, 15, 8, dtype=torch.float64, generator=rng)
    key_mask = torch.rand(3, 15, generator=rng) > 0.3 if padded else None
    with torch.no_grad():
        whole = layer(x, key_mask=key_mask)
    cache, rows = None, []
    for n in steps:
        at = slice(cache.tokens if cache else 0, (cache.tokens if cache else 0) + n)
        mask = None if key_mask is None else key_mask[:, at]
        out, cache = layer.decode(x[:, at], cache, key_mask=mask)
        rows.append(out)
    torch.testing.assert_close(torch.cat(rows, dim=1), whole, rtol=0, atol=ROUNDING)


def test_a_state_replaces_the_values_at_p_1(rng):
    x = torch.randn(1, 50, 64, generator=rng)
    bytes_held = {}
    for sharpness in (1, 2.5):
        layer = lohe.OscillatorAttention(64, 4, 50, sharpness=sharpness, causal=True, generator=rng)
        _, cache = layer.decode(x)
        assert (cache.v is None) == (sharpness == 1)
        bytes_held[sharpness] = cache.nbytes
    state = 4 * 4 * (3 * 16 + 3)  # float32, heads, (d_osc + 1) x (d_h + 1) less the corner
    assert bytes_held[1] == 4 * 50 * 64 + state
    assert bytes_held[2.5] == 2 * 4 * 50 * 64


def test_decoding_past_the_anchors_is_explained(rng):
    layer = lohe.OscillatorAttention(8, 2, 5, causal=True, generator=rng)
    _, cache = layer.decode(torch.zeros(1, 4, 8))
    with pytest.raises(ValueError, match="holds 4 tokens of at most 5; 2 more do not fit"):
        layer.decode(torch.zeros(1, 2, 8), cache)
    with pytest.raises(ValueError, match="started with a batch of 1, got 2"):
        layer.decode(torch.zeros(2, 1, 8), cache)


@pytest.mark.parametrize("other", [{}, {"sharpness": 4}, {"d_osc": 8}])
def test_a_cache_belongs_to_its_layer(other, rng):
    """Another one would go on with keys that it does not have, or with the wrong state."""
    layer, stranger = (
        lohe.OscillatorAttention(8, 2, 5, causal=True, generator=rng, **options)
        for options in ({}, other)
    )
    _, cache = layer.decode(torch.zeros(1, 3, 8))
    with pytest.raises(ValueError, match="holds 3 tokens as another layer sees them"):
        stranger.decode(torch.zeros(1, 1, 8), cache)
    branch = copy.deepcopy(cache)  # as a beam search does
    layer.settle = lambda h: h  # another physics may go on with it
    layer.decode(torch.zeros(1, 1, 8), cache)
    layer.decode(torch.zeros(1, 1, 8), branch)


def test_only_a_causal_layer_decodes(rng):
    with pytest.raises(ValueError, match="causal=True"):
        lohe.OscillatorAttention(8, 2, 5, generator=rng).decode(torch.zeros(1, 1, 8))


@pytest.mark.parametrize("key_mask", [torch.zeros(2, 3), torch.ones(2, 1).bool()])
def test_a_mask_of_keys_is_checked_as_elsewhere(rng, key_mask):
    """An additive one, 0 where it may attend, would have been turned round."""
    layer = lohe.OscillatorAttention(8, 2, 5, causal=True, generator=rng)
    with pytest.raises(ValueError, match="`key_mask` must be"):
        layer.decode(torch.zeros(2, 3, 8), key_mask=key_mask)


@pytest.mark.parametrize("sharpness", [1, 2.5])
@pytest.mark.parametrize("where", ["settle", "to_out"])
def test_what_failed_can_be_tried_again(rng, sharpness, where):
    """Whether it failed before the readout or after it."""
    layer = lohe.OscillatorAttention(8, 2, 9, sharpness=sharpness, causal=True, generator=rng)
    x = torch.randn(2, 5, 8, generator=rng)
    _, cache = layer.decode(x[:, :4])
    with pytest.MonkeyPatch.context() as patch:
        whole = layer if where == "settle" else layer.to_out
        patch.setattr(whole, "settle" if where == "settle" else "forward", lambda h: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            layer.decode(x[:, 4:], cache, key_mask=torch.zeros(2, 1).bool())
    out, cache = layer.decode(x[:, 4:], cache)
    assert cache.tokens == 5
    torch.testing.assert_close(out, layer(x)[:, 4:], rtol=0, atol=1e-6)


def test_what_counts_tokens_from_the_first_does_not_decode(rng):
    amplified = Amplified().build(8, 2, 9, causal=True, generator=rng)
    with pytest.raises(ValueError, match="CouplingAmplification takes the first token that it is"):
        amplified.decode(torch.zeros(1, 1, 8))
    with pytest.raises(ValueError, match="which places 2 queries have among 5 keys is not said"):
        amplified.attend(torch.zeros(1, 2, 8), *2 * (torch.zeros(1, 5, 8),))
    layer = lohe.OscillatorAttention(8, 2, 9, causal=True, generator=rng)
    layer.settle = FiniteHorizon(1.0, start=SequentialStart(0.0, rng))
    with pytest.raises(ValueError, match="FiniteHorizon takes the first token that it is given"):
        layer.decode(torch.zeros(1, 1, 8))


@pytest.mark.parametrize("sharpness", [1, 4])
def test_one_key_is_read_wherever_the_oscillator_is(rng, sharpness):
    """Also on a device that leaves it opposite: sums over keys would cancel there."""
    layer = lohe.OscillatorAttention(8, 1, 64, causal=True, sharpness=sharpness, generator=rng)
    x = torch.randn(500, 1, 8, generator=rng)
    layer.settle = FiniteHorizon(0.01, generator=rng)
    out, _ = layer.decode(x)
    torch.testing.assert_close(out, layer.to_out(layer.to_v(x)), rtol=0, atol=1e-6)
