"""Rows by one kernel against `sphere.normalize` in float64."""

import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch.func import vmap

from kernels import DEVICE
from lohe import sphere
from lohe.ops import unit
from lohe.ops.triton.unit import Unit


@pytest.mark.parametrize("shape", [(3, 70, 2), (1, 1, 33), (5, 64)], ids=str)
@pytest.mark.parametrize("size", [1.0, 1e-30, 1e30])
def test_rows_and_their_gradient(rng, shape, size):
    x = size * torch.randn(shape, generator=rng, dtype=torch.float64)
    x = x.float().to(DEVICE)
    x.view(-1, shape[-1])[0] = 0
    direction = torch.randn(shape, generator=rng).to(DEVICE)
    found, wanted = value_and_gradient(Unit.apply, x, direction), value_and_gradient(
        sphere.normalize, x.double(), direction.double()
    )  # fmt: skip
    for mine, truth in zip(found, wanted, strict=True):
        torch.testing.assert_close(
            mine.double(), truth, rtol=1e-5, atol=1e-6 * truth.abs().max().item()
        )


def value_and_gradient(function, x, direction):
    x = x.clone().requires_grad_()
    out = function(x)
    return out.detach(), *torch.autograd.grad(out, x, direction)


def test_a_pack_of_models(rng):
    x = torch.randn(3, 4, 20, 5, generator=rng).to(DEVICE).requires_grad_()
    out = vmap(Unit.apply)(x)
    torch.testing.assert_close(out, sphere.normalize(x))
    (found,) = torch.autograd.grad(out.sin().sum(), x)
    (wanted,) = torch.autograd.grad(sphere.normalize(x).sin().sum(), x)
    torch.testing.assert_close(found, wanted)


def test_second_derivatives(rng):
    x = torch.randn(4, 3, generator=rng).to(DEVICE)
    x[1] = 0

    def twice(function):
        y = x.clone().requires_grad_()
        (first,) = torch.autograd.grad(function(y).sin().sum(), y, create_graph=True)
        return torch.autograd.grad(first.square().sum(), y)[0]

    torch.testing.assert_close(twice(Unit.apply), twice(sphere.normalize))


def test_fake_tensors_meet_no_kernel(monkeypatch):
    """They have no memory to hand to one."""
    monkeypatch.setattr(unit.available, "serves", lambda device: True)
    with FakeTensorMode():
        x = torch.empty(3, 4, device="cuda")
        assert unit.unit(x).shape == x.shape
