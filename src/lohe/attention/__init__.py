"""Attention layers with one call: layer(x, mask=..., key_mask=..., need_weights=...)."""

from lohe.attention.ablations import CouplingAmplification, PositionOffsetAttention
from lohe.attention.controls import DirectAttention, ExponentialAttention
from lohe.attention.decoding import Cache
from lohe.attention.oscillator import OscillatorAttention
from lohe.attention.rivals import (
    AlibiAttention,
    CosineAttention,
    PositionedAttention,
    RotaryAttention,
    TemperatureAttention,
)
from lohe.attention.softmax import SoftmaxAttention
from lohe.attention.swap import MultiheadOscillatorAttention, swap_attention

__all__ = [
    "AlibiAttention",
    "Cache",
    "CosineAttention",
    "CouplingAmplification",
    "DirectAttention",
    "ExponentialAttention",
    "MultiheadOscillatorAttention",
    "OscillatorAttention",
    "PositionOffsetAttention",
    "PositionedAttention",
    "RotaryAttention",
    "SoftmaxAttention",
    "TemperatureAttention",
    "swap_attention",
]
