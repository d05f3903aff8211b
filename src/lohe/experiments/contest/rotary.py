"""Rotary positions for the second question: in the couplings of oscillators, and added to softmax
with a position table in every layer.

The oscillators are those of Eqs. 3 to 6: only the scores under σ know the distance i - j. With
σ = exp, orthonormal anchors and a large gain they are a rotary softmax (`theory.uniform_share`).
They stand here, and not in `lohe.attention` and `lohe.models`, while the code that trains the
contest stays as it is (`code` in protocol.json); when the last control is trained they move there.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from torch import Tensor, nn

from lohe.attention import OscillatorAttention, PositionedAttention, RotaryAttention
from lohe.attention.rivals import turned
from lohe.models.mechanisms import Layer


class RotaryOscillatorAttention(OscillatorAttention):
    """w_ij = σ((Q_i f_i)·(Q_j g_j) / sqrt(d_h)), Q_t the rotations of `RotaryAttention`.

    Where there are fewer queries than keys, they are the last of them.
    """

    angles = RotaryAttention.angles

    def __init__(self, *sizes: int, base: float = 10_000.0, **options: Any):
        super().__init__(*sizes, **options)
        if self.d_model // self.heads % 2:
            raise ValueError(
                f"Rotary couplings turn pairs of channels, and a head has "
                f"{self.d_model // self.heads}. Choose heads that leave an even d_model / heads."
            )
        self.base, self.spacing = base, 1.0

    def front_end(
        self, queries: Tensor, keys: Tensor, values: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        f, g, v = super().front_end(queries, keys, values)
        asked, there = f.shape[2], g.shape[2]
        if asked > there:
            raise ValueError(
                f"Rotary couplings take the queries for the last of the keys, got {asked} queries "
                f"and {there} keys. Give as many keys, or more."
            )
        angles = self.angles(there, f.shape[-1], f.device)
        return turned(f, angles[there - asked :]), turned(g, angles), v

    def decode(self, *args: Any, **options: Any) -> Any:
        raise ValueError(
            "decode() does not say where its tokens stand, which rotary couplings must know: call "
            "the layer on the whole sequence."
        )


class RotaryPositionedAttention(RotaryAttention, PositionedAttention):
    """Softmax over e_t + table_t with rotary positions: what the oscillator with rotary couplings
    has, but for the oscillators."""


@dataclass(frozen=True)
class OscillatorRope(Layer):
    """Unit anchors, and rotary positions in the couplings of every layer."""

    layer: ClassVar[type[nn.Module]] = RotaryOscillatorAttention
    d_osc: int = 2
    sharpness: float = 1
    gain: float | Literal["learned"] | None = None
    base: float = 10_000.0


@dataclass(frozen=True)
class ExponentialRope(OscillatorRope):
    """The same with exponential couplings."""

    coupling: str = "exp"


@dataclass(frozen=True)
class SoftmaxRopePositions(Layer):
    """Softmax with rotary positions and a learned table in every layer."""

    layer: ClassVar[type[nn.Module]] = RotaryPositionedAttention
    base: float = 10_000.0
    deviation: float = 0.02
