"""Dropout from a generator of its own."""

import copy
import pickle

import pytest
import torch
from torch import nn

from lohe.models import Dropout, set_generator


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_entries_are_dropped_at_the_rate_and_keep_the_mean(rng):
    dropout = Dropout(0.3)
    dropout.generator = rng
    out = dropout(torch.ones(100_000, dtype=torch.float64))
    dropped = round(0.3 * 2**16) / 2**16  # on a CPU p is a multiple of 2^-16, and the scale follows
    assert set(out.unique().tolist()) == {0.0, 1 / (1 - dropped)}
    assert abs((out == 0).double().mean() - 0.3) < 4 * (0.3 * 0.7 / 100_000) ** 0.5


def test_masks_on_a_cpu_are_the_bits_of_the_generator_in_the_order_of_memory():
    """Recorded trainings draw these: sixteen bits an entry, the lowest of a word first."""
    dropout = Dropout(0.1)
    dropout.generator = seeded(3)
    kept = dropout(torch.ones(7, 5)) != 0
    words = torch.randint(-(2**63), 2**63 - 1, (9,), generator=seeded(3))
    parts = words.numpy().astype("<i8").view("<i2")[:35]
    assert (kept.flatten().numpy() == (parts >= round(0.1 * 2**16) - 2**15)).all()


def test_gradient_goes_where_the_values_go(rng):
    dropout = Dropout(0.5)
    dropout.generator = rng
    x = torch.ones(50, requires_grad=True)
    out = dropout(x)
    out.sum().backward()
    assert torch.equal(x.grad, out.detach())


def test_identity_in_eval_mode_and_at_zero(rng):
    x = torch.randn(4, 5, generator=rng)
    assert Dropout(0.5).eval()(x) is x
    assert Dropout(0.0).train()(x) is x


def test_without_a_generator_torchs_own_is_used():
    x = torch.ones(200)
    with torch.random.fork_rng():
        torch.manual_seed(3)
        first = Dropout(0.5)(x)
        torch.manual_seed(3)
        assert torch.equal(Dropout(0.5)(x), first)


def test_a_generator_is_set_on_every_dropout_and_is_no_state(rng):
    model = nn.Sequential(nn.Linear(4, 4), Dropout(0.5), nn.Sequential(Dropout(0.5)))
    names = list(model.state_dict())
    set_generator(model, rng)
    assert model[1].generator is rng
    assert model[2][0].generator is rng
    assert list(model.state_dict()) == names
    set_generator(model, None)
    assert model[1].generator is None


@pytest.mark.parametrize("twin", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_a_copy_goes_on_where_the_original_stands(twin):
    model = nn.Sequential(Dropout(0.5), Dropout(0.5))
    set_generator(model, seeded(1))
    model(torch.ones(10))
    other = twin(model)
    assert other[0].generator is other[1].generator is not model[0].generator
    assert torch.equal(model(torch.ones(50)), other(torch.ones(50)))


@pytest.mark.parametrize("p", [-0.1, 1.0, 1.5])
def test_a_bad_probability_is_explained(p):
    with pytest.raises(ValueError, match=f"0 <= p < 1, got {p}"):
        Dropout(p)
