"""Token embedding with a padding row that is zero and stays so."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

PAD = 0  # the id of padding in every task


class Embedding(nn.Module):
    """nn.Embedding(words, d_model, padding_idx=0): N(0, 1), row 0 zero and without gradient.

    The gradient is cut by hand: under vmap, with the backward pass outside of it, torch applies
    `padding_idx` to the first model of a pack alone (seen in torch 2.13).
    """

    def __init__(self, words: int, d_model: int, generator: torch.Generator | None = None):
        super().__init__()
        weight = torch.randn(words, d_model, generator=generator)
        weight[PAD] = 0
        self.weight = nn.Parameter(weight)

    def forward(self, tokens: Int[Tensor, "batch tokens"]) -> Float[Tensor, "batch tokens d_model"]:
        x = F.embedding(tokens, self.weight)
        return torch.where((tokens == PAD)[..., None], x.detach(), x)

    def extra_repr(self) -> str:
        return f"words={self.weight.shape[0]}, d_model={self.weight.shape[1]}"
