"""Appendix E's alternatives to a larger d_osc, each a change of one thing in the layer."""

import torch
from torch import Tensor, nn

from lohe import ops
from lohe.attention.oscillator import OscillatorAttention
from lohe.attention.projections import merge_heads
from lohe.ops import reference

SMALLEST_AMPLIFICATION = 0.1  # published code: |β| is clamped below at 0.1


class CouplingAmplification(nn.Module):
    """w_ij = σ(β_{h,i} f_i·g_j / sqrt(d_h)): a learned gain for each head and query position.

    It wraps the projection F of a layer, since scaling f_i scales row i of the scores:

        layer.to_f = CouplingAmplification(layer.to_f, layer.heads, layer.max_tokens)

    The gain sits inside σ as in the published code; the paper's wording suggests outside (D17).
    """

    by_position = True  # from the first token that it is given on

    def __init__(self, to_f: nn.Module, heads: int, max_tokens: int):
        super().__init__()
        self.to_f = to_f
        self.coupling_gain = nn.Parameter(torch.ones(heads, max_tokens))

    def forward(self, x: Tensor) -> Tensor:
        f = self.to_f(x)
        beta = self.coupling_gain[:, : x.shape[1]].abs().clamp(min=SMALLEST_AMPLIFICATION)
        return (f.unflatten(-1, (len(beta), -1)) * beta.mT[..., None].to(f.dtype)).flatten(-2)


class PositionOffsetAttention(OscillatorAttention):
    """Anchor j seen from query i is turned by a learned angle δ(i - j), in Eqs. 3 and 5 alike.

    One angle for each offset, shared by the heads, 0 at the start; for d_osc = 2. The turned
    anchors differ for each pair, so this layer makes T x T tensors.
    """

    def __init__(self, d_model: int, heads: int, max_tokens: int, **options):
        super().__init__(d_model, heads, max_tokens, 2, **options)
        self.phase_offsets = nn.Parameter(torch.zeros(max_tokens))

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
        if self.drive is not reference.drive:
            raise ValueError(
                "PositionOffsetAttention adds its couplings itself, since anchors differ for each "
                f"pair, and would ignore drive={self.drive!r}. `settle` can be replaced."
            )
        f, g, v = self.front_end(queries, keys, values)
        p = self.problem(f, g, v, mask=mask, key_mask=key_mask, causal=causal)
        with reference.as_typed(f):
            turned = self._turned(p.anchors, f.shape[2])
            w = ops.couplings(p, self.backend, shifted=self.settle is ops.fixed_point)
            z = self.settled(torch.einsum("bhij,hijd->bhid", w, turned))
            gain = reference.per_head(1.0 if p.gain is None else p.gain)
            similarity = 1 + torch.einsum("bhid,hijd->bhij", z, turned) * gain
            a = reference.attention(similarity, sharpness=p.sharpness, allowed=p.reads.dense())
            out = reference.output(a, v)
        out = self.to_out(merge_heads(out))
        return (out, a) if need_weights else out

    def _turned(self, anchors: Tensor, queries: int) -> Tensor:
        """r_j rotated by δ(i - j), (heads, i, j, 2); offsets into the future count as 0."""
        j = torch.arange(anchors.shape[1], device=anchors.device)
        i = torch.arange(queries, device=anchors.device) + anchors.shape[1] - queries
        delta = self.phase_offsets[(i[:, None] - j).clamp(min=0)]
        cos, sin = delta.cos(), delta.sin()
        x, y = anchors[:, None].unbind(-1)
        return torch.stack([cos * x - sin * y, sin * x + cos * y], dim=-1)
