"""Models with other weights than their own: what is replaced, and what a cut one sees."""

import pytest
import torch
from invented import SMOKE, Untrained
from rank_records import tokens_of

from lohe.experiments.studies.rank.truncation import Truncation, cut, perplexity, reweighted
from lohe.models import Oscillator, RankMatchedSoftmax, Softmax


@pytest.fixture(scope="module")
def bench():
    return Untrained()


@torch.no_grad()
@pytest.mark.parametrize("mechanism", [Softmax(), RankMatchedSoftmax(d_qk=2), Oscillator()])
def test_weights_that_are_left_alone_change_nothing(bench, mechanism):
    run = SMOKE.wikitext2(mechanism)
    model, tokens = bench.model(run), tokens_of(bench, run, 3)
    before = model(tokens=tokens)
    with reweighted(model, lambda weights: weights):
        torch.testing.assert_close(model(tokens=tokens), before)
    with reweighted(model, lambda weights: torch.zeros_like(weights)):
        assert not torch.allclose(model(tokens=tokens), before)
    assert torch.equal(model(tokens=tokens), before)


def test_weights_are_put_back_after_an_error(bench):
    model = bench.model(SMOKE.wikitext2(Softmax()))
    with pytest.raises(KeyError), reweighted(model, lambda weights: weights):
        raise KeyError
    assert all(not m._forward_hooks for m in model.modules())


@torch.no_grad()
@pytest.mark.parametrize("causal", [False, True])
def test_without_its_mask_a_truncated_model_sees_the_future(bench, causal):  # D16
    run = SMOKE.wikitext2(Softmax())
    model, tokens = bench.model(run), tokens_of(bench, run, 2)
    other = tokens.clone()
    other[:, 30:] = 7

    # the truncation itself looks at the whole matrix: it is held fixed, as a device would have it
    kept = torch.rand(2, 4, 49, 49, generator=torch.Generator().manual_seed(0)).tril()
    with reweighted(model, lambda weights: cut(kept, 3, causal)):
        same = torch.isclose(model(tokens=tokens), model(tokens=other), atol=1e-5)[:, :30].all()
    assert same == causal


def test_truncated_attention_is_attention(rng):
    weights = torch.rand(2, 3, 12, 12, generator=rng).tril()
    weights = weights / weights.sum(dim=-1, keepdim=True)
    for causal in (False, True):
        found = cut(weights, 2, causal)
        assert found.ge(0).all()
        torch.testing.assert_close(found.sum(dim=-1), torch.ones(2, 3, 12))
    assert cut(weights, 2, causal=True).triu(1).eq(0).all()
    assert cut(weights, 2, causal=False).triu(1).gt(0).any()
    torch.testing.assert_close(cut(weights, 12, causal=True), weights)


def test_a_rank_that_is_enough_keeps_the_perplexity(bench):
    run = SMOKE.wikitext2(Softmax())
    found = Truncation(run, rank=49, chunks=5).take(bench).result
    assert found["causal"] == pytest.approx(found["whole"], rel=1e-5)
    assert found["as_published"] == pytest.approx(found["whole"], rel=1e-5)
    assert found["chunks"] == 5
    low = Truncation(run, rank=1, chunks=5).take(bench).result
    assert low["causal"] != pytest.approx(low["whole"], rel=1e-5)


@torch.no_grad()
def test_perplexity_is_that_of_the_task(bench):
    run = SMOKE.tinystories(Softmax())
    model, split = bench.model(run), bench.data(run).valid
    part = split.take(slice(None))
    sums = run.task.tally(model(**part.inputs), part.targets)
    expected = run.task.score(sums)["perplexity"].item()
    found = perplexity(model, run.task, split, None, torch.device("cpu"))
    assert found == pytest.approx(expected, rel=1e-6)
