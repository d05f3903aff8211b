"""Any field on any solver: for what has no closed form, and to check what has."""

import math
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from lohe.dynamics.solution import Field, Solution, Status
from lohe.dynamics.solvers import Solver, Torchode


def solve(
    field: Field,
    z0: Float[Tensor, "..."],
    horizon: float,
    solver: Solver = Torchode(),  # noqa: B008 (frozen)
    *,
    state_axes: int = 1,
) -> Solution:
    """Integrate ż = field(t, z) from z0 at t = 0 to the horizon, all trajectories at once.

    The last `state_axes` axes of z0 are the state of one trajectory and those before them the
    batch: 1 for oscillators that ignore each other, each with a step size of its own, and for
    Kuramoto phases; 2 for the mutually coupled oscillators of Eq. 1. t arrives in the shape of
    the batch, with trailing axes of length one.

    >>> from lohe.dynamics import Euler, fixed_query
    >>> z0, h = torch.tensor([[0.0, 1.0], [0.6, 0.8]]), torch.tensor([2.0, 0.0])
    >>> solution = solve(lambda t, z: fixed_query(z, h), z0, horizon=10.0, solver=Euler(0.01))
    >>> solution.state.round(decimals=4), solution.succeeded
    (tensor([[1., 0.],
            [1., 0.]]), True)
    """
    if not 0 < horizon < math.inf:
        raise ValueError(f"solve needs a positive, finite horizon, got {horizon}.")
    if not 1 <= state_axes <= z0.ndim:
        raise ValueError(
            f"state_axes={state_axes} asks for states of that many axes, but z0 has shape "
            f"{tuple(z0.shape)}. It counts the trailing axes of one trajectory's state."
        )
    batch = z0.shape[: z0.ndim - state_axes]

    def checked(t: Tensor, z: Tensor) -> Tensor:
        dz = field(t, z)
        if dz.shape != z.shape:
            raise ValueError(
                f"The field maps states of shape {tuple(z.shape)} to {tuple(dz.shape)}; solve "
                "needs the same shape. If the field broadcasts, expand z0 to the whole batch."
            )
        return dz

    found = solver(checked, z0, horizon, batch)
    axes = tuple(range(len(batch), z0.ndim))
    not_finite = (found.status == Status.SUCCESS) & ~found.state.isfinite().all(dim=axes)
    status = torch.where(not_finite, Status.NOT_FINITE, found.status)
    failed = (status != Status.SUCCESS).reshape(*batch, *(1,) * state_axes)
    return replace(found, state=torch.where(failed, torch.nan, found.state), status=status)
