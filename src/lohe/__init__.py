"""Attention by synchronization: oscillators settle on a sphere, their positions are the weights."""

from lohe import attention, cost, dynamics, ops, sphere, substrates, theory
from lohe.attention import OscillatorAttention, SoftmaxAttention
from lohe.ops import attention_weights, checks, oscillator_attention
from lohe.version import __version__

__all__ = [
    "OscillatorAttention",
    "SoftmaxAttention",
    "__version__",
    "attention",
    "attention_weights",
    "checks",
    "cost",
    "dynamics",
    "ops",
    "oscillator_attention",
    "sphere",
    "substrates",
    "theory",
]
