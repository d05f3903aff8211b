"""How many directions a matrix uses, and what is left of it with fewer.

Ranks are functions of singular values, `torch.linalg.svdvals(matrix)`. Rows and columns of zeros
add none but 0, and change nothing: matrices of several sizes fit in one batch.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor


def effective_rank(singular_values: Float[Tensor, "*batch k"]) -> Float[Tensor, "*batch"]:
    """exp(-Σ p_k ln p_k), p_k = σ_k / Σ σ: the effective rank of Roy and Vetterli (2007).

    r for r equal singular values, less where a few dominate, never more than the rank.

    >>> round(effective_rank(torch.tensor([2.0, 2.0, 2.0, 0.0])).item(), 4)
    3.0
    """
    p = singular_values / singular_values.sum(dim=-1, keepdim=True)
    return torch.special.entr(p).sum(dim=-1).exp()


def rank(
    singular_values: Float[Tensor, "*batch k"], tolerance: float = 1e-10
) -> Int[Tensor, "*batch"]:
    """How many singular values exceed `tolerance` times the largest; meant for float64.

    >>> rank(torch.tensor([2.0, 1.0, 1e-15]))
    tensor(2)
    """
    return (singular_values > tolerance * singular_values.amax(dim=-1, keepdim=True)).sum(dim=-1)


def truncate(matrix: Float[Tensor, "*batch i j"], rank: int) -> Float[Tensor, "*batch i j"]:
    """The nearest matrix of this rank, Σ_{k <= r} σ_k u_k v_kᵀ (Eckart and Young), in float64."""
    if rank < 1:
        raise ValueError(f"A matrix is truncated to a rank of 1 at least, got {rank}.")
    u, s, vh = torch.linalg.svd(matrix.double(), full_matrices=False)
    nearest = (u[..., :rank] * s[..., None, :rank]) @ vh[..., :rank, :]
    return nearest.to(matrix.dtype)
