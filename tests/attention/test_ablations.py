"""Appendix E: each alternative starts as the plain layer and changes what it says."""

import pytest
import torch

import lohe
from accuracy import ROUNDING
from lohe import ops
from lohe.attention import CouplingAmplification, PositionOffsetAttention
from lohe.substrates import FiniteHorizon


def layers(rng, cls=lohe.OscillatorAttention):
    plain = lohe.OscillatorAttention(8, 2, 12, causal=True, generator=rng).double()
    other = cls(8, 2, 12, causal=True, generator=rng).double()
    other.load_state_dict(plain.state_dict(), strict=False)
    return plain, other


def test_position_offsets_of_zero_change_nothing(rng):
    x = torch.randn(2, 10, 8, dtype=torch.float64, generator=rng)
    plain, offset = layers(rng, PositionOffsetAttention)
    torch.testing.assert_close(offset(x), plain(x), rtol=0, atol=ROUNDING)


def test_one_offset_for_all_distances_is_a_rotation_of_all_anchors(rng):
    x = torch.randn(2, 10, 8, dtype=torch.float64, generator=rng)
    plain, offset = layers(rng, PositionOffsetAttention)
    torch.nn.init.constant_(offset.phase_offsets, 1.3)
    torch.testing.assert_close(offset(x), plain(x), rtol=0, atol=ROUNDING)
    torch.nn.init.normal_(offset.phase_offsets, generator=rng)
    assert (offset(x) - plain(x)).abs().max() > 1e-3


def test_position_offset_turns_each_anchor_by_its_distance(rng):
    _, offset = layers(rng, PositionOffsetAttention)
    torch.nn.init.normal_(offset.phase_offsets, generator=rng)
    r = torch.nn.functional.normalize(offset.anchors.detach()[:, :10], dim=-1)
    turned = torch.view_as_complex(offset._turned(r, 10).detach())
    i, j = 7, 3
    expected = torch.view_as_complex(r)[:, j] * torch.exp(1j * offset.phase_offsets.detach()[i - j])
    torch.testing.assert_close(turned[:, i, j], expected)
    x = torch.randn(2, 10, 8, dtype=torch.float64, generator=rng)
    offset(x).square().sum().backward()
    assert (offset.phase_offsets.grad[:10] != 0).all()
    assert (offset.phase_offsets.grad[10:] == 0).all()


def test_amplification_sits_inside_the_coupling_function(rng):
    x = torch.randn(2, 10, 8, dtype=torch.float64, generator=rng)
    plain, amplified = layers(rng)
    amplified.to_f = CouplingAmplification(amplified.to_f, 2, 12).double()
    torch.testing.assert_close(amplified(x), plain(x), rtol=0, atol=ROUNDING)
    beta = torch.rand(2, 12, dtype=torch.float64, generator=rng) * 3 - 1
    amplified.to_f.coupling_gain.data = beta
    f, g, v = plain.front_end(x, x, x)
    scores = f @ g.mT / 2 * beta[:, :10, None].abs().clamp(min=0.1)
    expected = torch.nn.functional.softplus(scores).tril()
    f, g, v = amplified.front_end(x, x, x)
    w = ops.couplings(amplified.problem(f, g, v))
    torch.testing.assert_close(w, expected, rtol=0, atol=ROUNDING)


def test_offsets_say_that_they_add_for_themselves(rng):
    _, offset = layers(rng, PositionOffsetAttention)
    offset.drive = lambda couplings, anchors: 0 * anchors
    with pytest.raises(ValueError, match="would ignore drive="):
        offset(torch.zeros(1, 3, 8).double())


def test_offsets_of_zero_change_nothing_where_exponentials_are_large(rng):
    x = 40 * torch.randn(2, 10, 8, generator=rng)
    plain = lohe.OscillatorAttention(8, 2, 12, coupling="exp", generator=rng)
    offset = PositionOffsetAttention(8, 2, 12, coupling="exp", generator=rng)
    offset.load_state_dict(plain.state_dict(), strict=False)
    torch.testing.assert_close(offset(x), plain(x), rtol=0, atol=1e-4)


def test_an_overflow_on_a_device_is_named_here_too(rng):
    offset = PositionOffsetAttention(8, 2, 12, coupling="exp", generator=rng)
    offset.settle = FiniteHorizon(1.0, generator=rng)
    with pytest.raises(ValueError, match="The drive of exponential couplings is not finite"):
        offset(1e3 * torch.randn(2, 10, 8, generator=rng))


def test_offsets_settle_in_float32_under_autocast(rng):
    x = torch.randn(2, 10, 8, generator=rng)
    offset, seen = PositionOffsetAttention(8, 2, 12, generator=rng), []
    exact = offset.settle
    offset.settle = lambda h: seen.append(h.dtype) or exact(h)
    with torch.autocast("cpu", torch.bfloat16):
        offset(x)
    assert seen == [torch.float32]
