"""The coupling functions σ of Eq. 2 and their derivatives, by name."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

RELU_FLOOR = 1e-3  # paper, Sec. 2: relu(x) + 1e-3, so that the coupling stays positive


class Coupling(NamedTuple):
    """σ and σ′, both functions of the score."""

    value: Callable[[Tensor], Tensor]
    derivative: Callable[[Tensor], Tensor]


COUPLINGS: dict[str, Coupling] = {
    "softplus": Coupling(F.softplus, torch.sigmoid),
    "relu": Coupling(lambda s: torch.relu(s) + RELU_FLOOR, lambda s: (s > 0).to(s.dtype)),
    "elu": Coupling(lambda s: F.elu(s) + 1, lambda s: torch.exp(s.clamp(max=0))),
    "exp": Coupling(torch.exp, torch.exp),
}
