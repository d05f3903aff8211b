"""Any field on any solver: for what has no closed form, and to check what has."""

import math
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from lohe.dynamics.solution import Field, Solution, Status
from lohe.dynamics.solvers import Solver, Torchode, align
from lohe.transforms import under_transforms


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
    the batch, with trailing axes of length one. Trajectories that are seen to act on each other
    are refused, at the cost of two evaluations of the field.

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

    if batch.numel() == 0:
        none = torch.zeros(batch, dtype=torch.long, device=z0.device)
        return Solution(z0, none, none, none)
    check_independent(checked, z0, horizon, batch)
    found = solver(checked, z0, horizon, batch)
    axes = tuple(range(len(batch), z0.ndim))
    not_finite = (found.status == Status.SUCCESS) & ~found.state.isfinite().all(dim=axes)
    status = torch.where(not_finite, Status.NOT_FINITE, found.status)
    failed = (status != Status.SUCCESS).reshape(*batch, *(1,) * state_axes)
    return replace(found, state=torch.where(failed, torch.nan, found.state), status=status)


def check_independent(field: Field, z0: Tensor, horizon: float, batch: torch.Size) -> None:
    """Move every other trajectory (a checkerboard over the batch) and see whether the rest feel it.

    Each has a clock of its own, so a field that couples them would be given states of different
    times. Coupling within one colour of the board alone is not seen.
    """
    if batch.numel() < 2 or torch.compiler.is_compiling() or under_transforms():
        return
    z = z0.detach()
    t = align(z.new_full(batch, horizon / 2), z)  # at t = 0 a coupling may still be off
    moved = align(torch.as_tensor(np.indices(batch).sum(axis=0) % 2 == 0, device=z.device), z)
    push = torch.arange(z.numel(), device=z.device).cos().reshape(z.shape).to(z.dtype)
    there = torch.where(moved, z + 0.1 * (1 + z.abs()) * push, z)
    before = field(t, z).detach()
    try:
        after = field(t, there).detach()
    except Exception:  # it is asked for no state that it refuses
        return
    rounding = 8 * torch.finfo(z.dtype).eps * before.nan_to_num(0, 0, 0).abs().amax()
    if bool((((after - before).abs() > rounding) & ~moved).any()):
        axes = z.ndim - len(batch)
        raise ValueError(
            f"state_axes={axes} makes z0 of shape {tuple(z.shape)} {batch.numel()} trajectories "
            "that ignore each other, but the field moves some by where others are (or draws "
            "random numbers). Oscillators that pull on each other are one state: count their "
            f"axis, state_axes={axes + 1}; {z.ndim} takes all for one."
        )
