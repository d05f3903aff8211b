"""Positions: none, sinusoids, a learned table."""

import math

import pytest
import torch
from torch import nn

from lohe.models.positions import positions, sinusoids


@pytest.mark.parametrize("d_model", [6, 7])
def test_sinusoids_are_the_published_ones(d_model):
    table = sinusoids(5, d_model)
    for t in range(5):
        for channel in range(d_model):
            wave = math.cos if channel % 2 else math.sin
            phase = t / 10_000 ** (channel // 2 * 2 / d_model)
            assert table[t, channel].item() == pytest.approx(wave(phase), abs=1e-7)


def test_sinusoids_are_added_and_not_stored(rng):
    module = positions("sinusoidal", 5, 4)
    x = torch.randn(2, 3, 4, generator=rng)
    assert torch.equal(module(x), x + sinusoids(5, 4)[:3])
    assert not module.state_dict()
    assert not list(module.parameters())
    assert module.double()(x.double()).dtype == torch.float64


def test_learned_positions_start_small_and_train(rng):
    module = positions("learned", 400, 50, rng)
    table = module.get_parameter("table")
    assert abs(table.std().item() / 0.02 - 1) < 0.03
    module(torch.zeros(2, 3, 50)).sum().backward()
    assert torch.equal(table.grad[:4, 0], torch.tensor([2.0, 2.0, 2.0, 0.0]))


def test_none_is_an_identity():
    assert isinstance(positions("none", 5, 4), nn.Identity)


def test_more_tokens_than_positions_are_explained():
    with pytest.raises(ValueError, match=r"for 5 tokens, got 6.*max_tokens >= 6"):
        positions("sinusoidal", 5, 4)(torch.zeros(1, 6, 4))


def test_an_unknown_kind_is_explained():
    with pytest.raises(ValueError, match=r"'rotary' is not known.*none, sinusoidal, learned"):
        positions("rotary", 5, 4)
