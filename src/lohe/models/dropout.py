"""Dropout that draws from a generator of its own, also under vmap and in a CUDA graph."""

import torch
from jaxtyping import Float
from torch import Tensor, nn


class Dropout(nn.Module):
    """Zero each entry with probability p and scale the others by 1 / (1 - p); identity in eval.

    Masks come from `generator` (on the device of the input), or from torch's own where it is None:
    see `set_generator`. Under vmap(..., randomness="different") each model draws its own masks. To
    capture it in a CUDA graph, register the generator with the graph.
    """

    generator: torch.Generator | None

    def __init__(self, p: float = 0.1):
        super().__init__()
        if not 0 <= p < 1:
            raise ValueError(f"Dropout needs a probability 0 <= p < 1, got {p}.")
        self.p, self.generator = p, None

    def forward(self, x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        if not self.training or self.p == 0:
            return x
        kept = torch.empty_like(x).bernoulli_(1 - self.p, generator=self.generator)
        return x * kept.div_(1 - self.p)

    def extra_repr(self) -> str:
        return f"p={self.p}"


def set_generator(model: nn.Module, generator: torch.Generator | None) -> None:
    """Let every `Dropout` of the model draw from this generator; None: from torch's own."""
    for module in model.modules():
        if isinstance(module, Dropout):
            module.generator = generator
