"""Thermal motion on the sphere: oscillators that are shaken while they settle."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from lohe import sphere


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
    uniform ones need 12/‖h‖. Weak order 1: keep ‖h‖·step and D·d_osc·step well below 1.
    """
    if diffusion < 0 or horizon <= 0 or step <= 0:
        raise ValueError(
            "langevin needs diffusion >= 0 and a positive horizon and step, "
            f"got diffusion={diffusion}, horizon={horizon}, step={step}."
        )
    steps = math.ceil(horizon / step)
    dt = horizon / steps
    z = z0.expand(torch.broadcast_shapes(z0.shape, h.shape))  # each trajectory has its own noise
    for _ in range(steps):
        noise = torch.randn(z.shape, generator=generator, dtype=z.dtype, device=generator.device)
        z = langevin_step(z, h * dt + math.sqrt(2 * diffusion * dt) * noise.to(z.device))
    return z


def langevin_step(
    z: Float[Tensor, "*batch d_osc"], push: Float[Tensor, "*batch d_osc"]
) -> Float[Tensor, "*batch d_osc"]:
    """Heun's step for a Stratonovich equation, push = h dt + sqrt(2D) ΔW, back on the sphere.

    The projection is averaged over both ends of the step: taken at the start alone it would
    give the Itô equation, which leaves the sphere.
    """
    first = sphere.tangent(z, push)
    second = sphere.tangent(z + first, push)
    return sphere.normalize(z + (first + second) / 2)
