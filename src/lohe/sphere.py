"""Geometry on the unit sphere S^(d-1): the last axis of every tensor is the point."""

import torch
from jaxtyping import Float
from torch import Tensor


def normalize(x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch d"]:
    """x / ‖x‖; the zero vector stays zero and gets no gradient.

    The largest component is divided out first, so the squares neither overflow nor vanish: the
    direction is right for every length that the dtype can hold. Below its smallest normal number x
    counts as zero.
    """
    largest = x.detach().abs().amax(dim=-1, keepdim=True)
    is_zero = largest < torch.finfo(x.dtype).tiny
    # the two divisors are constants to autograd: x / ‖x‖ does not depend on the scale of x
    x = x / torch.where(is_zero, torch.ones_like(largest), largest)
    x = torch.where(is_zero, torch.ones_like(x), x)
    return torch.where(is_zero, torch.zeros_like(x), x / x.norm(dim=-1, keepdim=True))


def tangent(
    z: Float[Tensor, "*batch d"], x: Float[Tensor, "*#batch d"]
) -> Float[Tensor, "*batch d"]:
    """(I - z zᵀ) x: the part of x that moves the point z along the sphere."""
    return x - (z * x).sum(dim=-1, keepdim=True) * z


def angle(x: Float[Tensor, "*#batch d"], y: Float[Tensor, "*#batch d"]) -> Float[Tensor, "*batch"]:
    """Angle between unit vectors, exact near 0 and near π (where acos loses half of the digits)."""
    return 2 * torch.atan2((x - y).norm(dim=-1), (x + y).norm(dim=-1))


def between(
    x: Float[Tensor, "*#batch d"],
    y: Float[Tensor, "*#batch d"],
    fraction: Float[Tensor, "*#batch"],
) -> Float[Tensor, "*batch d"]:
    """The point at this fraction of the way from x to y, along the great circle of both.

    0 gives x and 1 gives y, to the bit. Antipodal points have no such circle: one through x and
    a fixed axis is taken. Computed in float64.
    """
    a, b, part = normalize(x.double()), normalize(y.double()), fraction.double()[..., None]
    side = normalize(tangent(a, normalize(tangent(a, b))))  # twice: near -x, once leaves rounding
    axis = torch.eye(a.shape[-1], dtype=a.dtype, device=a.device)[a.abs().argmin(dim=-1)]
    alone = (a + b).norm(dim=-1, keepdim=True) < 1e-12
    side = torch.where(alone, normalize(tangent(a, axis)), side)
    theta = part * angle(a, b)[..., None]
    point = normalize(torch.cos(theta) * a + torch.sin(theta) * side).to(x.dtype)
    return torch.where(part == 0, x, torch.where(part == 1, y, point))


def uniform(
    *shape: int,
    generator: torch.Generator | None = None,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> Float[Tensor, "*shape"]:
    """Points drawn uniformly from the sphere; the last entry of `shape` is the dimension.

    The draw is made on the generator's device and then moved, so one seed gives one sample on every
    device.
    """
    if not shape or shape[-1] < 1:
        raise ValueError(f"The last entry of a shape is the dimension, 1 or more; got {shape}.")
    source = generator.device if generator is not None else device
    return normalize(torch.randn(shape, generator=generator, dtype=dtype, device=source)).to(device)


def cap_probability(angle: float | Float[Tensor, "*batch"], d: int) -> Float[Tensor, "*batch"]:
    """Probability that a uniform point of S^(d-1) lies within `angle` of a fixed one.

    The density is proportional to sin^(d-2) θ. In x = sin²(θ/2) that is the Beta law with both
    parameters (d-1)/2, whose distribution function keeps its digits in the far tail and at
    the equator alike. Float64, on the CPU, without a gradient; 0 <= angle <= π.
    """
    from scipy.special import betainc  # a fifth of the time that `import lohe` would take

    theta = torch.as_tensor(angle, dtype=torch.float64, device="cpu").detach()
    return torch.as_tensor(betainc((d - 1) / 2, (d - 1) / 2, torch.sin(theta / 2).square().numpy()))
