"""The pre-norm transformer that the three models share."""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor, nn

from lohe.attention.projections import linear
from lohe.models.dropout import Dropout, GeluDropout
from lohe.models.mechanisms import Mechanism
from lohe.models.positions import Positions, positions
from lohe.ops.norm import LayerNorm
from lohe.tasks import Data


class Block(nn.Module):
    """x + attention(LN(x)), then x + FFN(LN(x)).

    FFN is Linear, GELU, Dropout, Linear, Dropout. As published there is no dropout in the attention
    or after it.
    """

    def __init__(
        self,
        attention: nn.Module,
        d_model: int,
        d_ff: int,
        dropout: float = 0.1,
        generator: torch.Generator | None = None,
    ):
        super().__init__()
        self.attention_norm = LayerNorm(d_model)
        self.attention = attention
        self.ffn_norm = LayerNorm(d_model)
        self.ffn = nn.Sequential(
            linear(d_model, d_ff, bias=True, generator=generator),
            nn.Identity(),  # weights that were saved know the layers as 0 and 3
            GeluDropout(dropout),
            linear(d_ff, d_model, bias=True, generator=generator),
            Dropout(dropout),
        )

    def forward(
        self,
        x: Float[Tensor, "batch tokens d_model"],
        key_mask: Bool[Tensor, "batch tokens"] | None = None,
    ) -> Float[Tensor, "batch tokens d_model"]:
        x = x + self.attention(self.attention_norm(x), key_mask=key_mask)
        return x + self.ffn(self.ffn_norm(x))


class Encoder(nn.Module):
    """Positions added, dropout, then the blocks."""

    def __init__(self, positions: nn.Module, dropout: float, blocks: list[Block]):
        super().__init__()
        self.positions = positions
        self.dropout = Dropout(dropout)
        self.blocks = nn.ModuleList(blocks)

    def forward(
        self,
        x: Float[Tensor, "batch tokens d_model"],
        key_mask: Bool[Tensor, "batch tokens"] | None = None,
    ) -> Float[Tensor, "batch tokens d_model"]:
        x = self.dropout(self.positions(x))
        for block in self.blocks:
            x = block(x, key_mask)
        return x


@dataclass(frozen=True, kw_only=True)
class Transformer:
    """What each of the three models is configured by."""

    attention: Mechanism
    d_model: int
    heads: int
    layers: int
    d_ff: int
    positions: Positions = "sinusoidal"
    dropout: float = 0.1

    def __post_init__(self) -> None:
        if not hasattr(self.attention, "build"):
            raise ValueError(
                f"attention={self.attention!r} is no mechanism. Give one of lohe.models, such as "
                "Oscillator(d_osc=8) or Softmax()."
            )

    def encoder(
        self, max_tokens: int, *, causal: bool, generator: torch.Generator | None
    ) -> Encoder:
        """Positions and blocks for up to `max_tokens`, drawn in the order they are passed."""
        table = positions(self.positions, max_tokens, self.d_model, generator)
        blocks = [
            Block(
                self.attention.build(self.d_model, self.heads, max_tokens, causal, generator),
                self.d_model,
                self.d_ff,
                self.dropout,
                generator,
            )
            for _ in range(self.layers)
        ]
        return Encoder(table, self.dropout, blocks)

    def shape(self, data: Data, name: str) -> tuple[int, ...]:
        """The largest shape of one example of this input, over all splits of the data."""
        missing = [split for split, rows in data.splits.items() if name not in rows.inputs]
        if missing or not data.splits:
            found = ", ".join(data.splits[missing[0]].inputs) if missing else "no split at all"
            raise ValueError(
                f"{type(self).__name__} reads {name!r}, but the data has {found}. Build it with "
                f"the data of a task that it was made for."
            )
        shapes = [rows.inputs[name].shape[1:] for rows in data.splits.values()]
        return tuple(max(sizes) for sizes in zip(*shapes, strict=True))

    def check_length(self, tokens: int, max_tokens: int) -> None:
        if tokens > max_tokens:
            raise ValueError(
                f"{type(self).__name__}(max_tokens={max_tokens}) cannot read this data: its "
                f"examples have up to {tokens} tokens. Set max_tokens >= {tokens}."
            )


def attention_layers(model: nn.Module) -> list[nn.Module]:
    """The attention layer of each block, first block first."""
    return [module.attention for module in model.modules() if isinstance(module, Block)]


def attention_weights(
    model: nn.Module, **inputs: Shaped[Tensor, "..."]
) -> list[Float[Tensor, "batch heads tokens tokens"]]:
    """a_ij of each layer for these inputs of the model, for looking at.

    Each layer is called again with `need_weights`, so a layer with noise draws it anew.
    """
    found: list[Tensor] = []

    def look(layer: nn.Module, args: Any, options: dict[str, Any], _: Any) -> None:
        found.append(layer.forward(*args, **options | {"need_weights": True})[1])

    hooks = [
        layer.register_forward_hook(look, with_kwargs=True) for layer in attention_layers(model)
    ]
    try:
        model(**inputs)
    finally:
        for hook in hooks:
            hook.remove()
    return found
