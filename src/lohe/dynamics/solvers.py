"""Solver adapters: options as fields, one call each, nothing imported before it is needed."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from lohe.dynamics.solution import Field, Solution, Status


@runtime_checkable
class Solver(Protocol):
    """Integrates all trajectories from t = 0 to the horizon; the leading axes are the batch."""

    def __call__(self, field: Field, z0: Tensor, horizon: float, batch: torch.Size) -> Solution: ...


@dataclass(frozen=True)
class Euler:
    """Forward Euler, z ← z + ż dt in steps of at most `step`; first order.

    `project` brings the state back to where it belongs after each step: `sphere.normalize` for
    oscillators (the paper's check of integrators in Appendix C), None for phases.
    Unstable where ‖h‖·step is above 2.
    """

    step: float = 0.05
    project: Callable[[Tensor], Tensor] | None = None

    def __post_init__(self) -> None:
        if not self.step > 0:
            raise ValueError(f"Euler advances in steps of positive length, got step={self.step}.")

    def __call__(self, field: Field, z0: Tensor, horizon: float, batch: torch.Size) -> Solution:
        steps = math.ceil(horizon / self.step)
        dt = horizon / steps
        z = z0
        for n in range(steps):
            z = z + dt * field(align(z.new_full(batch, n * dt), z), z)
            z = z if self.project is None else self.project(z)
        count = torch.full(batch, steps, device=z0.device)
        return Solution(z, torch.zeros_like(count), count, count)


@dataclass(frozen=True)
class Torchode:
    """Adaptive Runge-Kutta by torchode: one batch, a step size per trajectory, differentiable.

    `heun` has order 2, `dopri5` (the method of MATLAB's and scipy's RK45) and `tsit5` order 5.
    """

    method: str = "dopri5"
    rtol: float = 1e-6
    atol: float = 1e-6
    max_steps: int = 10_000

    def __post_init__(self) -> None:
        if self.method not in ("heun", "dopri5", "tsit5"):
            raise ValueError(
                f"Torchode has the methods heun, dopri5, tsit5; got {self.method!r}. "
                "For others, use Scipy."
            )

    def __call__(self, field: Field, z0: Tensor, horizon: float, batch: torch.Size) -> Solution:
        try:
            torchode: Any = import_module("torchode")  # its annotations predate ours
        except ImportError as error:
            raise ImportError(
                'The solver Torchode needs the package torchode: pip install "lohe[ode]". '
                "Euler and Scipy work without it."
            ) from error
        methods = {"heun": torchode.Heun, "dopri5": torchode.Dopri5, "tsit5": torchode.Tsit5}
        y0 = z0.reshape(batch.numel(), -1)

        def term(t: Tensor, y: Tensor) -> Tensor:
            z = y.reshape(z0.shape)
            return field(align(t.reshape(batch), z), z).reshape(y.shape)

        ode = torchode.ODETerm(term)
        controller = torchode.IntegralController(self.atol, self.rtol, term=ode)
        method = methods[self.method](ode)
        adjoint = torchode.AutoDiffAdjoint(
            method,
            controller,
            max_steps=self.max_steps,
            backprop_through_step_size_control=False,  # NaN where a trajectory is at rest
        )
        end = y0.new_full((len(y0),), horizon)
        problem = torchode.InitialValueProblem(y0, torch.zeros_like(end), end, end[:, None])
        found = adjoint.solve(problem, ode)
        # torchode's status alone will not do: it stops the batch at the first failure, leaving
        # SUCCESS on trajectories still under way, and marks one that arrives on its last step
        arrived = found.stats["n_initialized"] == 1
        code = found.status
        status = torch.full_like(code, Status.INTERRUPTED)
        status[code == torchode.Status.REACHED_MAX_STEPS.value] = Status.MAX_STEPS
        status[code == torchode.Status.INFINITE_NORM.value] = Status.NOT_FINITE
        status[arrived] = Status.SUCCESS
        return Solution(
            found.ys[:, 0].reshape(z0.shape),
            status.reshape(batch),
            found.stats["n_accepted"].reshape(batch),
            found.stats["n_f_evals"].to(z0.device).reshape(batch),
        )


@dataclass(frozen=True)
class Scipy:
    """The oracle: `scipy.integrate.solve_ivp`, one solve per trajectory, no gradient.

    RK45 at rtol = atol = 1e-4 is the paper's method (Section 4.4). The field is evaluated over
    the whole batch to advance one trajectory of it: O(batch²), so keep batches small.
    """

    method: str = "RK45"
    rtol: float = 1e-4
    atol: float = 1e-4

    @torch.no_grad()
    def __call__(self, field: Field, z0: Tensor, horizon: float, batch: torch.Size) -> Solution:
        from scipy.integrate import solve_ivp

        flat = z0.detach().reshape(batch.numel(), -1)
        state = torch.full_like(flat, torch.nan)
        status = torch.full((len(flat),), Status.NOT_FINITE, device=z0.device)
        steps, evaluations = torch.zeros_like(status), torch.zeros_like(status)
        for k, start in enumerate(flat.cpu().double().numpy()):
            if not np.isfinite(start).all():
                continue

            def term(t: float, y: np.ndarray, k: int = k) -> np.ndarray:
                z = flat.clone()
                z[k] = torch.as_tensor(y)
                z = z.reshape(z0.shape)
                dz = field(align(z.new_full(batch, t), z), z).reshape(flat.shape)[k]
                if not dz.isfinite().all():  # solve_ivp would shrink its step for ever
                    raise NotFiniteError
                return dz.cpu().double().numpy()

            try:
                found = solve_ivp(
                    term,
                    (0.0, horizon),
                    start,
                    method=self.method,
                    rtol=self.rtol,
                    atol=self.atol,
                )
            except NotFiniteError:
                continue
            state[k] = torch.as_tensor(found.y[:, -1])
            status[k] = Status.SUCCESS if found.success else Status.STEP_TOO_SMALL
            steps[k], evaluations[k] = len(found.t) - 1, found.nfev
        return Solution(
            state.reshape(z0.shape),
            status.reshape(batch),
            steps.reshape(batch),
            evaluations.reshape(batch),
        )


class NotFiniteError(ArithmeticError):
    """A field that is not finite, on its way out of scipy."""


def align(t: Tensor, z: Tensor) -> Tensor:
    """t over the batch, with trailing axes of length one so that it broadcasts against z."""
    return t.reshape(*t.shape, *(1,) * (z.ndim - t.ndim))
