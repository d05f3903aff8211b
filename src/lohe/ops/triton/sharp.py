"""The readout over tiles: any sharpness, gain, anchors and mask, forward and backward.

    o_i = Σ_j a_ij v_j,    a_ij = (c_ij / ‖c_i‖_p)^p,    c_ij = max(0, 1 + γ z_i·r_j)

with c = 0 where masked and ‖c_i‖_p = (Σ_j c_ij^p)^(1/p). The forward pass keeps one number for each
row, s_i = 1 / ‖c_i‖_p, and the backward pass makes every tile again from it:

    da_ij = do_i·v_j - do_i·o_i,    dx_ij = s_i p (s_i c_ij)^(p-1) da_ij,
    dv_j = Σ_i a_ij do_i,    dz_i = γ Σ_j dx_ij r_j,    dr_j = γ Σ_i dx_ij z_i.

No row maximum is needed: z is a unit vector or 0, so c_ij <= 1 + γ max_j ‖r_j‖, one bound for each
head, and (c / bound)^p cannot overflow. Where it underflows (or all of a row vanishes) the rows of
that block are done once more, with their own maxima. Integer powers are products; only a real p
takes special functions.

Precision. c^p multiplies the rounding of z·r by up to γ p. With float32 values z·r is made of three
TF32 products. With 16-bit values its operands are float16, which has the 11 bits of TF32 at twice
its rate: as [hi hi lo]·[hi lo hi] (22 bits) where 3 d_osc columns still make a small product, else
rounded once. Against float64 (T = 4096, γ = p = 8, d_osc = 32, float16 values) the output then errs
by 6e-4 of its largest entry, 3e-4 if split and 5e-3 with bfloat16 operands. Anchors are divided by
the longest of their head, whose 2^-25 is the last bit of the others. Sums are in float32. Gradients
with respect to c are rounded to bfloat16, which has their range.
"""
# Triton is not installed everywhere, and its decorator does not tell how a kernel is launched
# pyright: reportMissingImports=false, reportIndexIssue=false, reportCallIssue=false

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from lohe.ops.autograd import Pair, op, register
from lohe.ops.available import tf32_allowed
from lohe.ops.masks import Allowed, met, strides
from lohe.ops.triton import fitting
from lohe.ops.triton import sharp_kernels as kernels
from lohe.ops.triton.sizes import cdiv, next_power_of_2, rows_together

LARGEST_WHOLE_POWER = 31  # by products; above, exp2(p log2 c)
SPLIT_UP_TO = 10  # d_osc for which three products of float16 parts cost no more than 32 columns
ROWS = 64  # of a block in the passes that are linear in tokens


def readout(
    oscillators: Float[Tensor, "batch heads i d_osc"],
    anchors: Float[Tensor, "heads j d_osc"],
    values: Float[Tensor, "batch heads j d_v"],
    allowed: Allowed,
    *,
    sharpness: float | Float[Tensor, " heads"],
    gain: float | Float[Tensor, " heads"] | None,
) -> Float[Tensor, "batch heads i d_v"]:
    """Eqs. 5 and 6 in float32, the values and the output in float32, bfloat16 or float16."""
    z, r, v = oscillators.float(), anchors.float(), values
    fixed = 0.0 if isinstance(sharpness, Tensor) else float(sharpness)  # 0: p has a gradient
    number = 1.0 if gain is None else gain
    p, gamma = (
        x.to(z) if isinstance(x, Tensor) else z.new_full(z.shape[1:2], x)
        for x in (sharpness, number)
    )
    return apply_readout((z, r, v, gamma, p), allowed.parts, (fixed, allowed.causal))


# --- launches -----------------------------------------------------------------------------------


class Blocks(NamedTuple):
    """Queries and keys of a tile, warps that share it, loads in flight."""

    queries: int
    keys: int
    warps: int
    stages: int


# by kernel, for d_v up to 64 (the fastest of some seen on an H200), 128 and 256; none of 16 bits
# spills registers on sm_90 at p = 4
HALF = {
    "forward": (Blocks(128, 64, 4, 3), Blocks(128, 128, 8, 3), Blocks(128, 64, 8, 2)),
    "columns": (Blocks(64, 64, 4, 3), Blocks(64, 128, 8, 2), Blocks(64, 64, 8, 2)),
    "rows": (Blocks(128, 64, 8, 3), Blocks(64, 64, 4, 2), Blocks(64, 64, 8, 2)),
}
SINGLE = {  # 4 warps: with 8 and 16 keys Triton 3.6 writes past its shared memory
    "forward": (Blocks(64, 32, 4, 2), Blocks(64, 16, 4, 2), Blocks(64, 16, 4, 2)),
    "columns": (Blocks(32, 64, 4, 2), Blocks(16, 32, 4, 1), Blocks(16, 16, 4, 1)),
    "rows": (Blocks(64, 32, 4, 2), Blocks(64, 32, 4, 2), Blocks(16, 16, 4, 1)),
}


SMALLER = Blocks(64, 32, 4, 2), Blocks(32, 32, 4, 1), Blocks(16, 16, 4, 1)


def blocks(kernel: str, d_v: int, dtype: torch.dtype) -> tuple[Blocks, ...]:
    """Tiles of `kernel` (forward, columns or rows): the fastest, then some that need less room."""
    table = SINGLE if dtype == torch.float32 else HALF
    first = table[kernel][0 if d_v <= 64 else 1 if d_v <= 128 else 2]
    return first, *(b for b in SMALLER if b.queries * b.keys < first.queries * first.keys)


class _Call(NamedTuple):
    """What all kernels share: sizes, strides of the masks, and what is compiled in."""

    r: Tensor  # (heads, keys, K): the anchors over their largest norm, as z·r takes them
    longest: Tensor  # (heads,): that norm
    masks: tuple[Tensor, ...]
    strides: tuple[int, ...]
    constants: dict[str, object]


def _call(z: Tensor, r: Tensor, v: Tensor, parts: list[Tensor], power: float, causal: bool):
    d_osc, d_v, narrow = r.shape[-1], v.shape[-1], v.dtype != torch.float32
    split = narrow and d_osc <= SPLIT_UP_TO
    key, key_strides = _part([x for x in parts if x.shape[2] == 1])
    pair, pair_strides = _part([x for x in parts if x.shape[2] > 1])
    whole = power.is_integer() and 1 <= power <= LARGEST_WHOLE_POWER
    constants = {
        "D": d_osc,
        "K": _width(3 * d_osc if split else d_osc),
        "V": d_v,
        "VP": _width(d_v),
        "POWER": int(power) if whole else 0,
        "SPLIT": split,
        "CAUSAL": causal,
        "KEY": key is not None,
        "PAIR": pair is not None,
        # as PyTorch's own products are asked to be; three TF32 products are float32 up to a few ulp
        "PRECISION": "tf32" if tf32_allowed() else "tf32x3",
    }
    longest = torch.linalg.vector_norm(r, dim=-1).amax(dim=-1)
    packed = r.new_empty(*r.shape[:2], constants["K"], dtype=torch.float16 if narrow else r.dtype)
    kernels._pack[(r.shape[0] * cdiv(r.shape[1], ROWS),)](
        r, longest, packed, r.shape[1], D=d_osc, K=constants["K"], SPLIT=split, ROWS=ROWS
    )
    masks = tuple(z if x is None else x for x in (key, pair))
    strides = (key_strides[0], key_strides[1], key_strides[3], *pair_strides)
    return _Call(packed, longest, masks, strides, constants)


def _laid_out(z: Tensor, r: Tensor, v: Tensor, gain: Tensor, p: Tensor) -> tuple[Tensor, ...]:
    """Side by side in memory; values may be a slice, as long as their features are."""
    return z.contiguous(), r.contiguous(), rows_together(v), gain.contiguous(), p.contiguous()


def _part(parts: list[Tensor]) -> tuple[Tensor | None, tuple[int, ...]]:
    """The masks of one kind as bytes, and their strides."""
    mask = met(parts)
    return None if mask is None else mask.view(torch.uint8), strides(mask)


def _cut(tile: Blocks) -> dict[str, int]:
    return {
        "BM": tile.queries,
        "BN": tile.keys,
        "num_warps": tile.warps,
        "num_stages": tile.stages,
    }


def _width(columns: int) -> int:
    """Columns of a tile: a power of two that a matrix product takes."""
    return max(16, next_power_of_2(columns))


@op("triton_readout")
def readout_forward(
    z: Tensor,
    r: Tensor,
    v: Tensor,
    gain: Tensor,
    p: Tensor,
    parts: list[Tensor],
    sharpness: float,
    causal: bool,
) -> tuple[Tensor, Tensor]:
    """o, and s_i = 1 / ‖c_i‖_p; -n^(-1/p) where n allowed weights all vanish, 0 where n = 0."""
    (batch, heads, queries, _), (keys, d_v) = z.shape, v.shape[2:]
    o, s = v.new_empty(batch, heads, queries, d_v), z.new_empty(batch, heads, queries, 1)
    z, r, v, gain, p = _laid_out(z, r, v, gain, p)
    with torch.cuda.device_of(z):
        call = _call(z, r, v, parts, sharpness, causal)

        def go(tile: Blocks) -> None:
            kernels._forward[(batch * heads * cdiv(queries, tile.queries),)](
                *(z, call.r, v, gain, p, call.longest, *call.masks, o, s),
                *(heads, queries, keys, *v.stride()[:3], *call.strides),
                **call.constants,
                # float16 ends at 2^-24: there the largest weight of a head is 2^14, not 1
                LIFT=14 if v.dtype == torch.float16 else 0,
                LEAST=2.0**-4 if v.dtype == torch.float16 else 2.0**-100,
                **_cut(tile),
            )

        key = ("sharp forward", v.dtype, v.device, *call.constants.values())
        pairs = batch * heads * queries * keys
        fitting.launch(key, blocks("forward", d_v, v.dtype), go, v.device, pairs)
    return o, s


@readout_forward.register_fake
def _(z, r, v, gain, p, parts, sharpness, causal):  # pyright: ignore
    return v.new_empty(*z.shape[:3], v.shape[-1]), z.new_empty(*z.shape[:3], 1)


@op("triton_readout_backward")
def readout_backward(
    do: Tensor,
    z: Tensor,
    r: Tensor,
    v: Tensor,
    gain: Tensor,
    p: Tensor,
    o: Tensor,
    s: Tensor,
    parts: list[Tensor],
    sharpness: float,
    causal: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of z, r, v, gain and p; a row that vanishes moves only v.

    Each block of keys gathers dv and dr from all queries, and a second kernel dz from all keys. One
    kernel that adds dz with atomics does five products instead of seven and gained 2 % (H200, 32 x
    16,384 tokens, d_osc 32): not worth results that change from run to run.
    """
    (batch, heads, queries, d_osc), (keys, d_v) = z.shape, v.shape[2:]
    z, r, v, gain, p = _laid_out(z, r, v, gain, p)
    do, o, s = do.contiguous(), o.contiguous(), s.contiguous()
    narrow = torch.float32 if v.dtype == torch.float32 else torch.bfloat16
    width = _width(d_osc)
    dz = torch.empty_like(z)
    dv = v.new_empty(batch, heads, keys, d_v)
    dr = z.new_empty(batch, heads, keys, d_osc)
    dp = z.new_empty(batch, heads, keys) if sharpness == 0 else z
    along_o = z.new_empty(batch, heads, queries)
    with torch.cuda.device_of(z):
        call = _call(z, r, v, parts, sharpness, causal)
        z_k = call.r.new_empty(batch, heads, queries, call.r.shape[-1])
        z_d, r_d = (
            z.new_empty(*x.shape[:-1], width, dtype=narrow) for x in (z, r)
        )  # z_i s_i and r_j as dr and dz take them
        linear = (batch * heads * cdiv(queries, ROWS),)
        sizes = {n: call.constants[n] for n in ("D", "K", "V", "VP", "SPLIT")}
        tiled = {n: value for n, value in call.constants.items() if n != "SPLIT"}
        kernels._prepare[linear](
            *(z, s, o, do, z_k, z_d, along_o, queries), **sizes, DP=width, ROWS=ROWS
        )
        ones = torch.ones_like(call.longest)
        kernels._pack[(heads * cdiv(keys, ROWS),)](
            *(r, ones, r_d, keys), D=d_osc, K=width, SPLIT=False, ROWS=ROWS
        )
        inputs = (call.r, v, do, s, along_o, gain, p, call.longest, *call.masks)
        shapes = (heads, queries, keys, *v.stride()[:3], *call.strides)

        def columns(tile: Blocks) -> None:
            kernels._columns[(batch * heads * cdiv(keys, tile.keys),)](
                *(z_k, z_d, *inputs, dv, dr, dp, *shapes),
                **tiled, DP=width, DP_TOO=sharpness == 0, **_cut(tile),
            )  # fmt: skip

        def rows(tile: Blocks) -> None:
            kernels._rows[(batch * heads * cdiv(queries, tile.queries),)](
                *(z_k, r_d, *inputs, dz, *shapes), **tiled, DP=width, **_cut(tile)
            )

        pairs = batch * heads * queries * keys
        for name, go in (("columns", columns), ("rows", rows)):
            key = (f"sharp {name}", v.dtype, v.device, *call.constants.values())
            fitting.launch(key, blocks(name, d_v, v.dtype), go, v.device, pairs)
        dgain = z.new_empty(batch, heads, cdiv(queries, ROWS))
        kernels._finish[linear](
            *(dz, z, s, gain, p, dgain, heads, queries), D=d_osc, DP=width, ROWS=ROWS
        )
    return (
        dz,
        dr[0] if batch == 1 else dr.sum(dim=0),
        dv,
        dgain.sum(dim=(0, 2)),
        dp.sum(dim=(0, 2)) if sharpness == 0 else torch.zeros_like(p),
    )


@readout_backward.register_fake
def _(do, z, r, v, gain, p, o, s, parts, sharpness, causal):  # pyright: ignore
    return (
        z.new_empty(z.shape),
        r.new_empty(r.shape),
        v.new_empty(v.shape),
        torch.empty_like(gain),
        torch.empty_like(p),
    )


apply_readout = register(
    "triton_readout", Pair(readout_forward, readout_backward, inputs=5, outputs=2)
)
