"""Where an oscillator is at time t, in closed form: no steps, no tolerances."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from lohe.dynamics.lift import as_float, lifted_flow
from lohe.transforms import under_transforms


def flow(
    z0: Float[Tensor, "*#batch d_osc"],
    h: Float[Tensor, "*#batch d_osc"],
    t: float | Float[Tensor, "*#batch"],
    frequency: Float[Tensor, "*#batch d_osc d_osc"] | None = None,
) -> Float[Tensor, "*batch d_osc"]:
    """State at time t >= 0 of ż = Ωz + (I - zzᵀ)h started at z0, exactly, for constant h and Ω.

    z0 lies on the unit sphere. Arguments broadcast, and the result is differentiable in each.
    Without a frequency the cost is O(d_osc), in the wider dtype of z0 and h but 32 bits at least,
    right for ‖h‖t of any size; a start on -h/‖h‖ stays there, and so does any start where h = 0.
    With one (skew-symmetric Ω) it is O(d_osc³) and done in float64, see `lifted_flow`. The sign of
    a tensor t is checked on the CPU, and not while torch compiles or maps.

    >>> z0, h = torch.tensor([0.0, 1.0]), torch.tensor([2.0, 0.0])
    >>> flow(z0, h, 0.5)  # (tanh 1, sech 1)
    tensor([0.7616, 0.6481])
    >>> flow(z0.expand(5, 2), h, torch.linspace(0, 1, 5)).shape
    torch.Size([5, 2])
    """
    least = least_known(t)
    if not least >= 0:
        raise ValueError(
            f"flow runs forward in time, got t={least}. Backward is the flow of the opposite drive "
            "and frequency: flow(z0, -h, -t, -frequency)."
        )
    if z0.shape[-1] != h.shape[-1]:
        raise ValueError(
            f"z0 and h are states and drives of one sphere, d_osc wide in their last axis; got "
            f"shapes {tuple(z0.shape)} and {tuple(h.shape)}."
        )
    if frequency is not None and not isinstance(frequency, Tensor):
        raise ValueError(
            f"frequency is a skew-symmetric tensor (..., d_osc, d_osc), got {frequency!r}. On the "
            "circle a rate w is torch.tensor([[0, -w], [w, 0]])."
        )
    if frequency is not None and frequency.shape[-2:] != (h.shape[-1], h.shape[-1]):
        raise ValueError(
            f"frequency turns the sphere of z0 and h, (..., {h.shape[-1]}, {h.shape[-1]}); got "
            f"shape {tuple(frequency.shape)}."
        )
    z0, h = as_float(z0), as_float(h)
    dtype = torch.promote_types(z0.dtype, h.dtype)
    wide = torch.promote_types(dtype, torch.float32)
    z0, h = z0.to(wide), h.to(wide)
    if frequency is None:
        return drift(z0, h, torch.as_tensor(t, dtype=wide, device=h.device)).to(dtype)
    return lifted_flow(z0, h, t, as_float(frequency)).to(dtype)


def least_known(t: float | Float[Tensor, "*batch"]) -> float:
    """The least time, or NaN; 0 where values cannot be seen, or only by waiting for a device."""
    if not isinstance(t, Tensor):
        return t
    hidden = torch.compiler.is_compiling() or under_transforms() or t.device.type != "cpu"
    return 0.0 if hidden or t.numel() == 0 else t.detach().amin().item()


def drift(
    z0: Float[Tensor, "*#batch d_osc"],
    h: Float[Tensor, "*#batch d_osc"],
    t: Float[Tensor, "*#batch"],
) -> Float[Tensor, "*batch d_osc"]:
    """The flow without frequency, by stereographic projection from the antipode -z*.

    With θ the angle between z and z* = h/‖h‖, θ̇ = -‖h‖ sin θ, hence

        tan(θ/2) = tan(θ₀/2) E,    E = exp(-‖h‖ t),    in any dimension.

    Written with m = z0 + z*, whose length 2 cos(θ₀/2) keeps its digits near the antipode,

        z ∝ 2E m + (½‖m‖² (1 - E)² - 2E²) z*.

    All terms are polynomials in m and E, so no gradient is singular. The steepest is on the
    antipode, dz/dz0 = exp(‖h‖t); there it stops at 1/ε, as for the nearest start dtype can tell.
    """
    t = t[..., None].clamp(max=torch.finfo(h.dtype).max / 4)  # t may be infinite, and h = 0 rest
    norm, z_star = polar(h)
    m = z0 + z_star
    length = m.norm(dim=-1, keepdim=True)
    u = norm * t
    u = torch.where(length == 0, u.clamp(max=-math.log(torch.finfo(h.dtype).eps)), u)
    travelled = -torch.expm1(-u)  # 1 - E

    # only the ratio of ‖m‖ and E matters: both are divided by the larger, lest they underflow
    log_scale = torch.maximum(length.log(), -u).detach()
    e, scale = torch.exp(-u - log_scale), torch.exp(-log_scale)
    along = (length * scale * travelled).square() / 2
    # for ‖h‖t < 1 with 2E m - 2E² z* = 2E (z0 + (1 - E) z*), which has digits left in its gradient
    # as ‖h‖t -> 0, and the first order z0 + t h at h = 0
    short = u < 1
    ahead = torch.where(short, 2 * e * scale * torch.where(norm == 0, t, travelled), -2 * e * e)
    z = torch.addcmul(2 * e * scale * torch.where(short, z0, m), along + ahead, z_star)
    # 0 only without both drive and start (a masked sequence): it stays 0, and gets no gradient
    length = z.norm(dim=-1, keepdim=True)
    return z / torch.where(length == 0, torch.inf, length)


def polar(
    h: Float[Tensor, "*batch d_osc"],
) -> tuple[Float[Tensor, "*batch 1"], Float[Tensor, "*batch d_osc"]]:
    """‖h‖ and h/‖h‖, neither over- nor underflowing on the way; 0 and h itself where h = 0."""
    largest = h.detach().abs().amax(dim=-1, keepdim=True)
    largest = torch.where(largest < torch.finfo(h.dtype).tiny, 1, largest)
    h = h / largest
    norm = h.norm(dim=-1, keepdim=True)
    return norm * largest, h / torch.where(norm == 0, 1, norm)
