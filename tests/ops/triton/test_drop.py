"""Dropout of a pack, alone and behind GELU, against its definition."""

import pytest
import torch
from torch.func import vmap
from torch.nn import functional as F

from kernels import DEVICE
from lohe.models import Dropout, set_generator
from lohe.models.dropout import GeluDropout
from lohe.ops import drop

P = 0.3


def seeded(seed):
    return torch.Generator(DEVICE).manual_seed(seed)


def pack(x, seed=0, p=P, gelu=False):
    generator = seeded(seed)
    return vmap(lambda row: drop.packed(row, p, generator, gelu=gelu), randomness="different")(x)


def test_entries_are_dropped_at_the_rate_and_keep_the_mean():
    """In every quarter of a program's entries, of each model."""
    n = 40 * 2048 if DEVICE.type == "cuda" else 4 * 2048
    kept = pack(torch.ones(2, n, device=DEVICE)).cpu() != 0
    for quarter in kept.view(2, -1, 4, 512).movedim(2, 0):
        for model in quarter:
            assert abs(model.float().mean() - (1 - P)) < 4 * (P * (1 - P) / model.numel()) ** 0.5
    scaled = pack(torch.ones(2, n, device=DEVICE)).unique().cpu()
    torch.testing.assert_close(scaled, torch.tensor([0.0, 1 / (1 - P)]))


def test_draws_differ_between_models_calls_and_seeds_and_are_the_same_again():
    x = torch.ones(3, 500, device=DEVICE)
    masks = pack(x)
    assert len({tuple(row) for row in masks.tolist()}) == 3
    assert torch.equal(masks, pack(x))
    assert not torch.equal(masks, pack(x, seed=1))
    layer = Dropout(P)
    set_generator(layer, seeded(0))
    twice = [
        vmap(lambda row: drop.packed(row, P, layer.generator), randomness="different")(x)
        for _ in range(2)
    ]
    assert not torch.equal(*twice)


@pytest.mark.parametrize("gelu", [False, True])
@pytest.mark.parametrize("shape", [(2, 5, 7), (1, 2049), (3, 2048)], ids=str)
def test_values_and_gradient(rng, shape, gelu):
    """m a(x) and m a'(x) g in float64, the mask m read off ones."""
    x = 2 * torch.randn(shape, generator=rng, dtype=torch.float64)
    g = torch.randn(shape, generator=rng, dtype=torch.float64)
    mask = pack(torch.ones(shape, device=DEVICE)).cpu().double()
    exact = x.clone().requires_grad_()
    truth = mask * (F.gelu(exact) if gelu else exact)
    truth.backward(g)
    single = x.float().to(DEVICE).requires_grad_()
    found = pack(single, gelu=gelu)
    found.backward(g.float().to(DEVICE))
    assert single.grad is not None
    for mine, wanted in ((found.detach(), truth.detach()), (single.grad, exact.grad)):
        torch.testing.assert_close(mine.cpu().double(), wanted, rtol=1e-6, atol=1e-6)


def test_gelu_far_out():
    x = torch.tensor([[-40.0, -12.0, 0.0, 12.0, 1e30, float("nan")]], device=DEVICE)
    found = pack(x, p=0.0, gelu=True).cpu()
    torch.testing.assert_close(found, F.gelu(x.cpu()), equal_nan=True)


def test_a_slice_and_nothing_at_all(rng):
    whole = torch.randn(2, 6, 8, generator=rng).to(DEVICE)
    assert torch.equal(pack(whole[:, :, ::2]), pack(whole[:, :, ::2].contiguous()))
    assert pack(whole[:, :0]).shape == (2, 0, 8)


def test_the_layers_use_it_where_it_pays(monkeypatch, rng):
    monkeypatch.setattr(drop, "_pays", lambda x: True)
    x = torch.randn(3, 40, generator=rng).to(DEVICE)
    for layer, gelu in ((Dropout(P), False), (GeluDropout(P), True)):
        set_generator(layer, seeded(4))
        assert torch.equal(vmap(layer, randomness="different")(x), pack(x, seed=4, gelu=gelu))
        layer.eval()
        torch.testing.assert_close(layer(x), F.gelu(x) if gelu else x)


def test_second_derivatives_are_refused(rng):
    x = torch.randn(2, 8, generator=rng).to(DEVICE).requires_grad_()
    with pytest.raises(RuntimeError, match="first derivatives only"):
        torch.autograd.grad(pack(x, gelu=True).square().sum(), x, create_graph=True)
