"""Layer normalisation of a pack against PyTorch's in float64."""

import pytest
import torch
from torch.func import vmap
from torch.nn import functional as F

from kernels import DEVICE
from lohe.ops.norm import packed

EPS = 1e-5


@pytest.mark.parametrize("shape", [(3, 7, 33), (1, 130, 128), (2, 1, 5)], ids=str)
def test_a_pack_of_models(rng, deterministic, shape):
    """Values and every gradient; each model with its own weight and bias."""
    models, *_, d = shape
    double = {"dtype": torch.float64, "generator": rng}
    x = 3 + torch.randn(models, 2, *shape[1:], **double)
    weight, bias, direction = (
        torch.randn(s, **double) for s in ((models, d), (models, d), x.shape)
    )
    exact = [x, weight, bias]
    wanted = gradients(vmap(lambda x, w, b: F.layer_norm(x, (d,), w, b, EPS)), exact, direction)
    single = [t.float().to(DEVICE) for t in exact]
    found = gradients(
        vmap(lambda x, w, b: packed(x, w, b, EPS)), single, direction.float().to(DEVICE)
    )
    for mine, truth in zip(found, wanted, strict=True):
        scale = truth.abs().max().item()
        torch.testing.assert_close(mine.cpu().double(), truth, rtol=1e-5, atol=3e-6 * scale)


def gradients(function, tensors, direction):
    tensors = [t.clone().requires_grad_() for t in tensors]
    out = function(*tensors)
    return out.detach(), *torch.autograd.grad(out, tensors, direction)


def test_what_models_share_gets_the_sum_of_their_gradients(rng):
    x = torch.randn(3, 6, 8, generator=rng).to(DEVICE)
    weight, bias = (torch.randn(8, generator=rng).to(DEVICE) for _ in range(2))
    of_pack = gradients(
        vmap(lambda x, w, b: packed(x, w, b, EPS), in_dims=(0, None, None)),
        [x, weight, bias], torch.ones_like(x),
    )  # fmt: skip
    plain = gradients(
        lambda x, w, b: F.layer_norm(x, (8,), w, b, EPS), [x, weight, bias], torch.ones_like(x)
    )
    for mine, truth in zip(of_pack, plain, strict=True):
        torch.testing.assert_close(mine, truth)


def test_second_derivatives_are_refused(rng):
    x = torch.randn(2, 4, 8, generator=rng).to(DEVICE).requires_grad_()
    weight, bias = torch.ones(8, device=DEVICE), torch.zeros(8, device=DEVICE)
    out = vmap(lambda x: packed(x, weight, bias, EPS))(x)
    with pytest.raises(RuntimeError, match="first derivatives only"):
        torch.autograd.grad(out.square().sum(), x, create_graph=True)
