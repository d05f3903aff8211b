"""Geometry that everything else stands on."""

import math

import pytest
import torch

from lohe import sphere


@pytest.mark.parametrize("length", [1e-37, 1e-20, 1.0, 1e20, 1e38])
def test_direction_is_right_at_every_length(length):
    x = torch.tensor([3.0, -4.0]) / 5 * length
    torch.testing.assert_close(sphere.normalize(x), torch.tensor([0.6, -0.8]))


def test_zero_vector_stays_zero_and_gets_no_gradient():
    x = torch.zeros(3, 2, requires_grad=True)
    z = sphere.normalize(x)
    z.sum().backward()
    assert x.grad is not None
    assert (z == 0).all()
    assert (x.grad == 0).all()


def test_gradient_of_normalize(rng):
    x = torch.randn(4, 5, dtype=torch.float64, generator=rng, requires_grad=True)
    assert torch.autograd.gradcheck(sphere.normalize, x)


def test_tangent_is_orthogonal(rng):
    z = sphere.uniform(7, 5, generator=rng, dtype=torch.float64)
    x = torch.randn(7, 5, dtype=torch.float64, generator=rng)
    assert (z * sphere.tangent(z, x)).sum(-1).abs().max() < 1e-15


@pytest.mark.parametrize("theta", [0.0, 1e-7, 1.0, math.pi - 1e-7, math.pi])
def test_angle_keeps_its_digits_at_both_ends(theta):
    x = torch.tensor([1.0, 0.0], dtype=torch.float64)
    y = torch.tensor([math.cos(theta), math.sin(theta)], dtype=torch.float64)
    assert abs(sphere.angle(x, y).item() - theta) < 1e-15


def test_uniform_has_no_preferred_direction(rng):
    z = sphere.uniform(200_000, 3, generator=rng, dtype=torch.float64)
    second_moment = z.T @ z / len(z)
    assert z.mean(0).abs().max() < 5 / math.sqrt(3 * len(z))  # five standard errors
    assert (second_moment - torch.eye(3) / 3).abs().max() < 5 / math.sqrt(len(z))
