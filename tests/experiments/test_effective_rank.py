"""Ranks of a model's matrices: those of the theory, whatever the padding."""

from typing import Any

import pytest
import torch
from invented import SMOKE, Untrained
from rank_records import tokens_of

from lohe.experiments.studies.rank import cohort
from lohe.experiments.studies.rank.effective_rank import EffectiveRank, matrices
from lohe.models import LearnedSharpness, Oscillator, Softmax, attention_layers
from lohe.theory import readout_rank_bound


@pytest.fixture(scope="module")
def bench():
    return Untrained()


@pytest.mark.parametrize("anchors", ["free", "sphere"])
@pytest.mark.parametrize(("d", "p"), [(4, 1), (2, 4), (4, 2)])
def test_the_similarity_has_the_rank_of_the_theory(bench, d, p, anchors):
    run = SMOKE.wikitext2(Oscillator(d_osc=d, sharpness=p, anchors=anchors))
    found = EffectiveRank(run, chunks=2).take(bench).result
    assert found["similarity.rank"] == d + 1
    assert 1 <= found["similarity.mean"] <= d + 1
    assert found["attention.rank"] == 49  # the causal mask is invertible
    assert ("sharpened.rank" in found) == (p > 1)
    if p > 1:  # D26: the ceiling does depend on p
        assert found["sharpened.rank"] == readout_rank_bound(d, p) > d + 1


def test_every_matrix_of_every_head_is_measured(bench):
    found = EffectiveRank(SMOKE.wikitext2(Oscillator()), chunks=3).take(bench)
    assert found.result["matrices"] == 3 * 2 * 4
    assert found.result["tokens"] == 49
    assert [(row["layer"], row["head"]) for row in found.curve] == [
        (layer, head) for layer in range(2) for head in range(4)
    ]
    by_head = sum(row["similarity"] for row in found.curve) / len(found.curve)
    assert by_head == pytest.approx(found.result["similarity.mean"], abs=1e-4)


def test_softmax_has_attention_only(bench):
    found = EffectiveRank(SMOKE.wikitext2(Softmax()), chunks=1).take(bench)
    assert {name.partition(".")[0] for name in found.result} == {"matrices", "tokens", "attention"}


@torch.no_grad()
def test_padding_is_cut_off(bench):
    run = SMOKE.tinystories(Oscillator(d_osc=4))
    model = bench.model(run).double()
    tokens = tokens_of(bench, run, 12)[-1:]
    words = int(cohort.is_word(tokens).sum())
    assert words < tokens.shape[1]
    padded, alone = (matrices(model, x) for x in (tokens, tokens[:, :words]))
    for name, matrix in padded.items():
        torch.testing.assert_close(matrix[..., :words, :words], alone[name])
        assert matrix[..., words:, :].eq(0).all()
        assert matrix[..., words:].eq(0).all()


@torch.no_grad()
def test_similarity_is_what_the_attention_is_made_of(bench):
    run = SMOKE.wikitext2(Oscillator(d_osc=2, sharpness=2, anchors="free"))
    found = matrices(bench.model(run).double(), tokens_of(bench, run, 2))
    weights = found["similarity"].clamp(min=0).square().tril()
    expected = weights / weights.sum(dim=-1, keepdim=True)
    torch.testing.assert_close(found["attention"], expected)
    torch.testing.assert_close(found["sharpened"], found["similarity"].square())


@torch.no_grad()
@pytest.mark.parametrize("mechanism", [LearnedSharpness(2, gain="learned"), LearnedSharpness(2)])
def test_a_learned_sharpness_is_that_of_each_layer_and_head(bench, mechanism):
    """Attention is what the readout leaves under the mask, whatever p a head has learned."""
    run = SMOKE.wikitext2(mechanism)
    model = bench.model(run).double()
    layers: list[Any] = attention_layers(model)
    for n, layer in enumerate(layers):
        layer.log_excess += torch.arange(4) / 3 + n
        if layer.log_gain is not None:
            layer.log_gain += 1  # the clamp acts
    found = matrices(model, tokens_of(bench, run, 2))
    assert "sharpened" not in found  # a power of something negative, and real
    readout = found["readout"].tril()
    torch.testing.assert_close(found["attention"], readout / readout.sum(dim=-1, keepdim=True))


def test_a_gain_leaves_the_rank_of_s_and_the_clamp_does_not(bench):
    class Amplified(Untrained):
        def model(self, run):
            built = super().model(run)
            layers: list[Any] = attention_layers(built)
            for layer in layers:
                layer.log_gain.data += 1
            return built

    run = SMOKE.wikitext2(Oscillator(d_osc=3, sharpness=2, gain="learned"))
    found = EffectiveRank(run, chunks=2).take(Amplified()).result
    assert found["similarity.rank"] == 4
    assert found["sharpened.rank"] == readout_rank_bound(3, 2) == 9
    assert found["readout.rank"] > 9


def test_what_the_clamp_cuts_of_free_anchors(bench):
    """Anchors of length 3 make 1 + z·r negative; those of length 1 never do."""

    class Longer(Untrained):
        def model(self, run):
            built = super().model(run)
            layers: list[Any] = attention_layers(built)
            for layer in layers:
                layer.anchors.data *= 3
            return built

    long = SMOKE.wikitext2(Oscillator(d_osc=3, anchors="free"))
    found = EffectiveRank(long, chunks=2).take(Longer()).result
    assert 0.1 < found["clamped"] < 0.6
    assert found["similarity.rank"] == 4 < found["readout.rank"]
    unit = EffectiveRank(SMOKE.wikitext2(Oscillator(d_osc=3)), chunks=2).take(Longer()).result
    assert unit["clamped"] == 0
    assert "readout.rank" not in unit
