"""A layer whose oscillators do not rest where they should: the digital sides stay exact."""

import pytest
import torch

import lohe
from lohe.substrates import FiniteHorizon


@pytest.mark.parametrize("sharpness", [1, 2, 4])
@pytest.mark.parametrize("backend", ["auto", "chunked"])
def test_off_the_fixed_point_the_readout_is_as_exact_as_at_it(rng, sharpness, backend):
    """The first token of a causal sequence reads itself, wherever its oscillator is; what its key
    and its anchor are does not matter."""
    options = {"causal": True, "sharpness": sharpness, "backend": backend, "generator": rng}
    layer = lohe.OscillatorAttention(8, 1, 64, **options)
    x = torch.randn(500, 64, 8, generator=rng)
    layer.settle = FiniteHorizon(0.01, generator=rng)
    first = layer(x)[:, 0]
    exact = layer.to_out(layer.to_v(x[:, 0]))
    torch.testing.assert_close(first, exact, rtol=0, atol=1e-6)
    (gradient,) = torch.autograd.grad(first.sum(), layer.anchors)
    assert gradient.abs().max() < 1e-3


def test_exponential_couplings_that_overflow_are_named(rng):
    layer = lohe.OscillatorAttention(8, 2, 5, coupling="exp", generator=rng)
    with torch.no_grad():
        layer.to_f.weight.mul_(60)
    x = 3 * torch.randn(4, 5, 8, generator=rng)
    assert layer(x).isfinite().all()
    layer.settle = FiniteHorizon(1.0, generator=rng)
    with pytest.raises(ValueError, match="The drive of exponential couplings is not finite"):
        layer(x)


def test_a_device_may_be_a_module_and_its_successor_none(rng):
    layer = lohe.OscillatorAttention(8, 2, 5, generator=rng)
    exact, x = layer.settle, torch.randn(1, 5, 8, generator=rng)
    before = layer(x)
    layer.settle = torch.nn.Identity()
    assert not layer.ideal
    layer.settle = exact
    assert layer.ideal
    assert torch.equal(layer(x), before)
