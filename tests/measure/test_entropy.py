"""Normalised entropy of causal rows: its extremes, and a row by hand."""

import math

import pytest
import torch

from accuracy import ROUNDING
from lohe.measure.entropy import causal_entropy


def test_uniform_attention_has_entropy_one():
    n = 12
    attention = torch.ones(n, n, dtype=torch.float64).tril()
    attention = attention / attention.sum(dim=-1, keepdim=True)
    torch.testing.assert_close(
        causal_entropy(attention), torch.ones(n - 1, dtype=torch.float64), rtol=0, atol=ROUNDING
    )


def test_attention_to_one_token_has_none():
    assert causal_entropy(torch.eye(5).expand(2, 3, 5, 5)).eq(0).all()


def test_a_row_by_hand():
    attention = torch.tensor([[1, 0, 0], [0.25, 0.75, 0], [0.5, 0.5, 0]], dtype=torch.float64)
    found = causal_entropy(attention)
    first = (0.25 * math.log(4) + 0.75 * math.log(4 / 3)) / math.log(2)
    assert found.tolist() == pytest.approx([first, math.log(2) / math.log(3)], abs=ROUNDING)


@pytest.mark.parametrize("power", [1.01, 2, 4])
def test_a_power_of_the_weights_never_raises_their_entropy(power, rng):
    """Sec. 4.3, of given states: dH/dp = -p Var(ln a) for weights ∝ a^p."""
    plain = torch.rand(5, 12, 12, generator=rng, dtype=torch.float64).tril()
    sharp = plain**power
    flat, steep = (causal_entropy(w / w.sum(dim=-1, keepdim=True)) for w in (plain, sharp))
    assert (steep <= flat + ROUNDING).all()
    assert (steep < flat).any()


def test_entropy_does_not_depend_on_the_order_of_the_keys(rng):
    attention = torch.rand(8, 8, generator=rng, dtype=torch.float64).tril()
    attention = attention / attention.sum(dim=-1, keepdim=True)
    last = attention[-1, torch.randperm(8, generator=rng)]
    turned = torch.cat([attention[:-1], last[None]])
    torch.testing.assert_close(causal_entropy(turned), causal_entropy(attention))
