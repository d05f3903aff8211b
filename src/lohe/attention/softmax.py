"""The baseline: softmax attention with the call of `OscillatorAttention`."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from lohe.attention.projections import check_input, check_width, linear, merge_heads, split_heads
from lohe.ops.masks import Allowed
from lohe.ops.problem import check_mask
from lohe.transforms import under_transforms


class SoftmaxAttention(nn.Module):
    """softmax(q·k / sqrt(d_qk)) v, by PyTorch's fused kernels.

    Projections, biases, masks and causality are those of `OscillatorAttention`; a query with no
    allowed key gives 0. `d_qk` is the width of a head's queries and keys, d_model / heads if None;
    a smaller one bounds the rank of the scores (Appendix E). Values keep their full width.

    Its relatives (`lohe.attention.rivals`) change what goes in, `front_end`, or add to the scores,
    `score_bias`.

    >>> import torch, lohe
    >>> layer = lohe.SoftmaxAttention(d_model=32, heads=4, causal=True)
    >>> layer(torch.randn(2, 10, 32)).shape
    torch.Size([2, 10, 32])
    """

    def __init__(
        self,
        d_model: int,
        heads: int,
        *,
        d_qk: int | None = None,
        causal: bool = False,
        freeze_values: bool = False,
        bias: bool = False,
        generator: torch.Generator | None = None,
    ):
        super().__init__()
        check_width(d_model, heads)
        d_qk = d_model // heads if d_qk is None else d_qk
        if d_qk < 1:
            raise ValueError(f"d_qk must be at least 1, got {d_qk}; None gives d_model / heads.")
        self.d_model, self.heads, self.causal = d_model, heads, causal
        self.to_q = linear(d_model, heads * d_qk, bias=bias, generator=generator)
        self.to_k = linear(d_model, heads * d_qk, bias=bias, generator=generator)
        self.to_v = linear(d_model, d_model, bias=bias, generator=generator)
        self.to_out = linear(d_model, d_model, bias=True, generator=generator)
        self.to_v.requires_grad_(not freeze_values)

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
        q, k, v = self.front_end(x)
        bias = self.score_bias(q)
        size = (x.shape[0], self.heads, x.shape[1], x.shape[1])
        parts = tuple(
            check_mask(name, m, size)
            for name, m in (("mask", mask), ("key_mask", key_mask))
            if m is not None
        )
        allowed = Allowed(*size[2:], device=x.device, causal=self.causal, parts=parts)
        if need_weights or _transformed():
            scores = (q * q.shape[-1] ** -0.5) @ k.mT
            scores = scores if bias is None else scores + bias
            weights = masked_softmax(scores, allowed.dense(), empty_rows=bool(parts))
            out = self.to_out(merge_heads(weights.to(v.dtype) @ v))
            return (out, weights) if need_weights else out
        if bias is None and not parts:
            out = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
            return self.to_out(merge_heads(out))
        dense = allowed.dense()
        if bias is not None:
            bias = bias if dense is None else torch.where(dense, bias, -torch.inf)
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=dense if bias is None else bias)
        if dense is not None:
            out = out.masked_fill(~dense.any(dim=-1, keepdim=True), 0)
        return self.to_out(merge_heads(out))

    def front_end(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """q, k, v, each (batch, heads, tokens, width); the scores are q·k / sqrt(d_qk)."""
        q, k, v = (split_heads(to(x), self.heads) for to in (self.to_q, self.to_k, self.to_v))
        return q, k, v

    def score_bias(self, q: Tensor) -> Tensor | None:
        """What is added to the scores, (1, heads, tokens, tokens), in the dtype of q; or None."""
        return None

    def extra_repr(self) -> str:
        return f"d_model={self.d_model}, heads={self.heads}, causal={self.causal}"


def masked_softmax(
    scores: Float[Tensor, "batch heads i j"],
    allowed: Bool[Tensor, "#batch #heads #i #j"] | None,
    *,
    empty_rows: bool = True,
) -> Float[Tensor, "batch heads i j"]:
    """softmax over the allowed keys, 0 elsewhere; with `empty_rows` also where none is allowed."""
    if allowed is None:
        return scores.softmax(dim=-1)
    weights = scores.masked_fill(~allowed, -torch.inf).softmax(dim=-1)
    return weights.masked_fill(~allowed, 0) if empty_rows else weights  # or a whole row is NaN


def _transformed() -> bool:
    """Whether vmap or grad is at work, where the fused kernels do not serve.

    On the CPU they have no batching rule: vmap calls them once for each model of a pack, and warns.
    On CUDA, torch 2.11 refuses their backward pass ("LSE is not correctly aligned").
    """
    return not torch.compiler.is_compiling() and under_transforms()
