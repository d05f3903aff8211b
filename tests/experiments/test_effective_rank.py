"""Ranks of a model's matrices: those of the theory, whatever the padding."""

import pytest
import torch
from invented import SMOKE, Untrained
from rank_records import tokens_of

from lohe.experiments.studies.rank import cohort
from lohe.experiments.studies.rank.effective_rank import EffectiveRank, matrices
from lohe.models import Oscillator, Softmax
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
