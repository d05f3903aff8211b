"""Mechanisms are values: hashable, JSON-able, told apart by their fields."""

import json
from dataclasses import asdict, fields

import pytest
import torch

from lohe.attention import OscillatorAttention, PositionOffsetAttention, SoftmaxAttention
from lohe.models import (
    Amplified,
    Mechanism,
    Oscillator,
    PositionOffset,
    RankMatchedSoftmax,
    Softmax,
)

ALL = [
    Softmax(),
    Softmax(freeze_values=True),
    RankMatchedSoftmax(d_qk=2),
    Oscillator(),
    Oscillator(d_osc=8, coupling="relu", sharpness=4, gain="learned", anchors="free"),
    PositionOffset(Oscillator(pads="as-published")),
    Amplified(),
    Amplified(PositionOffset()),
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


def test_position_offset_on_a_sphere_is_refused():
    with pytest.raises(ValueError, match=r"got d_osc = 3.*Oscillator\(d_osc=2\)"):
        PositionOffset(Oscillator(d_osc=3))
