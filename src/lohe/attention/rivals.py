"""Softmax attention as it is usually improved: what oscillators are to be compared with.

An anchor for each position is also a position table in every layer, and a gain a temperature: each
of these layers gives softmax one of the two, by well-known means.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lohe.attention.softmax import SoftmaxAttention
from lohe.ops.reference import wide, widened
from lohe.ops.unit import unit


class TemperatureAttention(SoftmaxAttention):
    """softmax(q·k / (τ sqrt(d_h))) with a learned τ > 0 for each head, as a readout's gain is.

    W_Q can do the same, so τ adds no function, only another way for the optimiser to it.
    """

    def __init__(self, d_model: int, heads: int, *, temperature: float = 1.0, **options):
        super().__init__(d_model, heads, **options)
        self.log_temperature = _logarithm("temperature", temperature, heads)

    def front_end(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = super().front_end(x)
        return q * torch.exp(-self.log_temperature)[:, None, None].to(q.dtype), k, v


class PositionedAttention(SoftmaxAttention):
    """Softmax attention over e_t + table_t, with a learned table of this layer's own.

    The table reaches queries, keys and values. It has max_tokens · d_model numbers, and an
    oscillator layer's anchors are heads · max_tokens · d_osc: the same count where
    d_osc = d_model / heads, 32 in a language model with d_model = 128 and 4 heads.
    """

    def __init__(
        self,
        d_model: int,
        heads: int,
        max_tokens: int,
        *,
        deviation: float = 0.02,
        generator: torch.Generator | None = None,
        **options,
    ):
        super().__init__(d_model, heads, generator=generator, **options)
        table = torch.randn(max_tokens, d_model, generator=generator)
        self.table = nn.Parameter(deviation * table)

    def front_end(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        tokens, rows = x.shape[1], self.table.shape[0]
        if tokens > rows:
            raise ValueError(
                f"PositionedAttention has positions for {rows} tokens, got {tokens}. They are "
                f"learned: build the layer with max_tokens >= {tokens}."
            )
        return super().front_end(x + self.table[:tokens])


class RotaryAttention(SoftmaxAttention):
    """Rotary positions (Su et al. 2021): pair k of the channels of q_t and k_t turned by t·ω_k.

    ω_k = base^(-2k/d_h), so that q_i·k_j depends on the positions through i - j alone. No
    parameter, and no longest sequence. `spacing` is the distance of neighbours: below 1, positions
    are squeezed into the trained range.
    """

    def __init__(self, d_model: int, heads: int, *, base: float = 10_000.0, **options):
        super().__init__(d_model, heads, **options)
        width = self.to_q.out_features // heads
        if width % 2:
            raise ValueError(
                f"Rotary positions turn pairs of channels, and a head has {width}. Choose heads "
                f"that leave an even d_model / heads."
            )
        self.base, self.spacing = base, 1.0

    def front_end(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = super().front_end(x)
        angles = self.angles(x.shape[1], q.shape[-1], x.device)
        return turned(q, angles), turned(k, angles), v

    def angles(
        self, tokens: int, width: int, device: torch.device
    ) -> Float[Tensor, "{tokens} {width//2}"]:
        """t·ω_k, in float64: made anew in each call, so that they follow the sequence."""
        t = torch.arange(tokens, dtype=torch.float64, device=device) * self.spacing
        even = torch.arange(0, width, 2, dtype=torch.float64, device=device)
        return t[:, None] * torch.exp(even * (-math.log(self.base) / width))


def turned(
    x: Float[Tensor, "*batch tokens width"], angles: Float[Tensor, "tokens pairs"]
) -> Float[Tensor, "*batch tokens width"]:
    """Channels (2k, 2k + 1) of x_t, as a point of the plane, turned by angle k of token t."""
    cos, sin = (wave.to(widened(x)) for wave in (angles.cos(), angles.sin()))
    even, odd = x[..., 0::2], x[..., 1::2]
    pairs = torch.stack([even * cos - odd * sin, even * sin + odd * cos], dim=-1)
    return pairs.flatten(-2).to(x.dtype)


class AlibiAttention(SoftmaxAttention):
    """Linear biases (Press et al. 2022): head h adds -m_h |i - j| to the scores.

    The slopes m_h are fixed, `alibi_slopes`. No parameter, and no longest sequence. `spacing` is
    the distance of neighbours: below 1, positions are squeezed into the trained range.
    """

    slopes: Float[Tensor, " heads"]

    def __init__(self, d_model: int, heads: int, *, octaves: float = 8.0, **options):
        super().__init__(d_model, heads, **options)
        fixed = torch.tensor(alibi_slopes(heads, octaves), dtype=torch.get_default_dtype())
        self.register_buffer("slopes", fixed, persistent=False)
        self.spacing = 1.0

    def score_bias(self, q: Tensor) -> Tensor:
        t = torch.arange(q.shape[2], device=q.device, dtype=widened(q)) * self.spacing
        distance = (t[:, None] - t).abs()
        return (-self.slopes[None, :, None, None] * distance).to(q.dtype)


def alibi_slopes(heads: int, octaves: float = 8.0) -> list[float]:
    """m_h = 2^(-octaves h / heads), h from 1 to heads, where heads is a power of two.

    Else those of the power below, then every second one of the power above.

    >>> alibi_slopes(4)
    [0.25, 0.0625, 0.015625, 0.00390625]
    >>> alibi_slopes(3)
    [0.0625, 0.00390625, 0.25]
    """
    power = 2 ** (heads.bit_length() - 1)
    below = [2 ** (-octaves * h / power) for h in range(1, power + 1)]
    above = [2 ** (-octaves * h / (2 * power)) for h in range(1, 2 * (heads - power), 2)]
    return below + above


class CosineAttention(SoftmaxAttention):
    """softmax(s cos(q, k)): queries and keys on the unit sphere, a learned s > 0 for each head.

    As an oscillator's readout is a function of the cosine of z and r. `scale` is where s starts.
    """

    def __init__(self, d_model: int, heads: int, *, scale: float = 10.0, **options):
        super().__init__(d_model, heads, **options)
        self.log_scale = _logarithm("scale", scale, heads)

    def front_end(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = super().front_end(x)
        # the scores will be divided by sqrt(d_h)
        s = self.log_scale.exp()[:, None, None] * q.shape[-1] ** 0.5
        unit_q, unit_k = unit(wide(q)), unit(wide(k))
        return (s * unit_q).to(q.dtype), unit_k.to(k.dtype), v


def _logarithm(name: str, start: float, heads: int) -> nn.Parameter:
    """log of a positive number, for each head."""
    if not 0 < start < math.inf:
        raise ValueError(f"{name} must be positive and finite, got {start}.")
    return nn.Parameter(torch.full((heads,), math.log(start)))
