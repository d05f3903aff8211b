"""Thermal motion on the sphere: oscillators that are shaken while they settle."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from lohe import sphere
from lohe.dynamics.flow import flow


def langevin(
    z0: Float[Tensor, "*#batch d_osc"],
    h: Float[Tensor, "*#batch d_osc"],
    *,
    diffusion: float,
    horizon: float,
    step: float,
    generator: torch.Generator,
) -> Float[Tensor, "*batch d_osc"]:
    """State at the horizon of dz = (I - zzᵀ)(h dt + sqrt(2D) ∘dW), in steps of at most `step`.

    The stationary law is von Mises-Fisher, p(z) ∝ exp(κ z·h/‖h‖) with κ = ‖h‖/D, reached after
    much more than 1/‖h‖: starts near the antipode are slow to leave it, and at d_osc = 2, κ = 20
    uniform ones need 12/‖h‖. Weak order 2: the exact flow for half a step, noise, and again; keep
    ‖h‖·step and D·d_osc·step below 1. In 32 bits at least.
    """
    if not (0 <= diffusion < math.inf and 0 < horizon < math.inf and step > 0):
        raise ValueError(
            "langevin needs diffusion >= 0 and a positive horizon and step, "
            f"got diffusion={diffusion}, horizon={horizon}, step={step}."
        )
    dtype = torch.promote_types(z0.dtype, h.dtype)
    wide = torch.promote_types(dtype, torch.float32)
    z0, h = z0.to(wide), h.to(wide)
    steps = math.ceil(horizon / step)
    dt = horizon / steps
    z = z0.expand(torch.broadcast_shapes(z0.shape, h.shape))  # each trajectory has its own noise
    z = flow(z, h, dt / 2)
    for n in range(steps):
        z = shaken(z, diffusion * dt, generator)
        z = flow(z, h, dt if n + 1 < steps else dt / 2)
    return z.to(dtype)


def shaken(
    z: Float[Tensor, "*batch d_osc"], spread: float, generator: torch.Generator
) -> Float[Tensor, "*batch d_osc"]:
    """Brownian motion on the sphere for a time in which D t = `spread`, weak order 2.

    Along the great circle of a normal tangent vector, of variance 2Dt to first order. On a curved
    sphere such steps spread too far by (d - 2)Dt/3, which the second order takes back.
    """
    variance = 2 * spread / (1 + (z.shape[-1] - 2) * spread / 3)
    noise = torch.randn(z.shape, generator=generator, dtype=z.dtype, device=generator.device)
    move = sphere.tangent(z, math.sqrt(variance) * noise.to(z.device))
    length = move.norm(dim=-1, keepdim=True)
    return sphere.normalize(torch.cos(length) * z + torch.sinc(length / math.pi) * move)
