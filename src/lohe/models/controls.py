"""Oscillators with one part replaced, as values: which part does the work?

Free anchors need no type of their own: Oscillator(anchors="free", sharpness=p, gain="learned").
"""

from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal

import torch

from lohe.attention import DirectAttention, ExponentialAttention, OscillatorAttention


@dataclass(frozen=True)
class _Control:
    """Builds `layer`, whose options the fields are."""

    layer: ClassVar[type[OscillatorAttention | DirectAttention]] = OscillatorAttention

    def options(self) -> dict[str, Any]:
        return asdict(self)

    def build(
        self,
        d_model: int,
        heads: int,
        max_tokens: int,
        causal: bool = False,
        generator: torch.Generator | None = None,
    ) -> OscillatorAttention | DirectAttention:
        options = self.options()
        return self.layer(d_model, heads, max_tokens, causal=causal, generator=generator, **options)


@dataclass(frozen=True)
class NoDynamics(_Control):
    """Remark 2's direct alternative: z_i = U e_i / ‖U e_i‖ in the place of oscillators."""

    layer = DirectAttention
    d_osc: int = 2
    sharpness: float = 1
    gain: float | Literal["learned"] | None = None


@dataclass(frozen=True)
class ExponentialReadout(_Control):
    """Oscillators read by exp(β z·r), with a learned β for each head, from `beta` on."""

    layer = ExponentialAttention
    d_osc: int = 2
    coupling: str = "softplus"
    beta: float = 1.0


@dataclass(frozen=True)
class LearnedSharpness(_Control):
    """Oscillators with a learned real p > 1 for each head, from `start` on."""

    d_osc: int = 2
    coupling: str = "softplus"
    start: float = 4.0
    gain: float | Literal["learned"] | None = None

    def options(self) -> dict[str, Any]:
        options = asdict(self)
        return options | {"sharpness": options.pop("start"), "learn_sharpness": True}


@dataclass(frozen=True)
class FrozenAnchors(_Control):
    """Oscillators whose anchors stay where they were drawn, uniformly on the sphere."""

    d_osc: int = 2
    coupling: str = "softplus"
    sharpness: float = 1
    gain: float | Literal["learned"] | None = None

    def build(self, *args: Any, **options: Any) -> OscillatorAttention | DirectAttention:
        layer = super().build(*args, **options)
        # a parameter, not a buffer: it is kept with the weights, where a buffer would be drawn anew
        layer.anchors.requires_grad_(False)
        return layer
