"""Oscillators with one part replaced, as values: which part does the work?

Free anchors need no type of their own: Oscillator(anchors="free", sharpness=p, gain="learned").
"""

from dataclasses import asdict, dataclass
from typing import Literal

import torch

from lohe.attention import DirectAttention, ExponentialAttention, OscillatorAttention


@dataclass(frozen=True)
class NoDynamics:
    """Remark 2's direct alternative: z_i = U e_i / ‖U e_i‖ in the place of oscillators."""

    d_osc: int = 2
    sharpness: float = 1
    gain: float | Literal["learned"] | None = None

    def build(
        self,
        d_model: int,
        heads: int,
        max_tokens: int,
        causal: bool = False,
        generator: torch.Generator | None = None,
    ) -> DirectAttention:
        return DirectAttention(
            d_model, heads, max_tokens, causal=causal, generator=generator, **asdict(self)
        )


@dataclass(frozen=True)
class ExponentialReadout:
    """Oscillators read by exp(β z·r), with a learned β for each head, from `beta` on."""

    d_osc: int = 2
    coupling: str = "softplus"
    beta: float = 1.0

    def build(
        self,
        d_model: int,
        heads: int,
        max_tokens: int,
        causal: bool = False,
        generator: torch.Generator | None = None,
    ) -> ExponentialAttention:
        return ExponentialAttention(
            d_model, heads, max_tokens, causal=causal, generator=generator, **asdict(self)
        )


@dataclass(frozen=True)
class LearnedSharpness:
    """Oscillators with a learned real p > 1 for each head, from `start` on."""

    d_osc: int = 2
    coupling: str = "softplus"
    start: float = 4.0
    gain: float | Literal["learned"] | None = None

    def build(
        self,
        d_model: int,
        heads: int,
        max_tokens: int,
        causal: bool = False,
        generator: torch.Generator | None = None,
    ) -> OscillatorAttention:
        return OscillatorAttention(
            d_model,
            heads,
            max_tokens,
            self.d_osc,
            coupling=self.coupling,
            sharpness=self.start,
            learn_sharpness=True,
            gain=self.gain,
            causal=causal,
            generator=generator,
        )


@dataclass(frozen=True)
class FrozenAnchors:
    """Oscillators whose anchors stay where they were drawn, uniformly on the sphere."""

    d_osc: int = 2
    coupling: str = "softplus"
    sharpness: float = 1
    gain: float | Literal["learned"] | None = None

    def build(
        self,
        d_model: int,
        heads: int,
        max_tokens: int,
        causal: bool = False,
        generator: torch.Generator | None = None,
    ) -> OscillatorAttention:
        layer = OscillatorAttention(
            d_model,
            heads,
            max_tokens,
            self.d_osc,
            coupling=self.coupling,
            sharpness=self.sharpness,
            gain=self.gain,
            causal=causal,
            generator=generator,
        )
        # a parameter, not a buffer: it is kept with the weights, where a buffer would be drawn anew
        layer.anchors.requires_grad_(False)
        return layer
