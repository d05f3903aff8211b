"""Attention layers with one call: layer(x, mask=..., key_mask=..., need_weights=...)."""

from lohe.attention.ablations import CouplingAmplification, PositionOffsetAttention
from lohe.attention.decoding import Cache
from lohe.attention.oscillator import OscillatorAttention
from lohe.attention.softmax import SoftmaxAttention
from lohe.attention.swap import MultiheadOscillatorAttention, swap_attention

__all__ = [
    "Cache",
    "CouplingAmplification",
    "MultiheadOscillatorAttention",
    "OscillatorAttention",
    "PositionOffsetAttention",
    "SoftmaxAttention",
    "swap_attention",
]
