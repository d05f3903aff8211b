"""The coupling functions σ of Eq. 2, by name."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

RELU_FLOOR = 1e-3  # paper, Sec. 2: relu(x) + 1e-3, so that the coupling stays positive


COUPLINGS: dict[str, Callable[[Tensor], Tensor]] = {
    "softplus": F.softplus,
    "relu": lambda s: torch.relu(s) + RELU_FLOOR,
    # elu(s) + 1 = max(s, 0) + exp(min(s, 0)); added to -1 < elu(s) < 0 the 1 would leave no digits
    "elu": lambda s: torch.relu(s) + s.clamp(max=0).exp(),
    "exp": torch.exp,
}
