"""Mechanisms are values: hashable, JSON-able, told apart by their fields."""

import inspect
import json
from dataclasses import asdict, fields, replace

import pytest
import torch

from lohe.attention import OscillatorAttention, PositionOffsetAttention, SoftmaxAttention
from lohe.attention.oscillator import check_options
from lohe.models import (
    Amplified,
    ExponentialReadout,
    FrozenAnchors,
    LanguageModel,
    LearnedSharpness,
    Mechanism,
    NoDynamics,
    Oscillator,
    PositionOffset,
    RankMatchedSoftmax,
    Softmax,
    SoftmaxAlibi,
    SoftmaxCosine,
    SoftmaxPositions,
    SoftmaxRope,
    SoftmaxTemperature,
    attention_layers,
)
from lohe.tasks import GeneratedText
from lohe.train import AdamW, Run, train

ALL = [
    Softmax(),
    Softmax(freeze_values=True),
    RankMatchedSoftmax(d_qk=2),
    Oscillator(),
    Oscillator(d_osc=8, coupling="relu", sharpness=4, gain="learned", anchors="free"),
    PositionOffset(Oscillator(pads="as-published")),
    Amplified(),
    Amplified(PositionOffset()),
    SoftmaxTemperature(),
    SoftmaxPositions(),
    SoftmaxRope(),
    SoftmaxAlibi(octaves=4.0),
    SoftmaxCosine(),
    NoDynamics(d_osc=4, sharpness=4, gain="learned"),
    ExponentialReadout(d_osc=4, beta=4.0),
    LearnedSharpness(d_osc=4, gain="learned"),
    FrozenAnchors(d_osc=4, sharpness=4, gain="learned"),
]
EACH = pytest.mark.parametrize("mechanism", ALL, ids=repr)


@EACH
def test_a_mechanism_is_a_value(mechanism):
    assert isinstance(mechanism, Mechanism)
    assert eval(repr(mechanism)) == mechanism
    assert hash(eval(repr(mechanism))) == hash(mechanism)
    assert json.loads(json.dumps(asdict(mechanism))) == asdict(mechanism)


def test_their_fields_tell_them_apart():
    kinds = {type(m): frozenset(f.name for f in fields(m)) for m in ALL}
    assert len(set(kinds.values())) == len(kinds)
    assert len({json.dumps(asdict(m)) for m in ALL}) == len(ALL)


@EACH
@pytest.mark.parametrize("causal", [False, True])
def test_layers_share_one_call(rng, mechanism, causal):
    layer = mechanism.build(12, 3, 10, causal=causal, generator=rng)
    x = torch.randn(2, 7, 12, generator=rng)
    key_mask = torch.ones(2, 7, dtype=torch.bool)
    key_mask[1, 5:] = False
    out, weights = layer(x, key_mask=key_mask, need_weights=True)
    torch.testing.assert_close(layer(x, mask=None, key_mask=key_mask), out)
    assert weights.shape == (2, 3, 7, 7)
    assert layer.causal == causal
    assert not causal or (weights.triu(1) == 0).all()


@EACH
def test_a_generator_decides_the_layer(mechanism):
    one, two = (
        mechanism.build(12, 3, 10, False, torch.Generator().manual_seed(5)).state_dict()
        for _ in range(2)
    )
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_options_reach_the_layer():
    layer = Oscillator(
        d_osc=3,
        coupling="elu",
        sharpness=2,
        gain="learned",
        anchors="free",
        pads="as-published",
        freeze_values=True,
    ).build(12, 3, 10)
    assert isinstance(layer, OscillatorAttention)
    assert (layer.d_osc, layer.coupling, layer.sharpness) == (3, "elu", 2)
    assert layer.log_gain is not None
    assert not layer.unit_anchors
    assert layer.read_pads
    assert not layer.to_v.weight.requires_grad
    assert not Softmax(freeze_values=True).build(12, 3, 10).to_v.weight.requires_grad


def test_rank_matched_softmax_narrows_queries_and_keys_only():
    layer = RankMatchedSoftmax(d_qk=2).build(12, 3, 10)
    assert isinstance(layer, SoftmaxAttention)
    shapes = {name: tuple(p.shape) for name, p in layer.named_parameters()}
    assert shapes["to_q.weight"] == shapes["to_k.weight"] == (6, 12)
    assert shapes["to_v.weight"] == shapes["to_out.weight"] == (12, 12)


def test_appendix_e_adds_one_table_each():
    plain = {name for name, _ in Oscillator().build(12, 3, 10).named_parameters()}
    offset = PositionOffset().build(12, 3, 10)
    assert isinstance(offset, PositionOffsetAttention)
    assert {name for name, _ in offset.named_parameters()} - plain == {"phase_offsets"}
    assert offset.phase_offsets.shape == (10,)
    amplified = Amplified().build(12, 3, 10)
    assert amplified.to_f.coupling_gain.shape == (3, 10)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"d_osc": 0}, "d_osc must be at least 2, got 0"),
        ({"sharpness": 0.5}, "sharpness must be a number >= 1"),
        ({"coupling": "x"}, "coupling='x' is not known. Choose from softplus"),
    ],
)
def test_options_are_refused_where_they_are_given(options, said):
    with pytest.raises(ValueError, match=said):
        Oscillator(**options)
    with pytest.raises(ValueError, match=r"d_osc is a number of things, an int, got 2\.5"):
        inspect.unwrap(check_options)(5, 2.5, 1, None)  # past the tests' own checks of types


def test_position_offset_on_a_sphere_is_refused():
    with pytest.raises(ValueError, match=r"got d_osc = 3.*Oscillator\(d_osc=2\)"):
        PositionOffset(Oscillator(d_osc=3))


def test_options_of_rivals_and_controls_reach_the_layer():
    assert SoftmaxTemperature(2.0).build(12, 3, 10).log_temperature.exp().tolist() == pytest.approx(
        [2] * 3
    )
    assert SoftmaxPositions(5.0).build(12, 3, 1000).table.std().item() == pytest.approx(5, rel=0.05)
    assert SoftmaxRope(99.0).build(12, 3, 10).base == 99
    assert SoftmaxAlibi(3.0).build(12, 1, 10).slopes.tolist() == pytest.approx([1 / 8])
    assert SoftmaxCosine(3.0).build(12, 3, 10).log_scale.exp().tolist() == pytest.approx([3] * 3)
    direct = NoDynamics(5, 2.5, "learned").build(12, 3, 10)
    assert (direct.anchors.shape, direct.sharpness) == ((3, 10, 5), 2.5)
    assert direct.to_z.weight.shape == (15, 12)
    assert direct.log_gain is not None
    assert direct.log_gain.tolist() == [0, 0, 0]
    exponential = ExponentialReadout(5, "relu", 2.0).build(12, 3, 10)
    assert (exponential.anchors.shape, exponential.coupling) == ((3, 10, 5), "relu")
    assert exponential.log_beta.exp().tolist() == pytest.approx([2] * 3)
    learned = LearnedSharpness(5, "relu", 3.5, 2.0).build(12, 3, 10)
    assert (learned.anchors.shape, learned.coupling, learned.gain) == ((3, 10, 5), "relu", 2)
    assert learned.sharpness.tolist() == pytest.approx([3.5] * 3)
    frozen = FrozenAnchors(5, "relu", 3, 2.0).build(12, 3, 10)
    assert (frozen.anchors.shape, frozen.coupling) == ((3, 10, 5), "relu")
    assert (frozen.sharpness, frozen.gain) == (3, 2)


def test_frozen_anchors_stay_with_the_weights_and_untrained(rng):
    """A measurement puts the parameters of a run into a model that is built anew."""
    layer, anew = (FrozenAnchors(d_osc=3).build(12, 3, 10, generator=rng) for _ in range(2))
    layer(torch.randn(2, 7, 12, generator=rng)).square().sum().backward()
    untrained = {name for name, p in layer.named_parameters() if p.grad is None}
    assert untrained == {"anchors"}
    anew.load_state_dict(dict(layer.named_parameters()), strict=False)
    assert torch.equal(anew.anchors, layer.anchors)


def test_the_preset_is_strictly_spherical_and_its_options_can_be_changed():
    preset = Oscillator.sharpened()
    assert (preset.anchors, preset.gain, preset.pads) == ("sphere", "learned", "masked")
    assert Oscillator.sharpened(d_osc=8) == replace(preset, d_osc=8)
    with pytest.raises(TypeError, match="d_oscillator"):
        Oscillator.sharpened(d_oscillator=8)


def test_the_preset_trains():
    task = GeneratedText(tokens=12, examples=64)
    model = LanguageModel(
        d_model=16, heads=2, layers=1, d_ff=16, attention=Oscillator.sharpened(d_osc=4)
    )
    data = task.load()
    trained = train(Run(task, model, AdamW(lr=1e-2), batch=16, epochs=5), [0, 1], data)
    for outcome in trained.outcomes:
        first, last = outcome.curve[0]["perplexity"], outcome.curve[-1]["perplexity"]
        assert last < first < len(data.names)
        (layer,) = attention_layers(trained.model(data, outcome.seed))
        assert isinstance(layer, OscillatorAttention)
        assert isinstance(layer.gain, torch.Tensor)
        assert (layer.gain - 1).abs().max() > 1e-3  # learned, from 1 on
