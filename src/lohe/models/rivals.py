"""Softmax as it is usually improved, as values: what an oscillator is to be compared with.

Whether tokens also carry positions of their own is up to the model (`positions`).
"""

from dataclasses import dataclass

import torch

from lohe.attention import (
    AlibiAttention,
    CosineAttention,
    PositionedAttention,
    RotaryAttention,
    TemperatureAttention,
)


@dataclass(frozen=True)
class SoftmaxTemperature:
    """Softmax with a learned temperature for each head, from `temperature` on."""

    temperature: float = 1.0

    def build(
        self,
        d_model: int,
        heads: int,
        max_tokens: int,
        causal: bool = False,
        generator: torch.Generator | None = None,
    ) -> TemperatureAttention:
        return TemperatureAttention(
            d_model, heads, temperature=self.temperature, causal=causal, generator=generator
        )


@dataclass(frozen=True)
class SoftmaxPositions:
    """Softmax with a learned position table in every layer, N(0, deviation²) at the start.

    At d_osc = d_model / heads it has exactly the numbers of the anchors, `PositionedAttention`.
    """

    deviation: float = 0.02

    def build(
        self,
        d_model: int,
        heads: int,
        max_tokens: int,
        causal: bool = False,
        generator: torch.Generator | None = None,
    ) -> PositionedAttention:
        return PositionedAttention(
            d_model, heads, max_tokens, deviation=self.deviation, causal=causal, generator=generator
        )


@dataclass(frozen=True)
class SoftmaxRope:
    """Softmax with rotary positions in every layer."""

    base: float = 10_000.0

    def build(
        self,
        d_model: int,
        heads: int,
        max_tokens: int,
        causal: bool = False,
        generator: torch.Generator | None = None,
    ) -> RotaryAttention:
        return RotaryAttention(d_model, heads, base=self.base, causal=causal, generator=generator)


@dataclass(frozen=True)
class SoftmaxAlibi:
    """Softmax with fixed biases that fall linearly with distance, of `octaves` slopes."""

    octaves: float = 8.0

    def build(
        self,
        d_model: int,
        heads: int,
        max_tokens: int,
        causal: bool = False,
        generator: torch.Generator | None = None,
    ) -> AlibiAttention:
        return AlibiAttention(
            d_model, heads, octaves=self.octaves, causal=causal, generator=generator
        )


@dataclass(frozen=True)
class SoftmaxCosine:
    """Softmax over s cos(q, k), with a learned s for each head, from `scale` on."""

    scale: float = 10.0

    def build(
        self,
        d_model: int,
        heads: int,
        max_tokens: int,
        causal: bool = False,
        generator: torch.Generator | None = None,
    ) -> CosineAttention:
        return CosineAttention(d_model, heads, scale=self.scale, causal=causal, generator=generator)
