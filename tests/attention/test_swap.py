"""Oscillator attention in models that were written for nn.MultiheadAttention."""

import copy

import pytest
import torch
from torch import nn

from accuracy import ROUNDING
from lohe.attention import MultiheadOscillatorAttention, OscillatorAttention, swap_attention


def encoder(**options) -> nn.TransformerEncoder:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(
        16, 4, 32, dropout=0.0, batch_first=True, dtype=torch.float64, **options
    )
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=not options)


@pytest.fixture
def x(rng):
    return torch.randn(3, 9, 16, dtype=torch.float64, generator=rng)


PADS = torch.arange(9) >= torch.tensor([[9], [6], [4]])


@pytest.mark.parametrize("mode", ["train", "eval", "inference"])
def test_pads_are_ignored_in_every_mode(rng, x, mode):
    model = swap_attention(encoder(), 20, generator=rng).train(mode == "train")
    with torch.inference_mode(mode == "inference"):
        out = model(x, src_key_padding_mask=PADS)
        changed = x.masked_fill(PADS[..., None], 7.0)
        again = model(changed, src_key_padding_mask=PADS)
        alone = model(x[1:2, :6])
    keep = ~PADS
    torch.testing.assert_close(out[keep], again[keep], rtol=0, atol=ROUNDING)
    torch.testing.assert_close(out[1, :6], alone[0], rtol=0, atol=ROUNDING)


@pytest.mark.parametrize("is_causal", [None, True, False])
@pytest.mark.parametrize("boolean", [False, True])
def test_causal_masks_hide_the_future(rng, x, is_causal, boolean):
    model = swap_attention(encoder(norm_first=True), 20, generator=rng).eval()
    mask = nn.Transformer.generate_square_subsequent_mask(9, dtype=torch.float64)
    mask = mask == -torch.inf if boolean else mask
    out = model(x, mask=mask, is_causal=is_causal)
    later = x.clone()
    later[:, 5:] = 0
    torch.testing.assert_close(out[:, :5], model(later, mask=mask)[:, :5], rtol=0, atol=ROUNDING)
    assert (out[:, 5:] - model(later, mask=mask)[:, 5:]).abs().max() > 1e-3


@pytest.mark.parametrize("bias", [True, False])
def test_weights_are_carried_over(rng, bias):
    original = nn.MultiheadAttention(16, 4, bias=bias, batch_first=True, dtype=torch.float64)
    kept = copy.deepcopy(original.state_dict())
    new = swap_attention(original, 20, generator=rng)
    assert isinstance(new, MultiheadOscillatorAttention)
    layer = new.layer
    carried = torch.cat([layer.to_f.weight, layer.to_g.weight, layer.to_v.weight])
    assert torch.equal(carried, kept["in_proj_weight"])
    assert torch.equal(layer.to_out.weight, kept["out_proj.weight"])
    if bias:
        carried = torch.cat([layer.to_f.bias, layer.to_g.bias, layer.to_v.bias])
        assert torch.equal(carried, kept["in_proj_bias"])
        assert torch.equal(layer.to_out.bias, kept["out_proj.bias"])
    else:
        assert layer.to_f.bias is None
        assert (layer.to_out.bias == 0).all()


@pytest.mark.parametrize("causal", [False, True])
def test_a_trained_softmax_model_runs_on_oscillators_as_it_is(x, causal):
    """Orthonormal anchors, exponential couplings, a large gain: `theory.uniform_share`."""
    softmax = encoder().train()  # the fused path of eval mode has a mask of its own for pads
    ours = swap_attention(copy.deepcopy(softmax), 9, d_osc=9, coupling="exp", gain=1e8)
    for module in ours.modules():
        if isinstance(module, OscillatorAttention):
            module.anchors.data[:] = torch.eye(9)
    mask = nn.Transformer.generate_square_subsequent_mask(9, dtype=x.dtype) if causal else None
    pads = torch.zeros(3, 9, dtype=x.dtype).masked_fill(PADS, -torch.inf)
    out, expected = (m(x, mask=mask, src_key_padding_mask=pads) for m in (ours, softmax))
    torch.testing.assert_close(out[~PADS], expected[~PADS], rtol=0, atol=1e-6)


def test_sequence_first_and_unbatched_inputs(rng, x):
    first = swap_attention(nn.MultiheadAttention(16, 4, dtype=torch.float64), 20, generator=rng)
    second = copy.deepcopy(first)
    second.batch_first = True
    out, weights = first(*(x.transpose(0, 1),) * 3)
    wanted, same = second(x, x, x)
    torch.testing.assert_close(out.transpose(0, 1), wanted)
    torch.testing.assert_close(weights, same)
    assert weights.shape == (3, 9, 9)
    one, its = first(x[0], x[0], x[0], average_attn_weights=False)
    torch.testing.assert_close(one, wanted[0])
    assert its.shape == (4, 9, 9)
    assert first(x, x, x, need_weights=False)[1] is None


def test_a_mask_for_each_head(rng, x):
    attention = swap_attention(
        nn.MultiheadAttention(16, 4, batch_first=True, dtype=torch.float64), 20, generator=rng
    )
    ignore = torch.rand(12, 9, 9, generator=rng) > 0.5
    _, weights = attention(x, x, x, attn_mask=ignore, average_attn_weights=False)
    assert (weights[ignore.unflatten(0, (3, 4))] == 0).all()


def test_cross_attention_of_a_decoder(rng, x):
    layer = nn.TransformerDecoderLayer(16, 4, 32, 0.0, batch_first=True, dtype=torch.float64)
    model = swap_attention(nn.TransformerDecoder(layer, 2), 20, generator=rng)
    memory = torch.randn(3, 13, 16, dtype=torch.float64, generator=rng)
    mask = nn.Transformer.generate_square_subsequent_mask(9, dtype=torch.float64)
    assert model(x, memory, tgt_mask=mask, tgt_is_causal=True).shape == x.shape
    assert sum(isinstance(m, MultiheadOscillatorAttention) for m in model.modules()) == 4


def test_a_swapped_model_learns(rng, x):
    model = swap_attention(encoder(), 20, d_osc=4, sharpness=2, generator=rng)
    target = x.flip(1)
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    losses = []
    for _ in range(60):
        optimizer.zero_grad()
        loss = (model(x) - target).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]


REFUSED = {
    "add_bias_kv=True": nn.MultiheadAttention(16, 4, add_bias_kv=True),
    "add_zero_attn=True": nn.MultiheadAttention(16, 4, add_zero_attn=True),
    "kdim or vdim": nn.MultiheadAttention(16, 4, kdim=8),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_has_no_counterpart_is_refused(what):
    with pytest.raises(ValueError, match=what):
        swap_attention(REFUSED[what], 20)


def test_other_refusals(rng, x):
    with pytest.raises(ValueError, match=r"holds no nn.MultiheadAttention"):
        swap_attention(nn.Linear(3, 3), 20)
    model = swap_attention(encoder(), 20, generator=rng)
    with pytest.raises(ValueError, match="finite biases"):
        model(x, mask=torch.full((9, 9), 0.5, dtype=torch.float64))
    attention = model.layers[0].self_attn
    with pytest.raises(ValueError, match="needs the attn_mask"):
        attention(x, x, x, is_causal=True)


def test_one_module_under_two_names_is_swapped_under_both(rng):
    shared = nn.MultiheadAttention(16, 4, batch_first=True)
    both = swap_attention(nn.ModuleList([shared, shared]), 20, generator=rng)
    assert both[0] is both[1]
    assert isinstance(both[0], MultiheadOscillatorAttention)


def test_a_hint_of_causality_means_the_mask_that_comes_with_it(rng):
    """Fewer queries than keys: PyTorch's first query is at the first key, ours at a later one."""
    layer = swap_attention(nn.MultiheadAttention(16, 4, batch_first=True), 20, generator=rng)
    q, k = torch.randn(1, 3, 16, generator=rng), torch.randn(1, 7, 16, generator=rng)
    hidden = torch.ones(3, 7, dtype=torch.bool).triu(1)
    with_hint, without = (layer(q, k, k, attn_mask=hidden, is_causal=x)[0] for x in (True, False))
    assert torch.equal(with_hint, without)


def test_what_was_frozen_stays_frozen(rng):
    model = swap_attention(encoder().requires_grad_(False), 20, generator=rng)
    trained = [name for name, p in model.named_parameters() if p.requires_grad]
    assert [name.rpartition(".")[2] for name in trained] == ["anchors", "anchors"]
    layer = swap_attention(nn.MultiheadAttention(16, 4), 20, generator=rng, freeze_values=True)
    frozen = [name for name, p in layer.named_parameters() if not p.requires_grad]
    assert frozen == ["layer.to_v.weight", "layer.to_v.bias"]
