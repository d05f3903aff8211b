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


def test_a_sphere_has_a_dimension():
    with pytest.raises(ValueError, match=r"the dimension, 1 or more; got \(10, 0\)"):
        sphere.uniform(10, 0)


def test_uniform_has_no_preferred_direction(rng):
    z = sphere.uniform(200_000, 3, generator=rng, dtype=torch.float64)
    second_moment = z.T @ z / len(z)
    assert z.mean(0).abs().max() < 5 / math.sqrt(3 * len(z))  # five standard errors
    assert (second_moment - torch.eye(3) / 3).abs().max() < 5 / math.sqrt(len(z))


def arc(rng, shape=(40, 5), dtype=torch.float64):
    x, y = (sphere.uniform(*shape, generator=rng, dtype=dtype) for _ in range(2))
    return x, y, torch.rand(shape[:-1], generator=rng, dtype=torch.float64)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_between_divides_the_angle_on_the_great_circle(rng, dtype):
    x, y, fraction = arc(rng, dtype=dtype)
    point = sphere.between(x, y, fraction)
    near = 4 * torch.finfo(dtype).eps
    assert point.dtype == dtype
    assert (point.norm(dim=-1) - 1).abs().max() < near
    whole = sphere.angle(x, y)
    assert (sphere.angle(x, point) - fraction * whole).abs().max() < near
    assert (sphere.angle(point, y) - (1 - fraction) * whole).abs().max() < near


def test_between_ends_at_the_points_themselves(rng):
    x, y, fraction = arc(rng, dtype=torch.float32)
    assert torch.equal(sphere.between(x, y, torch.zeros_like(fraction)), x)
    assert torch.equal(sphere.between(x, y, torch.ones_like(fraction)), y)
    torch.testing.assert_close(sphere.between(x, x, fraction), x)
    assert (sphere.between(x, y, fraction) - sphere.between(y, x, 1 - fraction)).abs().max() < 1e-6


@pytest.mark.parametrize("apart", [0.0, 1e-13, 1e-9, 1e-4])
def test_between_points_that_are_nearly_opposite_stays_on_the_sphere(rng, apart):
    x, side, fraction = arc(rng)
    y = sphere.normalize(-x + apart * sphere.normalize(sphere.tangent(x, side)))
    point = sphere.between(x, y, fraction)
    assert (point.norm(dim=-1) - 1).abs().max() < 1e-15
    assert (sphere.angle(x, point) - fraction * sphere.angle(x, y)).abs().max() < 1e-12
