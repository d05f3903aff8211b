"""Eqs. 2-6 in plain PyTorch, one function each: the definition of correct.

Trailing axes are the paper's subscripts: i counts queries, j keys. Everything is computed in
float32 or wider, whatever comes in.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import reduce
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from lohe import sphere
from lohe.ops.coupling import COUPLINGS


def wide(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """16-bit tensors as float32; others as they are."""
    return x.to(widened(x))


def widened(*tensors: Float[Tensor, "..."]) -> torch.dtype:
    """The widest of their dtypes, at least float32."""
    return reduce(torch.promote_types, (x.dtype for x in tensors), torch.float32)


def as_typed(x: Tensor) -> AbstractContextManager[Any]:
    """Autocast off for the device of `x`; where it is off, nothing, which saves 10 us."""
    kind = x.device.type  # of which meta has no autocast
    on = kind != "meta" and torch.is_autocast_enabled(kind)
    return torch.autocast(kind, enabled=False) if on else nullcontext()


def per_head(x: float | Float[Tensor, " heads"]) -> float | Float[Tensor, "heads 1 1"]:
    """A number, or one for each head in a shape that broadcasts over (batch, heads, i, j)."""
    return x[:, None, None] if isinstance(x, Tensor) else x


def masked(
    x: Float[Tensor, "*batch i j"], allowed: Bool[Tensor, "*#batch #i #j"] | None, value: float
) -> Float[Tensor, "*batch i j"]:
    """x where it is allowed, else `value`; None allows everything."""
    return x if allowed is None else x.masked_fill(~allowed, value)


def scores(
    f: Float[Tensor, "*batch i d_h"], g: Float[Tensor, "*batch j d_h"], scale: float | None = None
) -> Float[Tensor, "*batch i j"]:
    """The argument of σ in Eq. 2, f_i·g_j / sqrt(d_h)."""
    f = wide(f) * (f.shape[-1] ** -0.5 if scale is None else scale)
    return f @ wide(g).mT


def couplings(
    f: Float[Tensor, "*batch i d_h"],
    g: Float[Tensor, "*batch j d_h"],
    coupling: str | Callable[[Tensor], Tensor] = "softplus",
    *,
    allowed: Bool[Tensor, "*#batch #i #j"] | None = None,
    scale: float | None = None,
    shifted: bool = False,
) -> Float[Tensor, "*batch i j"]:
    """Eq. 2: w_ij = σ(f_i·g_j / sqrt(d_h)), 0 where masked.

    `shifted` divides each row of an exponential coupling by its largest entry, which Eq. 4 does not
    see and which keeps exp from overflowing.
    """
    # a masked score may be anything: it must not reach σ, whose gradient there could be inf * 0
    s = masked(scores(f, g, scale), allowed, 0)
    if shifted and coupling == "exp":
        top = masked(s.detach(), allowed, -torch.inf).amax(dim=-1, keepdim=True)
        s = s - torch.where(top.isfinite(), top, 0)
    w = (COUPLINGS[coupling] if isinstance(coupling, str) else coupling)(s)
    return masked(w, allowed, 0)


def drive(
    couplings: Float[Tensor, "*batch i j"], anchors: Float[Tensor, "*#batch j d_osc"]
) -> Float[Tensor, "*batch i d_osc"]:
    """Weighted anchor sum of Eq. 3, h_i = Σ_j w_ij r_j."""
    return couplings @ wide(anchors)


def fixed_point(drive: Float[Tensor, "*batch d_osc"]) -> Float[Tensor, "*batch d_osc"]:
    """Eq. 4: z*_i = h_i / ‖h_i‖; where h_i = 0 there is none, and z*_i = 0 stands for it."""
    return sphere.normalize(wide(drive))


def similarity(
    oscillators: Float[Tensor, "*batch i d_osc"],
    anchors: Float[Tensor, "*#batch j d_osc"],
    gain: float | Float[Tensor, " heads"] | None = None,
) -> Float[Tensor, "*batch i j"]:
    """S = 11ᵀ + γ Z Rᵀ: what Eq. 5 normalises, of rank d_osc + 1."""
    cosine = wide(oscillators) @ wide(anchors).mT
    return 1 + (cosine if gain is None else per_head(gain) * cosine)


def attention(
    similarity: Float[Tensor, "*batch i j"],
    *,
    sharpness: float | Float[Tensor, " heads"] = 1,
    allowed: Bool[Tensor, "*#batch #i #j"] | None = None,
) -> Float[Tensor, "*batch i j"]:
    """Eq. 5: a_ij = (1 + γ z_i·r_j)^p / Σ_l (1 + γ z_i·r_l)^p, 0 where masked.

    The similarity is clamped at 0. A row whose allowed weights all vanish is uniform over the
    allowed keys; a row with no allowed key is 0.
    """
    x = masked(similarity.clamp(min=0), allowed, 0)
    if not (isinstance(sharpness, int | float) and sharpness == 1):
        # a_ij does not depend on the scale of a row: with its largest entry 1, no power overflows
        top = x.detach().amax(dim=-1, keepdim=True)
        x = masked((x / torch.where(top > 0, top, 1)) ** per_head(sharpness), allowed, 0)
    total = x.sum(dim=-1, keepdim=True)
    uniform = torch.ones_like(x[..., :1, :]) if allowed is None else allowed.to(x.dtype)
    keys = uniform.sum(dim=-1, keepdim=True)
    none = total == 0  # and not NaN, which is to be seen
    return torch.where(none, uniform / keys.clamp(min=1), x / torch.where(none, 1, total))


def output(
    attention: Float[Tensor, "*batch i j"], values: Float[Tensor, "*batch j d_v"]
) -> Float[Tensor, "*batch i d_v"]:
    """Eq. 6: o_i = Σ_j a_ij v_j, in the dtype of the values."""
    return (attention @ wide(values)).to(values.dtype)
