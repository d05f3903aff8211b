"""The largest weights of a model's rows, and that Eq. 5 bounds them."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from invented import SMOKE, Untrained
from rank_records import tokens_of

from lohe.experiments.studies.rank.cohort import is_word
from lohe.experiments.studies.rank.concentration import Concentration, last_rows
from lohe.models import (
    ExponentialReadout,
    LearnedSharpness,
    NoDynamics,
    Oscillator,
    Softmax,
    attention_layers,
    attention_weights,
)
from lohe.theory import largest_weight


@pytest.fixture(scope="module")
def bench():
    return Untrained()


@pytest.mark.parametrize(
    "mechanism",
    [
        Oscillator(),
        Oscillator(anchors="free"),
        Oscillator(d_osc=60, sharpness=8, gain="learned"),
        LearnedSharpness(4, gain="learned"),
    ],
    ids=repr,
)
def test_no_row_of_a_model_has_more_than_its_bound(bench, mechanism):
    found = Concentration(SMOKE.wikitext2(mechanism), chunks=5).take(bench)
    assert (found.result["rows"], found.result["keys"]) == (5, 49)
    assert [(row["layer"], row["head"]) for row in found.curve] == [
        (layer, head) for layer in range(2) for head in range(4)
    ]
    for row in found.curve:
        assert 1 <= row["weight"] <= row["bound"] * (1 + 1e-4) <= 49 * (1 + 1e-4)
        assert row["share"] <= 1 + 1e-4  # four digits are kept


@torch.no_grad()
def test_the_bound_is_that_of_each_head(bench):
    """Gains, exponents and lengths of its own for each; recomputed from states and anchors."""
    run = SMOKE.wikitext2(LearnedSharpness(4, gain="learned"))
    model = bench.model(run).double()
    layers: list[Any] = attention_layers(model)
    for n, layer in enumerate(layers):
        layer.unit_anchors = False
        layer.anchors *= torch.linspace(0.5, 3 + n, 4 * 50).reshape(4, 50, 1)[:, : layer.max_tokens]
        layer.log_gain.copy_(torch.tensor([-1.0, 0.0, 0.7, 1.5]) + n)
        layer.log_excess.copy_(torch.tensor([-2.0, 0.0, 1.0, 1.5]))
    states = []
    for layer in layers:
        settle = layer.settle
        layer.settle = lambda h, settle=settle: states.append(settle(h)) or states[-1]
    tokens = tokens_of(bench, run, 3)
    found = last_rows(model, tokens)
    model(tokens=tokens)
    for n, (layer, z) in enumerate(zip(layers, states[-2:], strict=True)):
        r = layer.anchors[:, : tokens.shape[1]]
        for head in range(4):
            longest = r[head].norm(dim=-1).max()
            lean = z[:, head, -1] @ r[head].mean(dim=0)
            options = layer.sharpness[head], layer.gain[head], lean, longest
            bound = tokens.shape[1] * largest_weight(tokens.shape[1], *options)
            torch.testing.assert_close(found["bound"][:, n, head], bound)
    assert (found["share"] <= 1 + 1e-12).all()


def test_at_p_1_on_the_sphere_the_bound_is_near_2(bench):
    found = Concentration(SMOKE.wikitext2(Oscillator(d_osc=40)), chunks=5).take(bench).result
    assert found["bound"] == pytest.approx(2, rel=0.2)  # random anchors nearly cancel


@pytest.mark.parametrize("mechanism", [Softmax(), ExponentialReadout(4), NoDynamics(4)], ids=repr)
def test_what_has_no_oscillators_or_another_readout_has_no_bound(bench, mechanism):
    found = Concentration(SMOKE.wikitext2(mechanism), chunks=2).take(bench)
    assert set(found.result) == {"rows", "keys", "weight"}


@torch.no_grad()
def test_only_whole_chunks_count(bench):
    run = SMOKE.tinystories(Softmax())
    found = Concentration(run, chunks=12).take(bench)
    tokens = tokens_of(bench, run, 12)
    whole = is_word(tokens).all(dim=-1)
    assert 0 < whole.sum() < 12
    attention = torch.stack(attention_weights(bench.model(run).double(), tokens=tokens[whole]))
    largest = tokens.shape[1] * attention[..., -1, :].amax(dim=-1)  # (layers, chunks, heads)
    assert found.result["rows"] == whole.sum()
    assert found.result["weight"] == pytest.approx(largest.mean().item())


def test_where_every_chunk_is_padded_nothing_is_measured():
    class Padded(Untrained):
        def data(self, run):
            data = super().data(run)
            shorter = data.valid.take(slice(2, 12))  # the first two are whole
            return replace(data, splits={**data.splits, "valid": shorter})

    with pytest.raises(ValueError, match="None of the first 4 chunks is without padding"):
        Concentration(SMOKE.tinystories(Softmax()), chunks=4).take(Padded())
