"""What tells a model where a token stands: nothing, sinusoids, or a learned table."""

from typing import Literal, get_args

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

Positions = Literal["none", "sinusoidal", "learned"]

BASE = 10_000
LEARNED_DEVIATION = 0.02  # published code: N(0, 0.02²)


class PositionTable(nn.Module):
    """x_t + table_t, with a row for each of the first positions."""

    table: Float[Tensor, "max_tokens d_model"]

    def __init__(self, table: Float[Tensor, "max_tokens d_model"]):
        super().__init__()
        self.spacing = 1.0  # of neighbours, where the rows are sinusoids
        if isinstance(table, nn.Parameter):
            self.table = table
        else:  # it can be made again: not for the checkpoint
            self.register_buffer("table", table, persistent=False)

    def forward(
        self, x: Float[Tensor, "batch tokens d_model"]
    ) -> Float[Tensor, "batch tokens d_model"]:
        tokens, rows = x.shape[1], self.table.shape[0]
        if tokens > rows:
            raise ValueError(
                f"The model has positions for {rows} tokens, got {tokens}. Cut the sequence, or "
                f"build the model with max_tokens >= {tokens}."
            )
        return x + self.table[:tokens]


def positions(
    kind: str, max_tokens: int, d_model: int, generator: torch.Generator | None = None
) -> nn.Module:
    """The module that adds positions of this kind; "none" gives an identity."""
    if kind == "none":
        return nn.Identity()
    if kind == "sinusoidal":
        return PositionTable(sinusoids(max_tokens, d_model))
    if kind == "learned":
        table = torch.randn(max_tokens, d_model, generator=generator)
        return PositionTable(nn.Parameter(LEARNED_DEVIATION * table))
    raise ValueError(
        f"positions={kind!r} is not known. Choose one of {', '.join(get_args(Positions))}."
    )


def sinusoids(max_tokens: int, d_model: int) -> Float[Tensor, "{max_tokens} {d_model}"]:
    """sin(t / 10000^(2k/d)) on the even channels 2k, cos of the same on the odd ones 2k + 1."""
    return sinusoids_at(torch.arange(max_tokens), d_model)


def sinusoids_at(
    places: Shaped[Tensor, " tokens"], d_model: int
) -> Float[Tensor, "tokens {d_model}"]:
    """The same at any real t."""
    t = places.double()
    even = torch.arange(0, d_model, 2, dtype=torch.float64, device=places.device)
    phase = t[:, None] / BASE ** (even / d_model)
    table = torch.stack([phase.sin(), phase.cos()], dim=-1).flatten(1)
    return table[:, :d_model].to(torch.get_default_dtype())
