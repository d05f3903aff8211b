"""How far from the fixed point z* = h/‖h‖ a trajectory is, when it gets there, and why it is late.

Distances are chords, ‖z - z*‖ = 2 sin(θ/2), as in the convergence study of Section 4.4.
"""

import math
from enum import IntEnum

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lohe import sphere
from lohe.dynamics.flow import polar

# Section 4.4: converged below the first, "apparently antipodal" above the second
CONVERGED_BELOW = 0.01
ANTIPODAL_ABOVE = 0.1


class Convergence(IntEnum):
    """The classes of Section 4.4, by the error left at the horizon."""

    CONVERGED = 0
    NEAR_THRESHOLD = 1
    APPARENTLY_ANTIPODAL = 2


class Cause(IntEnum):
    """Why a trajectory has not settled at its horizon."""

    SETTLED = 0
    WEAK_DRIVE = 1
    ANTIPODAL_START = 2


def settling_error(
    z: Float[Tensor, "*#batch d_osc"], h: Float[Tensor, "*#batch d_osc"]
) -> Float[Tensor, "*batch"]:
    """err = ‖z - z*‖, between 0 and 2; 1 where h = 0 and there is nothing to settle to."""
    return (z - sphere.normalize(h)).norm(dim=-1)


def settling_time(
    z0: Float[Tensor, "*#batch d_osc"],
    h: Float[Tensor, "*#batch d_osc"],
    tolerance: float = CONVERGED_BELOW,
) -> Float[Tensor, "*batch"]:
    """Time until ‖z - z*‖ = tolerance, from tan(θ/2) = tan(θ₀/2) exp(-‖h‖t).

    Zero if already there; infinite on the antipode and where h = 0. No gradient in these places.

    >>> z0, h = torch.tensor([0.0, 1.0]), torch.tensor([2.0, 0.0])
    >>> settling_time(z0, h, tolerance=0.01)  # log(200) / 2
    tensor(2.6492)
    """
    norm, z_star = polar(h)
    norm, near, far = norm.squeeze(-1), (z0 - z_star).norm(dim=-1), (z0 + z_star).norm(dim=-1)
    # a log of 0 replaced after the fact would still make its gradient NaN
    log_near, log_far = (torch.where(x == 0, 1, x).log() for x in (near, far))
    e_folds = log_near - log_far - math.log(half_angle_tangent(tolerance))
    time = e_folds.clamp(min=0) / torch.where(norm == 0, 1, norm)
    return torch.where((far == 0) | (norm == 0), torch.inf, torch.where(near == 0, 0, time))


def unsettled_probability(
    norm: float | Float[Tensor, "*batch"], horizon: float, tolerance: float, d_osc: int
) -> Float[Tensor, "*batch"]:
    """Probability that a uniform start is not within `tolerance` of z* at the horizon.

    Late are the starts of a cap around the antipode, α = 2 arctan(exp(-‖h‖T) / tan(θ_tol/2)).
    Averaged over the measured norms ‖h‖ this is the failure rate of Table 6, without an
    integration. One where h = 0 and there is nothing to settle to. Float64, on the CPU, without a
    gradient.

    >>> unsettled_probability(0.5, horizon=30.0, tolerance=0.01, d_osc=2)
    tensor(3.8948e-05, dtype=torch.float64)
    """
    norm = torch.as_tensor(norm, dtype=torch.float64, device="cpu").detach()
    if not horizon >= 0 or d_osc < 2 or bool((norm < 0).any()):
        raise ValueError(
            f"A drive has a norm >= 0, a horizon is >= 0 and d_osc at least 2, got norms from "
            f"{norm.min().item():g} on, horizon={horizon}, d_osc={d_osc}."
        )
    ratio = torch.exp(-norm * horizon) / half_angle_tangent(tolerance)
    return torch.where(norm == 0, 1, sphere.cap_probability(2 * torch.atan(ratio), d_osc))


def convergence(error: Float[Tensor, "*batch"]) -> Int[Tensor, "*batch"]:
    """`Convergence` class of each settling error, as its integer; NaN counts as not converged."""
    late = torch.where(
        error <= ANTIPODAL_ABOVE, Convergence.NEAR_THRESHOLD, Convergence.APPARENTLY_ANTIPODAL
    )
    return torch.where(error < CONVERGED_BELOW, Convergence.CONVERGED, late)


def failure_cause(
    z0: Float[Tensor, "*#batch d_osc"],
    h: Float[Tensor, "*#batch d_osc"],
    horizon: float,
    tolerance: float = CONVERGED_BELOW,
) -> Int[Tensor, "*batch"]:
    """`Cause` of each failure, as its integer, in closed form.

    A settling time is (log tan(θ₀/2) - log tan(θ_tol/2)) / ‖h‖: the start makes the first term,
    and it vanishes on the equator. So the start is to blame if an equatorial one would have
    settled in time under the same drive (which it cannot be unless θ₀ > 90°); if even that would
    have been late, the drive is too weak.
    """
    norm = polar(h)[0].squeeze(-1)
    equatorial = -math.log(half_angle_tangent(tolerance)) / norm
    in_time = (equatorial <= horizon) & (norm > 0)
    late = torch.where(in_time, Cause.ANTIPODAL_START, Cause.WEAK_DRIVE)
    return torch.where(settling_time(z0, h, tolerance) <= horizon, Cause.SETTLED, late)


def half_angle_tangent(tolerance: float) -> float:
    """tan(θ/2) of the angle whose chord 2 sin(θ/2) is `tolerance`."""
    if not 0 < tolerance < 2:
        raise ValueError(
            f"tolerance is a distance between points of the unit sphere, got {tolerance}. "
            "Choose it between 0 and 2; Section 4.4 takes 0.01."
        )
    return tolerance / math.sqrt(4 - tolerance**2)
