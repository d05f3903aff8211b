"""Right-hand sides: what the time derivative of the oscillators is, given where they are."""

import torch
from jaxtyping import Float
from torch import Tensor

from lohe import sphere


def lohe(
    x: Float[Tensor, "*batch i d_osc"],
    couplings: Float[Tensor, "*#batch i i"],
    frequency: Float[Tensor, "*#batch i d_osc d_osc"] | None = None,
) -> Float[Tensor, "*batch i d_osc"]:
    """Eq. 1: ẋ_i = Ω_i x_i + (I - x_i x_iᵀ) Σ_j w_ij x_j.

    Every oscillator pulls on every other, so one state is the whole (i, d_osc) matrix:
    `solve` it with state_axes=2.
    """
    pull = torch.einsum("...ij,...jd->...id", couplings, x)
    return sphere.tangent(x, pull) + rotation(x, frequency)


def fixed_query(
    z: Float[Tensor, "*batch d_osc"],
    h: Float[Tensor, "*#batch d_osc"],
    frequency: Float[Tensor, "*#batch d_osc d_osc"] | None = None,
) -> Float[Tensor, "*batch d_osc"]:
    """Eqs. 3 and 7: ż_i = (I - z_i z_iᵀ) h_i, plus Ω_i z_i where a frequency is given.

    The anchors do not move and the z_i ignore each other: each is a trajectory of its own.
    """
    return sphere.tangent(z, h) + rotation(z, frequency)


def kuramoto(
    phase: Float[Tensor, "*batch i"],
    couplings: Float[Tensor, "*#batch i i"],
    frequency: Float[Tensor, "*#batch i"] | None = None,
) -> Float[Tensor, "*batch i"]:
    """Appendix A: θ̇_i = ω_i + Σ_j w_ij sin(θ_j - θ_i).

    The Lohe model on the circle, x_i = (cos θ_i, sin θ_i) and Ω_i = ω_i [[0, -1], [1, 0]].
    """
    pull = (couplings * torch.sin(phase[..., None, :] - phase[..., :, None])).sum(dim=-1)
    return pull if frequency is None else frequency + pull


def rotation(
    z: Float[Tensor, "*batch d_osc"], frequency: Float[Tensor, "*#batch d_osc d_osc"] | None
) -> Float[Tensor, "*batch d_osc"]:
    """Ω z: tangent to the sphere because Ω is skew-symmetric; zero without a frequency."""
    if frequency is None:
        return torch.zeros_like(z)
    return torch.einsum("...de,...e->...d", frequency, z)
