"""Parameter counts against counts by hand, at the published sizes."""

import pytest
import torch

from lohe.models import (
    ExponentialReadout,
    FrozenAnchors,
    LanguageModel,
    LearnedSharpness,
    NoDynamics,
    Oscillator,
    Softmax,
    SoftmaxAlibi,
    SoftmaxCosine,
    SoftmaxPositions,
    SoftmaxRope,
    SoftmaxTemperature,
    parameter_counts,
)
from lohe.tasks import Data, Split

WORDS, D, D_FF, LAYERS, HEADS, T = 10_000, 128, 512, 2, 4, 50  # WikiText-2, chunks of 50
PROJECTIONS = 4 * D * D + D
BESIDES = {  # what a layer learns beside four projections and one bias
    Softmax(): 0,
    Softmax(freeze_values=True): -D * D,
    SoftmaxTemperature(): HEADS,
    SoftmaxPositions(): T * D,
    SoftmaxRope(): 0,
    SoftmaxAlibi(): 0,
    SoftmaxCosine(): HEADS,
    Oscillator(d_osc=32): HEADS * T * 32,
    Oscillator(d_osc=16, sharpness=4, gain="learned"): HEADS * T * 16 + HEADS,
    Oscillator(d_osc=32, anchors="free"): HEADS * T * 32,
    FrozenAnchors(d_osc=32, sharpness=4, gain="learned"): HEADS,
    LearnedSharpness(d_osc=32, gain="learned"): HEADS * T * 32 + 2 * HEADS,
    ExponentialReadout(d_osc=32): HEADS * T * 32 + HEADS,
    NoDynamics(d_osc=32, gain="learned"): HEADS * 32 * D + HEADS * T * 32 + HEADS - 2 * D * D,
}
DATA = Data(
    {"train": Split({"tokens": torch.zeros(1, T - 1, dtype=torch.int16)}, {})},
    tuple(map(str, range(WORDS))),
    "blank",
)


@pytest.mark.parametrize("mechanism", BESIDES, ids=repr)
@pytest.mark.parametrize("positions", ["none", "sinusoidal", "learned"])
def test_counts_are_those_by_hand(mechanism, positions):
    found = parameter_counts(LanguageModel(attention=mechanism, positions=positions).build(DATA))
    ffn, norms = 2 * D * D_FF + D_FF + D, 4 * D
    assert found.attention == LAYERS * (PROJECTIONS + BESIDES[mechanism])
    assert found.non_embedding == found.attention + LAYERS * (ffn + norms) + 2 * D
    words = D * WORDS + (D + 1) * WORDS
    assert found.total == found.non_embedding + words + (T * D if positions == "learned" else 0)


def test_positions_in_every_layer_match_anchors_of_dimension_32():
    counts = [
        parameter_counts(LanguageModel(attention=m).build(DATA))
        for m in (SoftmaxPositions(), Oscillator(d_osc=32))
    ]
    assert counts[0] == counts[1]
