"""How many oscillators of a trained model settle in time: one measure, three ways that must agree.

    RK45      as published: scipy at rtol = atol = 1e-4, one oscillator at a time, on a subsample
    flow      the exact solution at the horizon, every oscillator from every start
    formula   the probability of a late start, averaged over the measured ‖h‖: no start is drawn

Errors are Section 4.4's, ‖z - z*‖; below 0.01 an oscillator has converged, until then it is late.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from lohe import sphere
from lohe.dynamics import (
    Cause,
    Convergence,
    convergence,
    failure_cause,
    flow,
    settling_error,
    unsettled_probability,
)
from lohe.dynamics.settling import ANTIPODAL_ABOVE, CONVERGED_BELOW
from lohe.experiments.measures import Bench, Taken
from lohe.experiments.store.records import Record
from lohe.experiments.studies.settle.drives import drives
from lohe.experiments.verdicts import bound
from lohe.train import Run

HORIZON = 30.0
HORIZONS = (HORIZON, 100.0, 500.0, 1000.0, 5000.0)
DEGREES = (1, 5, 10, 30, 90)  # of a start from the antipode
TOLERANCE = 1e-4  # of the published RK45
ROUNDING = 1e-12  # of means of zeros and ones, whose sampling error may vanish


@dataclass(frozen=True)
class Settling:
    """How many oscillators have converged at each horizon, and why the others have not.

    The published sample: the first 32 validation chunks, tokens that are no padding, 5 uniform
    starts. The curve has a row for each layer and horizon; RK45 and the angles of late starts are
    those of the last layer at the first horizon. `solves` trajectories are integrated by RK45.
    """

    run: Run
    chunks: int = 32
    starts: int = 5
    solves: int = 2000
    horizons: tuple[float, ...] = HORIZONS
    seed: int = 42

    def take(self, bench: Bench) -> Taken:
        found = drives(bench, self.run, self.chunks)
        return self.settle([found.oscillators(n) for n in range(len(found.layers))])

    def settle(self, layers: list[Float[Tensor, "_ d_osc"]]) -> Taken:
        """What becomes of oscillators with these drives, layer by layer."""
        rng = torch.Generator().manual_seed(self.seed)
        how: dict[str, Any] = {"generator": rng, "dtype": layers[0].dtype}
        starts = [sphere.uniform(self.starts, *h.shape, device=h.device, **how) for h in layers]
        curve = [
            {"layer": n, **settled(z0, h, horizon)}
            for n, (z0, h) in enumerate(zip(starts, layers, strict=True))
            for horizon in self.horizons
        ]
        z0, h, first, last = starts[-1], layers[-1], self.horizons[0], self.horizons[-1]
        sizes = {"oscillators": len(h), "trajectories": self.starts * len(h)}
        late = late_starts(z0, h, first, last)
        return Taken(sizes | norms(h) | late | by_rk45(z0, h, first, self.solves, rng), curve)


def settled(
    z0: Float[Tensor, "starts oscillators d_osc"],
    h: Float[Tensor, "oscillators d_osc"],
    horizon: float,
) -> dict[str, float]:
    """Fractions at the horizon by the exact flow, and what is expected over all starts.

    `se` is the standard error of `converged` around `formula`, sqrt(Σ p(1 - p)) / trajectories.
    """
    error = settling_error(flow(z0, h, horizon), h)
    kind, cause = convergence(error), failure_cause(z0, h, horizon)
    late, far = (
        unsettled_probability(h.norm(dim=-1), horizon, tolerance, h.shape[-1])
        for tolerance in (CONVERGED_BELOW, ANTIPODAL_ABOVE)
    )
    return {
        "horizon": horizon,
        "converged": share(kind, Convergence.CONVERGED),
        "near": share(kind, Convergence.NEAR_THRESHOLD),
        "far": share(kind, Convergence.APPARENTLY_ANTIPODAL),
        "weak_drive": share(cause, Cause.WEAK_DRIVE),
        "antipodal_start": share(cause, Cause.ANTIPODAL_START),
        "mean_error": error.mean().item(),
        "formula": 1 - late.mean().item(),
        "formula_far": far.mean().item(),
        "se": math.sqrt((late * (1 - late)).mean().item() / error.numel()),
    }


def share(kind: Int[Tensor, "*batch"], one: int) -> float:
    """The fraction that is of one kind."""
    return (kind == one).double().mean().item()


def late_starts(
    z0: Float[Tensor, "starts oscillators d_osc"],
    h: Float[Tensor, "oscillators d_osc"],
    first: float,
    last: float,
) -> dict[str, float]:
    """The published classification: how near to the antipode late trajectories started, in counts.

    Those late at the first horizon by degrees, those late at the last one by their mean angle.
    """
    angle = sphere.angle(z0, -sphere.normalize(h)).rad2deg()
    at_first, at_last = (
        angle[settling_error(flow(z0, h, t), h) >= CONVERGED_BELOW] for t in (first, last)
    )
    return {
        "late": len(at_first),
        **{f"late.within_{degrees}": (at_first < degrees).sum().item() for degrees in DEGREES},
        "late.last": len(at_last),
        "late.last_angle": at_last.mean().item(),
    }


def by_rk45(
    z0: Float[Tensor, "starts oscillators d_osc"],
    h: Float[Tensor, "oscillators d_osc"],
    horizon: float,
    solves: int,
    rng: torch.Generator,
) -> dict[str, float]:
    """Fractions by the published integration, of trajectories chosen at random.

    `rk45.unlike_flow` counts those that the exact flow puts on the other side of 0.01.
    """
    chosen = torch.randperm(z0[..., 0].numel(), generator=rng)[:solves].to(z0.device)
    start, drive = z0.flatten(0, 1)[chosen], h[chosen % len(h)]
    state, evaluations = rk45(start, drive, horizon)
    error, exact = (settling_error(z, drive) for z in (state, flow(start, drive, horizon)))
    kind = convergence(error)
    return {
        "rk45.solves": len(chosen),
        "rk45.converged": share(kind, Convergence.CONVERGED),
        "rk45.far": share(kind, Convergence.APPARENTLY_ANTIPODAL),
        "rk45.mean_error": error.mean().item(),
        "rk45.evaluations": evaluations / len(chosen),
        "rk45.unlike_flow": ((error < CONVERGED_BELOW) != (exact < CONVERGED_BELOW)).sum().item(),
    }


def rk45(
    z0: Float[Tensor, "oscillators d_osc"], h: Float[Tensor, "oscillators d_osc"], horizon: float
) -> tuple[Float[Tensor, "oscillators d_osc"], int]:
    """States at the horizon as published, and evaluations of the field in all.

    One `solve_ivp` an oscillator. The field brings the state back to the sphere before it projects,
    and so is the last state. NaN where scipy gave up.
    """
    from scipy.integrate import solve_ivp

    states, evaluations = [], 0
    for start, drive in zip(z0.cpu().numpy(), h.cpu().numpy(), strict=True):

        def field(t: float, z: np.ndarray, drive: np.ndarray = drive) -> np.ndarray:
            z = z / math.sqrt(z @ z)
            return drive - (z @ drive) * z

        found = solve_ivp(field, (0, horizon), start, "RK45", rtol=TOLERANCE, atol=TOLERANCE)
        states.append(found.y[:, -1] if found.success else np.full_like(start, np.nan))
        evaluations += found.nfev
    return sphere.normalize(torch.as_tensor(np.stack(states), device=z0.device)), evaluations


def norms(h: Float[Tensor, "oscillators d_osc"]) -> dict[str, float]:
    """Quantiles of the measured ‖h‖."""
    at = {"least": 0.0, "1%": 0.01, "10%": 0.1, "median": 0.5, "90%": 0.9, "largest": 1.0}
    ordered = h.norm(dim=-1).sort().values
    return {f"norm.{name}": ordered[round(q * (len(h) - 1))].item() for name, q in at.items()}


@dataclass(frozen=True)
class Settled:
    """What was found of one model."""

    record: Record

    def at(self, horizon: float = HORIZON) -> dict[str, float]:
        """The row of a horizon, last layer, as published."""
        rows = [row for row in self.record.curve if row["horizon"] == horizon]
        return max(rows, key=lambda row: row["layer"])

    @property
    def layers(self) -> list[float]:
        """Converged at T = 30, first layer first."""
        return [row["converged"] for row in self.record.curve if row["horizon"] == HORIZON]

    @property
    def trajectories(self) -> int:
        return int(self.record.result["trajectories"])

    def late(self, kind: str = "") -> int:
        """Late trajectories at T = 30: all, or ".within_30" degrees; ".last": at the last one."""
        return int(self.record.result[f"late{kind}"])

    @property
    def rk45(self) -> tuple[float, float]:
        """The converged fraction by RK45, and its standard error as a subsample."""
        solves, p = self.record.result["rk45.solves"], self.at()["formula"]
        left_out = 1 - solves / self.trajectories
        return self.record.result["rk45.converged"], math.sqrt(
            max(0.0, p * (1 - p) / solves * left_out)
        )

    @property
    def agrees(self) -> bool:
        """Whether the three fractions are within three standard errors of one another."""
        row, (solved, se), reach = self.at(), self.rk45, bound("settle-exact")
        pairs = (
            (solved - row["converged"], se),
            (row["converged"] - row["formula"], row["se"]),
            (solved - row["formula"], math.hypot(se, row["se"])),
        )
        return all(abs(difference) <= reach * error + ROUNDING for difference, error in pairs)
