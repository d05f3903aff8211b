"""How flat the rows of an attention matrix are."""

import torch
from jaxtyping import Float
from torch import Tensor


def causal_entropy(attention: Float[Tensor, "*batch i i"]) -> Float[Tensor, "*batch rows"]:
    """-Σ_j a_ij ln a_ij / ln(i + 1) of the rows i >= 1 of causal attention: 1 is uniform.

    Row i has i + 1 keys to choose from; row 0 has no choice, and is left out.

    >>> causal_entropy(torch.tensor([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.0, 0.0, 1.0]]))
    tensor([1., 0.])
    """
    rows = attention[..., 1:, :]
    keys = torch.arange(2, attention.shape[-1] + 1, device=rows.device)
    return torch.special.entr(rows).sum(dim=-1) / keys.to(rows.dtype).log()
