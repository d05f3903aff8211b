"""Oscillator attention with one part replaced, to find out which part does the work."""

import torch
from torch import Tensor, nn

from lohe import ops, sphere
from lohe.attention.oscillator import OscillatorAttention, check_options
from lohe.attention.projections import check_input, check_width, linear, merge_heads, split_heads
from lohe.attention.softmax import masked_softmax
from lohe.ops.reference import as_typed, per_head, wide
from lohe.ops.unit import unit


class DirectAttention(nn.Module):
    """No dynamics: z_i = U e_i / ‖U e_i‖, a learned map of token i alone; then Eqs. 5 and 6.

    Remark 2's direct alternative, close to the Synthesizer. U takes the place of F, G, couplings
    and settling; anchors, sharpness, gain, masks and readout are those of `OscillatorAttention`.
    """

    def __init__(
        self,
        d_model: int,
        heads: int,
        max_tokens: int,
        d_osc: int = 2,
        *,
        sharpness: float = 1,
        gain: float | str | None = None,
        causal: bool = False,
        generator: torch.Generator | None = None,
    ):
        super().__init__()
        check_width(d_model, heads)
        check_options(max_tokens, d_osc, sharpness, gain)
        self.d_model, self.heads, self.max_tokens, self.d_osc = d_model, heads, max_tokens, d_osc
        self.sharpness, self.causal = sharpness, causal
        self.to_z = linear(d_model, heads * d_osc, bias=False, generator=generator)
        self.to_v = linear(d_model, d_model, bias=False, generator=generator)
        self.to_out = linear(d_model, d_model, bias=True, generator=generator)
        self.anchors = nn.Parameter(sphere.uniform(heads, max_tokens, d_osc, generator=generator))
        self.fixed_gain = None if isinstance(gain, str) else gain
        self.log_gain = nn.Parameter(torch.zeros(heads)) if gain == "learned" else None

    @property
    def gain(self) -> float | Tensor | None:
        """γ of the readout: None (1), a number, or a learned one for each head."""
        return self.fixed_gain if self.log_gain is None else self.log_gain.exp()

    def oscillators(self, x: Tensor) -> Tensor:
        """z of the tokens x (batch, tokens, d_model), (batch, heads, tokens, d_osc)."""
        return unit(wide(split_heads(self.to_z(x), self.heads)))

    def forward(
        self,
        x: Tensor,  # (batch, tokens, d_model)
        *,
        mask: Tensor | None = None,
        key_mask: Tensor | None = None,
        need_weights: bool = False,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Output (batch, tokens, d_model); if asked, weights (batch, heads, tokens, tokens) too."""
        check_input("x", x, self.d_model)
        tokens = x.shape[1]
        if tokens > self.max_tokens:
            raise ValueError(
                f"DirectAttention has anchors for {self.max_tokens} positions, got {tokens} "
                f"tokens. Build the layer with max_tokens >= {tokens}."
            )
        z, v = self.oscillators(x), split_heads(self.to_v(x), self.heads)
        # z in the place of f and g: there are no couplings, and the readout asks for none
        p = ops.problem(
            z,
            z,
            v,
            self.anchors[:, :tokens],
            sharpness=self.sharpness,
            gain=self.gain,
            causal=self.causal,
            mask=mask,
            key_mask=key_mask,
        )
        out = self.to_out(merge_heads(ops.readout(p, z).to(v.dtype)))
        return (out, ops.weights(p, z)) if need_weights else out

    def extra_repr(self) -> str:
        gain = "learned" if self.log_gain is not None else self.fixed_gain
        return (
            f"d_model={self.d_model}, heads={self.heads}, max_tokens={self.max_tokens}, "
            f"d_osc={self.d_osc}, sharpness={self.sharpness}, gain={gain}, causal={self.causal}"
        )


class ExponentialAttention(OscillatorAttention):
    """a_ij ∝ exp(β z_i·r_j): softmax over the cosines to the anchors, β > 0 learned by head.

    It is what (1 + γ z·r)^p tends to for p -> ∞ at γ p = β. `beta` is where β starts. The matrix
    of weights is made, T x T.
    """

    def __init__(
        self,
        d_model: int,
        heads: int,
        max_tokens: int,
        d_osc: int = 2,
        *,
        beta: float = 1.0,
        coupling: str = "softplus",
        causal: bool = False,
        generator: torch.Generator | None = None,
    ):
        super().__init__(
            d_model, heads, max_tokens, d_osc, coupling=coupling, causal=causal, generator=generator
        )
        if not 0 < beta < float("inf"):
            raise ValueError(f"beta must be positive and finite, got {beta}.")
        self.log_beta = nn.Parameter(torch.full((heads,), float(beta)).log())

    def attend(
        self,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        *,
        mask: Tensor | None = None,
        key_mask: Tensor | None = None,
        need_weights: bool = False,
        causal: bool | None = None,
    ) -> Tensor | tuple[Tensor, Tensor]:
        f, g, v = self.front_end(queries, keys, values)
        p = self.problem(f, g, v, mask=mask, key_mask=key_mask, causal=causal)
        z = self.oscillators(p)
        with as_typed(v):
            scores = (z * per_head(self.log_beta.exp())) @ p.anchors.mT
            weights = masked_softmax(scores, p.reads.dense())
            out = (weights @ v.to(weights.dtype)).to(v.dtype)
        out = self.to_out(merge_heads(out))
        return (out, weights) if need_weights else out
