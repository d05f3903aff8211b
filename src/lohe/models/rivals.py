"""Softmax as it is usually improved, as values: what an oscillator is to be compared with.

Whether tokens also carry positions of their own is up to the model (`positions`).
"""

from dataclasses import asdict, dataclass
from typing import ClassVar

import torch

from lohe.attention import (
    AlibiAttention,
    CosineAttention,
    PositionedAttention,
    RotaryAttention,
    SoftmaxAttention,
    TemperatureAttention,
)


@dataclass(frozen=True)
class _Rival:
    """Builds `layer`, whose options the fields are."""

    layer: ClassVar[type[SoftmaxAttention]]

    def build(
        self,
        d_model: int,
        heads: int,
        max_tokens: int,
        causal: bool = False,
        generator: torch.Generator | None = None,
    ) -> SoftmaxAttention:
        options = asdict(self)
        if self.layer is PositionedAttention:
            options["max_tokens"] = max_tokens
        return self.layer(d_model, heads, causal=causal, generator=generator, **options)


@dataclass(frozen=True)
class SoftmaxTemperature(_Rival):
    """Softmax with a learned temperature for each head, from `temperature` on."""

    layer = TemperatureAttention
    temperature: float = 1.0


@dataclass(frozen=True)
class SoftmaxPositions(_Rival):
    """Softmax with a learned position table in every layer, N(0, deviation²) at the start.

    At d_osc = d_model / heads it has exactly the numbers of the anchors, `PositionedAttention`.
    """

    layer = PositionedAttention
    deviation: float = 0.02


@dataclass(frozen=True)
class SoftmaxRope(_Rival):
    """Softmax with rotary positions in every layer."""

    layer = RotaryAttention
    base: float = 10_000.0


@dataclass(frozen=True)
class SoftmaxAlibi(_Rival):
    """Softmax with fixed biases that fall linearly with distance, of `octaves` slopes."""

    layer = AlibiAttention
    octaves: float = 8.0


@dataclass(frozen=True)
class SoftmaxCosine(_Rival):
    """Softmax over s cos(q, k), with a learned s for each head, from `scale` on."""

    layer = CosineAttention
    scale: float = 10.0
