"""Attention mechanisms as values: what a model is configured with, compared by, and recorded as.

Fields are plain numbers and names, and no two mechanisms have the same fields, so
`dataclasses.asdict` tells them apart.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

import torch
from torch import nn

from lohe.attention import (
    CouplingAmplification,
    OscillatorAttention,
    PositionOffsetAttention,
    SoftmaxAttention,
)
from lohe.attention.oscillator import check_options


@runtime_checkable
class Mechanism(Protocol):
    """Builds a layer with the call forward(x, *, mask, key_mask, need_weights)."""

    def build(
        self,
        d_model: int,
        heads: int,
        max_tokens: int,
        causal: bool = False,
        generator: torch.Generator | None = None,
    ) -> nn.Module: ...


@dataclass(frozen=True)
class Layer:
    """A mechanism that builds `layer`, whose options its fields are."""

    layer: ClassVar[type[nn.Module]]

    def options(self, max_tokens: int) -> dict[str, Any]:
        return asdict(self) | {"max_tokens": max_tokens}

    def build(
        self,
        d_model: int,
        heads: int,
        max_tokens: int,
        causal: bool = False,
        generator: torch.Generator | None = None,
    ) -> Any:
        options = self.options(max_tokens)
        return self.layer(d_model, heads, causal=causal, generator=generator, **options)


@dataclass(frozen=True)
class AnyLength(Layer):
    """One that knows nothing of positions."""

    def options(self, max_tokens: int) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Softmax(AnyLength):
    """The baseline; `freeze_values` keeps W_V at its random start."""

    layer = SoftmaxAttention
    freeze_values: bool = False


@dataclass(frozen=True)
class RankMatchedSoftmax(AnyLength):
    """Softmax whose scores q·k / sqrt(d_qk) have rank d_qk in each head; W_V and W_O stay whole."""

    layer = SoftmaxAttention
    d_qk: int


# What `lohe contest choose` chose on WikiText-2, with 48 inputs; a test holds the two together.
SHARPENED: Mapping[str, Any] = {"d_osc": 48, "sharpness": 8, "gain": "learned"}


@dataclass(frozen=True)
class Oscillator(Layer):
    """The paper's mechanism; the published runs have anchors="free", pads="as-published".

    The options are those of `lohe.OscillatorAttention`, which explains and checks them.

    >>> Oscillator(d_osc=8).build(d_model=128, heads=4, max_tokens=50, causal=True).anchors.shape
    torch.Size([4, 50, 8])
    """

    layer = OscillatorAttention
    d_osc: int = 2
    coupling: str = "softplus"
    sharpness: float = 1
    gain: float | Literal["learned"] | None = None
    anchors: Literal["sphere", "free"] = "sphere"
    pads: Literal["masked", "as-published"] = "masked"
    freeze_values: bool = False

    def __post_init__(self) -> None:
        check_options(
            1, self.d_osc, self.sharpness, self.gain, self.coupling, self.anchors, self.pads
        )

    @classmethod
    def sharpened(cls, **changes: Any) -> "Oscillator":
        """What to begin with for language: strictly unit anchors, p > 1 and a learned gain.

        `SHARPENED` has the numbers and says where they come from; `changes` replaces options.

        >>> preset = Oscillator.sharpened(d_osc=16)
        >>> preset.d_osc, preset.gain, preset.anchors
        (16, 'learned', 'sphere')
        >>> layer = preset.build(d_model=128, heads=4, max_tokens=50, causal=True)
        """
        return cls(**{**SHARPENED, **changes})


@dataclass(frozen=True)
class PositionOffset(Layer):
    """Appendix E's first alternative: anchor j turned by a learned angle δ(i - j); d_osc = 2."""

    layer = PositionOffsetAttention
    oscillator: Oscillator = Oscillator()

    def __post_init__(self) -> None:
        if self.oscillator.d_osc != 2:
            raise ValueError(
                f"PositionOffset turns anchors on the circle, got d_osc = {self.oscillator.d_osc}. "
                f"A turn by one angle has a meaning for d_osc = 2 only: use Oscillator(d_osc=2)."
            )

    def options(self, max_tokens: int) -> dict[str, Any]:
        options = self.oscillator.options(max_tokens)
        del options["d_osc"]
        return options


@dataclass(frozen=True)
class Amplified:
    """Appendix E's second alternative: a learned gain β inside σ, for each head and query."""

    mechanism: Oscillator | PositionOffset = Oscillator()

    def build(
        self,
        d_model: int,
        heads: int,
        max_tokens: int,
        causal: bool = False,
        generator: torch.Generator | None = None,
    ) -> OscillatorAttention:
        layer = self.mechanism.build(d_model, heads, max_tokens, causal, generator)
        layer.to_f = CouplingAmplification(layer.to_f, heads, max_tokens)
        return layer
