"""What a solver returns: states, and for each trajectory whether to believe it."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

from jaxtyping import Float, Int
from torch import Tensor

# (t, z) -> ż, both over the whole batch; t has z's batch axes followed by axes of length one
Field = Callable[[Tensor, Tensor], Tensor]


class Status(IntEnum):
    """How the integration of one trajectory ended."""

    SUCCESS = 0
    MAX_STEPS = 1
    NOT_FINITE = 2
    STEP_TOO_SMALL = 3
    INTERRUPTED = 4  # the solver gave up on the whole batch when another trajectory failed


@dataclass(frozen=True)
class Solution:
    """States at the horizon, NaN where `status` is not SUCCESS, and what they cost.

    `status`, `steps` (accepted ones) and `evaluations` (of the field) are per trajectory.
    """

    state: Float[Tensor, "..."]
    status: Int[Tensor, "*batch"]
    steps: Int[Tensor, "*batch"]
    evaluations: Int[Tensor, "*batch"]

    @property
    def succeeded(self) -> bool:
        """Whether every trajectory reached the horizon."""
        return bool((self.status == Status.SUCCESS).all())

    def failures(self) -> dict[str, int]:
        """Number of trajectories by kind of failure, empty when all succeeded."""
        counts = {s.name: int((self.status == s).sum()) for s in Status}
        return {name: n for name, n in counts.items() if n and name != Status.SUCCESS.name}
