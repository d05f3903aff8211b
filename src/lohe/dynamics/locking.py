"""Injection locking: when a driven oscillator with a natural frequency comes to rest, how fast."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from lohe.dynamics.lift import as_float, check_skew_symmetric, double, lift


def locks(
    h: Float[Tensor, "*#batch d_osc"], frequency: Float[Tensor, "*#batch d_osc d_osc"]
) -> Bool[Tensor, "*batch"]:
    """Whether ż = Ωz + (I - zzᵀ)h converges exponentially from almost every start.

    On the circle this is Adler's condition |ω| < ‖h‖. At equality convergence is algebraic, and
    does not count; in odd dimension Ω has a kernel and almost every h locks.
    """
    margin = locking_margin(double(h), frequency)  # not rounded to h's dtype, in which it may be 1
    return (margin > 1).to(h.device)


def locking_margin(
    h: Float[Tensor, "*#batch d_osc"], frequency: Float[Tensor, "*#batch d_osc d_osc"]
) -> Float[Tensor, "*batch"]:
    """‖Ω⁻¹h‖ = sqrt(Σ_k |h_k|²/ω_k²) over the planes of Ω: how much weaker h may get and lock.

    Infinite where h has a part in the kernel of Ω; ‖h‖/|ω| on the circle. Float64 inside.
    """
    h, frequency = as_float(h), as_float(frequency)
    check_skew_symmetric(frequency)
    # iΩ is Hermitian with eigenvalues ±ω_k, each of the pair holding half of |h_k|²
    omega, planes = torch.linalg.eigh(1j * double(frequency))
    in_plane = (planes.mH @ double(h)[..., None].to(planes.dtype)).abs().squeeze(-1)
    rounding = 8 * h.shape[-1] * torch.finfo(omega.dtype).eps  # eigh is off by up to 5 at d = 3
    still = omega.abs() <= rounding * omega.abs().amax(dim=-1, keepdim=True)
    absent = in_plane <= rounding * double(h).norm(dim=-1, keepdim=True)
    ratio = in_plane / torch.where(still, 0, omega)
    return torch.where(still & absent, 0, ratio).norm(dim=-1).to(h)


def locking_rate(
    h: Float[Tensor, "*#batch d_osc"], frequency: Float[Tensor, "*#batch d_osc d_osc"]
) -> Float[Tensor, "*batch"]:
    """Rate λ at which a locked oscillator approaches rest, the spectral abscissa of the lift A.

    Zero where it does not lock; ‖h‖ without frequency, sqrt(‖h‖² - ω²) on the circle.
    """
    h, frequency = as_float(h), as_float(frequency)
    eigenvalues = torch.linalg.eigvals(lift(double(h), double(frequency)))
    rate = eigenvalues.real.amax(dim=-1).to(h)
    return torch.where(locks(h, frequency), rate, 0)
