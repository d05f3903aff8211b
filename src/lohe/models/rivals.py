"""Softmax as it is usually improved, as values: what an oscillator is to be compared with.

Whether tokens also carry positions of their own is up to the model (`positions`).
"""

from dataclasses import dataclass

from lohe.attention import (
    AlibiAttention,
    CosineAttention,
    PositionedAttention,
    RotaryAttention,
    TemperatureAttention,
)
from lohe.models.mechanisms import AnyLength, Layer


@dataclass(frozen=True)
class SoftmaxTemperature(AnyLength):
    """Softmax with a learned temperature for each head, from `temperature` on."""

    layer = TemperatureAttention
    temperature: float = 1.0


@dataclass(frozen=True)
class SoftmaxPositions(Layer):
    """Softmax with a learned position table in every layer, N(0, deviation²) at the start.

    At d_osc = d_model / heads it has exactly the numbers of the anchors, `PositionedAttention`.
    """

    layer = PositionedAttention
    deviation: float = 0.02


@dataclass(frozen=True)
class SoftmaxRope(AnyLength):
    """Softmax with rotary positions in every layer."""

    layer = RotaryAttention
    base: float = 10_000.0


@dataclass(frozen=True)
class SoftmaxAlibi(AnyLength):
    """Softmax with fixed biases that fall linearly with distance, of `octaves` slopes."""

    layer = AlibiAttention
    octaves: float = 8.0


@dataclass(frozen=True)
class SoftmaxCosine(AnyLength):
    """Softmax over s cos(q, k), with a learned s for each head, from `scale` on."""

    layer = CosineAttention
    scale: float = 10.0
