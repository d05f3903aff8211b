"""Oscillators with one part replaced, as values: which part does the work?

Free anchors need no type of their own: Oscillator(anchors="free", sharpness=p, gain="learned").
"""

from dataclasses import dataclass
from typing import Any, Literal

from lohe.attention import DirectAttention, ExponentialAttention, OscillatorAttention
from lohe.models.mechanisms import Layer


@dataclass(frozen=True)
class NoDynamics(Layer):
    """Remark 2's direct alternative: z_i = U e_i / ‖U e_i‖ in the place of oscillators."""

    layer = DirectAttention
    d_osc: int = 2
    sharpness: float = 1
    gain: float | Literal["learned"] | None = None


@dataclass(frozen=True)
class ExponentialReadout(Layer):
    """Oscillators read by exp(β z·r), with a learned β for each head, from `beta` on."""

    layer = ExponentialAttention
    d_osc: int = 2
    coupling: str = "softplus"
    beta: float = 1.0


@dataclass(frozen=True)
class LearnedSharpness(Layer):
    """Oscillators with a learned real p > 1 for each head, from `start` on."""

    layer = OscillatorAttention
    d_osc: int = 2
    coupling: str = "softplus"
    start: float = 4.0
    gain: float | Literal["learned"] | None = None

    def options(self, max_tokens: int) -> dict[str, Any]:
        options = super().options(max_tokens)
        return options | {"sharpness": options.pop("start"), "learn_sharpness": True}


@dataclass(frozen=True)
class FrozenAnchors(Layer):
    """Oscillators whose anchors stay where they were drawn, uniformly on the sphere."""

    layer = OscillatorAttention
    d_osc: int = 2
    coupling: str = "softplus"
    sharpness: float = 1
    gain: float | Literal["learned"] | None = None

    def build(self, *args: Any, **options: Any) -> OscillatorAttention:
        layer = super().build(*args, **options)
        # a parameter, not a buffer: it is kept with the weights, where a buffer would be drawn anew
        layer.anchors.requires_grad_(False)
        return layer
