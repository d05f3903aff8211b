"""The two layers: one call, one set of rules."""

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.func import functional_call, grad, stack_module_state, vmap
from torch.nn import functional as F

import lohe
from accuracy import ROUNDING
from lohe import ops

OscillatorAttention, SoftmaxAttention = lohe.OscillatorAttention, lohe.SoftmaxAttention


def oscillator(rng, **options):
    return OscillatorAttention(12, 3, 20, generator=rng, **options).double()


def softmax(rng, **options):
    return SoftmaxAttention(12, 3, generator=rng, **options).double()


@pytest.fixture
def x(rng):
    return torch.randn(2, 10, 12, dtype=torch.float64, generator=rng)


EITHER = pytest.mark.parametrize("build", [oscillator, softmax])


@EITHER
@pytest.mark.parametrize("causal", [False, True])
def test_weights_come_with_the_output_they_give(rng, x, build, causal):
    layer = build(rng, causal=causal)
    key_mask = torch.rand(2, 10, generator=rng) > 0.3
    key_mask[:, 0] = True
    out, weights = layer(x, key_mask=key_mask, need_weights=True)
    assert weights.shape == (2, 3, 10, 10)
    assert (weights.sum(dim=-1) - 1).abs().max() < ROUNDING
    assert (weights.masked_select(~key_mask[:, None, None]) == 0).all()
    assert not causal or (weights.triu(1) == 0).all()
    torch.testing.assert_close(out, layer(x, key_mask=key_mask), rtol=0, atol=ROUNDING)
    v = layer.to_v(x).unflatten(-1, (3, 4)).transpose(1, 2)
    by_hand = layer.to_out((weights @ v).transpose(1, 2).flatten(2))
    torch.testing.assert_close(out, by_hand, rtol=0, atol=ROUNDING)


@EITHER
def test_a_query_without_any_key_reads_nothing(rng, x, build):
    layer = build(rng)
    mask = torch.ones(10, 10, dtype=torch.bool)
    mask[4] = False
    out, weights = layer(x, mask=mask, need_weights=True)
    assert (weights[:, :, 4] == 0).all()
    torch.testing.assert_close(out[:, 4], layer.to_out.bias.expand(2, -1))
    torch.testing.assert_close(layer(x, mask=mask), out, rtol=0, atol=ROUNDING)


@EITHER
def test_frozen_values_stay_and_everything_else_trains(rng, x, build):
    layer = build(rng, freeze_values=True)
    layer(x).square().sum().backward()
    for name, parameter in layer.named_parameters():
        assert (parameter.grad is None) == (name == "to_v.weight"), name


@EITHER
def test_state_dict_round_trip_through_safetensors(rng, x, build, tmp_path):
    layer, other = build(rng), build(rng)
    assert not torch.equal(layer(x), other(x))
    save_file(layer.state_dict(), tmp_path / "layer.safetensors")
    other.load_state_dict(load_file(tmp_path / "layer.safetensors"))
    assert torch.equal(layer(x), other(x))


@EITHER
def test_a_generator_decides_the_parameters(build):
    one, two, three = (build(torch.Generator().manual_seed(s)).state_dict() for s in (0, 0, 1))
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert not any(torch.equal(one[name], three[name]) for name in one)


def test_initialisation_is_pytorchs_own():
    ours = OscillatorAttention(400, 4, 9, bias=True, generator=torch.Generator().manual_seed(0))
    theirs = torch.nn.Linear(400, 400)
    for mine, usual in zip(ours.to_f.parameters(), theirs.parameters(), strict=True):
        assert abs(mine.std() / usual.std() - 1) < 0.1
        assert mine.abs().max() <= 400**-0.5
    assert (ours.anchors.norm(dim=-1) - 1).abs().max() < 1e-6


def test_softmax_layer_is_pytorchs_multihead_attention(rng, x):
    layer = softmax(rng, bias=True)
    theirs = torch.nn.MultiheadAttention(12, 3, batch_first=True, dtype=torch.float64)
    with torch.no_grad():
        parts = (layer.to_q, layer.to_k, layer.to_v)
        theirs.in_proj_weight.copy_(torch.cat([p.weight for p in parts]))
        theirs.in_proj_bias.copy_(torch.cat([p.bias for p in parts]))
        theirs.out_proj.load_state_dict(layer.to_out.state_dict())
    pads = torch.zeros(2, 10, dtype=torch.bool)
    pads[0, 7:] = True
    wanted, weights = theirs(x, x, x, key_padding_mask=pads, average_attn_weights=False)
    out, ours = layer(x, key_mask=~pads, need_weights=True)
    torch.testing.assert_close(out, wanted, rtol=0, atol=ROUNDING)
    torch.testing.assert_close(ours, weights, rtol=0, atol=ROUNDING)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_softmax_layers_under_vmap_are_the_layers_one_by_one(rng, x, causal, padded, dtype):
    layers = [softmax(rng, causal=causal).to(dtype) for _ in range(3)]
    parameters, _ = stack_module_state(layers)
    key_mask = torch.rand(2, 10, generator=rng) > 0.5 if padded else None
    if key_mask is not None:
        key_mask[0] = False  # and rows without any key

    def loss(parameters):
        out = functional_call(layers[0], parameters, x.to(dtype), {"key_mask": key_mask})
        return out.square().sum()

    together = vmap(grad(loss))(parameters)
    for n, layer in enumerate(layers):
        layer(x.to(dtype), key_mask=key_mask).square().sum().backward()
        for name, parameter in layer.named_parameters():
            torch.testing.assert_close(together[name][n], parameter.grad)


def test_a_narrow_softmax_layer_has_scores_of_that_rank(rng, x):
    layer = softmax(rng, d_qk=2)
    out, weights = layer(x, need_weights=True)
    q, k = (to(x).unflatten(-1, (3, 2)).transpose(1, 2) for to in (layer.to_q, layer.to_k))
    torch.testing.assert_close(weights, (q @ k.mT / 2**0.5).softmax(-1), rtol=0, atol=ROUNDING)
    assert (torch.linalg.matrix_rank(q @ k.mT) == 2).all()
    assert layer.to_v.weight.shape == layer.to_out.weight.shape == (12, 12)
    torch.testing.assert_close(layer(x), out, rtol=0, atol=ROUNDING)
    whole = softmax(rng, d_qk=4)
    assert whole.to_q.weight.shape == softmax(rng).to_q.weight.shape
    with pytest.raises(ValueError, match="d_qk must be at least 1, got 0"):
        softmax(rng, d_qk=0)


def test_sphere_anchors_are_blind_to_length_and_free_ones_are_not(rng, x):
    for anchors, same in (("sphere", True), ("free", False)):
        layer = oscillator(rng, anchors=anchors)
        before = layer(x)
        with torch.no_grad():
            layer.anchors.mul_(torch.rand(3, 20, 1, generator=rng) * 5)
        assert torch.allclose(before, layer(x), rtol=0, atol=ROUNDING) == same


def test_pads_as_published_are_read_but_do_not_pull(rng, x):
    key_mask = torch.ones(2, 10, dtype=torch.bool)
    key_mask[:, 6:] = False
    masked, published = oscillator(rng), oscillator(rng, pads="as-published")
    published.load_state_dict(masked.state_dict())
    a, b = (layer(x, key_mask=key_mask, need_weights=True)[1] for layer in (masked, published))
    assert (a[..., 6:] == 0).all()
    assert (b[..., 6:] > 0).any()
    # where both read, they read in the same proportion: the oscillators settle at the same place
    torch.testing.assert_close(b[..., :6] / b[..., :6].sum(-1, keepdim=True), a[..., :6])


def test_learned_gain_starts_at_one_and_gets_a_gradient(rng, x):
    plain, gained = oscillator(rng), oscillator(rng, gain="learned")
    gained.load_state_dict(plain.state_dict(), strict=False)
    torch.testing.assert_close(gained(x), plain(x), rtol=0, atol=ROUNDING)
    gained(x).square().sum().backward()
    assert gained.log_gain is not None
    assert gained.log_gain.shape == (3,)
    assert (gained.log_gain.grad != 0).all()


def test_layer_is_the_function_on_its_projections(rng, x):
    layer = oscillator(rng, sharpness=3, coupling="relu", causal=True)
    maps = (layer.to_f, layer.to_g, layer.to_v)
    f, g, v = (to(x).unflatten(-1, (3, 4)).transpose(1, 2) for to in maps)
    options = {"sharpness": 3, "coupling": "relu", "causal": True, "backend": "reference"}
    out = lohe.oscillator_attention(f, g, v, layer.anchors[:, :10], **options)
    torch.testing.assert_close(layer(x), layer.to_out(out.transpose(1, 2).flatten(2)))


def test_cross_attention_takes_the_anchors_of_the_keys(rng, x):
    layer = oscillator(rng)
    memory = torch.randn(2, 17, 12, dtype=torch.float64, generator=rng)
    out, weights = layer.attend(x, memory, memory, need_weights=True)
    assert out.shape == (2, 10, 12)
    assert weights.shape == (2, 3, 10, 17)


def test_settle_and_drive_can_be_replaced(rng, x):
    layer = oscillator(rng)
    plain = layer(x)
    seen = {}

    def doubled(couplings, anchors):
        seen["couplings"] = couplings.shape
        return 2 * couplings @ anchors

    layer.drive = doubled
    torch.testing.assert_close(layer(x), plain, rtol=0, atol=ROUNDING)  # Eq. 4 ignores the scale
    assert seen["couplings"] == (2, 3, 10, 10)
    layer.settle = lambda h: F.normalize(torch.ones_like(h), dim=-1)
    _, weights = layer(x, need_weights=True)
    assert (weights - weights[:, :, :1]).abs().max() == 0  # every oscillator at the same place
    assert "drive=" in repr(layer)
    assert "settle=" in repr(layer)


def test_a_replaced_settle_sees_the_true_drive_of_an_exponential_coupling(rng, x):
    layer = oscillator(rng, coupling="exp")
    f, g, v = layer.front_end(x, x, x)
    w = ops.couplings(layer.problem(f, g, v))
    seen = []
    layer.settle = lambda h: seen.append(h) or ops.fixed_point(h)
    layer(x)
    torch.testing.assert_close(seen[0], w @ F.normalize(layer.anchors[:, :10], dim=-1))


BAD = {
    "heads": ({"heads": 5}, "d_model=12 does not divide into heads=5"),
    "d_osc": ({"d_osc": 1}, "d_osc must be at least 2, got 1"),
    "max_tokens": ({"max_tokens": 0}, "max_tokens must be at least 1"),
    "anchors": ({"anchors": "circle"}, "anchors='circle' is not known. Choose from sphere, free"),
    "pads": ({"pads": "read"}, "Choose from masked, as-published"),
    "coupling": ({"coupling": "tanh"}, "Choose from softplus, relu, elu, exp"),
    "gain": ({"gain": "big"}, "gain must be a number > 0, \"learned\" or None, got 'big'"),
    "no gain": ({"gain": 0.0}, "gain must be a number > 0"),
    "sharpness": ({"sharpness": 0.9}, "sharpness must be a number >= 1"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_options_are_explained(name):
    changes, message = BAD[name]
    with pytest.raises(ValueError, match=message):
        OscillatorAttention(**{"d_model": 12, "heads": 3, "max_tokens": 20} | changes)


def test_more_tokens_than_anchors_are_explained(rng):
    with pytest.raises(ValueError, match=r"for 20 positions, got 21 tokens.*max_tokens >= 21"):
        oscillator(rng)(torch.zeros(1, 21, 12, dtype=torch.float64))


@EITHER
def test_input_of_a_wrong_shape_is_explained(rng, build):
    with pytest.raises(ValueError, match=r"d_model = 12\), got \(2, 5, 11\)"):
        build(rng)(torch.zeros(2, 5, 11, dtype=torch.float64))


@pytest.mark.parametrize(
    "build", [lambda: OscillatorAttention(12, 3, 20), lambda: SoftmaxAttention(12, 3)]
)
def test_the_whole_layer_is_on_the_default_device(build):
    with torch.device("meta"):  # as torch.set_default_device would have it
        layer, x = build(), torch.randn(2, 10, 12)
    assert {parameter.device.type for parameter in layer.parameters()} == {"meta"}
    assert layer(x).device.type == "meta"
