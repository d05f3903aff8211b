"""Token by token equals all at once."""

import copy

import pytest
import torch

import lohe
from accuracy import ROUNDING

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
