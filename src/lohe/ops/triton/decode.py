"""New tokens against a long cache: the drive in one pass over the keys, and the state read out.

One or a few queries have too little work for a program each, so the keys are split: each program
leaves its part of h_i = Σ_j w_ij r_j in float32, and a second kernel adds the parts, divides by
their length and, at p = 1, reads the state of `lohe.ops.linear`, which stands for the values of all
keys. The time is that of reading g once.
"""
# Triton is not installed everywhere, and its decorator does not tell how a kernel is launched
# pyright: reportMissingImports=false, reportIndexIssue=false, reportCallIssue=false

from typing import no_type_check

import torch
import triton
import triton.language as tl
from jaxtyping import Bool, Float
from torch import Tensor

from lohe.ops.autograd import call, op
from lohe.ops.available import tf32_allowed
from lohe.ops.linear import State
from lohe.ops.masks import strides
from lohe.ops.triton.couplings import LOG2E, RELU_FLOOR, coupled
from lohe.ops.triton.sizes import cdiv, next_power_of_2

# sizes do not make another kernel: the number of keys grows with every token
SIZES = ["heads", "splits", "span", "queries", "keys", "r_h", "mask_b", "mask_h"]
MOST_QUERIES = 16
LONG = 2048  # keys from which a few queries are worth splitting over programs
PROGRAMS = 1024  # that fill a GPU: a few for each processor, so that loads are always under way
FEWEST_KEYS = 512  # of a program: below, starting it costs more than it brings
BLOCK = 8192  # numbers of g at a time


def pays(queries: int, keys: int) -> bool:
    """Whether the keys are worth splitting."""
    return queries <= MOST_QUERIES and keys >= LONG


def drive(
    f: Float[Tensor, "batch heads i d_h"],
    g: Float[Tensor, "batch heads j d_h"],
    r: Float[Tensor, "heads j d_osc"],
    masks: list[Tensor],
    *,
    coupling: str,
    causal: bool,
    scale: float,
    shifted: bool,
) -> tuple[Float[Tensor, "batch heads i d_osc"], Float[Tensor, "batch heads i _"]]:
    """h_i = Σ_j σ(f_i·g_j scale) r_j in float32; the largest score of each row, times log2 e, if an
    exponential coupling is shifted by it. g and r may be slices of buffers: nothing is copied.
    """
    with torch.cuda.device_of(f):
        h, peak = _parts(f, g, r, masks, coupling, causal, scale, shifted)
        batch, heads, splits, new, d_osc = h.shape
        out = h.new_empty(batch, heads, new, d_osc)
        top = h.new_empty(batch, heads, new, int(shifted))
        _sum[(batch * heads * new,)](
            *(h, peak, out, top, splits, new),
            SP=next_power_of_2(splits),
            D=d_osc,
            DP=next_power_of_2(d_osc),
            PEAK=shifted,
        )
    return out, top


def decode(
    f: Float[Tensor, "batch heads i d_h"],
    g: Float[Tensor, "batch heads j d_h"],
    v: Float[Tensor, "batch heads i d_v"],
    anchors: Float[Tensor, "heads j d_osc"],
    state: State | None,
    key_mask: Bool[Tensor, "batch j"] | None = None,
    *,
    coupling: str,
    scale: float,
    gain: float = 1.0,
) -> tuple[Float[Tensor, "batch heads i d_v"], State]:
    """Eqs. 2-6 at p = 1 for the last i tokens of a causal sequence, and the state after them.

    `g` and `anchors` are of all tokens, `v` of these i, and `state` stands for the values of those
    before. As in `linear.readout`, anchors are unit vectors and γ <= 1. It has no gradient.
    """
    if state is None:
        weighted = anchors.new_zeros(*f.shape[:2], anchors.shape[-1] + 1, v.shape[-1])
        state = State(weighted, weighted[..., 0].clone())
    masks = [] if key_mask is None else [key_mask[:, None, None, :]]
    out, *after = call(decode_step, (f, g, v, anchors, *state), masks, coupling, scale, gain)
    return out, State(*after)


@op("triton_decode")
def decode_step(
    f: Tensor, g: Tensor, v: Tensor, r: Tensor, weighted: Tensor, total: Tensor,
    masks: list[Tensor], coupling: str, scale: float, gain: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """The output, and both parts of the state."""
    with torch.cuda.device_of(f):
        h, peak = _parts(f, g, r, masks, coupling, True, scale, coupling == "exp")
        batch, heads, splits, new, d_osc = h.shape
        weighted, total, r = weighted.contiguous(), total.contiguous(), _rows_together(r)
        out, after, counts = v.new_empty(v.shape), *map(torch.empty_like, (weighted, total))
        mask, mask_strides = _key_mask(masks)
        _read[(batch * heads * new,)](
            *(h, peak, r, v.contiguous(), f if mask is None else mask),
            *(weighted, total, out, after, counts),
            *(gain**0.5, heads, splits, new, g.shape[2], *r.stride()[:2], *mask_strides),
            SP=next_power_of_2(splits),
            NP=next_power_of_2(new),
            D=d_osc,
            DP=next_power_of_2(d_osc),
            V=v.shape[-1],
            VP=next_power_of_2(v.shape[-1]),
            PEAK=peak is not h,
            KEY=mask is not None,
        )
    return out, after, counts


@decode_step.register_fake
def _(f, g, v, r, weighted, total, masks, coupling, scale, gain):  # pyright: ignore
    return tuple(x.new_empty(x.shape) for x in (v, weighted, total))


def _parts(
    f: Tensor,
    g: Tensor,
    r: Tensor,
    masks: list[Tensor],
    coupling: str,
    causal: bool,
    scale: float,
    shifted: bool,
) -> tuple[Tensor, Tensor]:
    """h of each part of the keys, (batch, heads, parts, i, d_osc), and the scores that exp was
    shifted by, (batch, heads, parts, i); h again where it was not."""
    (batch, heads, new, d_h), d_osc, keys = f.shape, r.shape[-1], g.shape[2]
    block = max(16, min(128, BLOCK // next_power_of_2(d_h)))
    splits = max(1, min(cdiv(keys, FEWEST_KEYS), PROGRAMS // max(1, batch * heads)))
    span = cdiv(cdiv(keys, splits), block) * block
    splits = cdiv(keys, span)
    f, g, r = f.contiguous(), _rows_together(g), _rows_together(r)
    h = f.new_empty(batch, heads, splits, new, d_osc, dtype=torch.float32)
    peak = h.new_empty(h.shape[:-1]) if shifted else h
    mask, mask_strides = _key_mask(masks)
    least = 1 if new == 1 else 16  # columns of a matrix product
    strict = g.dtype == torch.float32 and not tf32_allowed()
    (_one if new == 1 else _few)[(batch * heads * splits,)](
        *(f, g, r, f if mask is None else mask, h, peak),
        *(scale, heads, splits, span, new, keys),
        *(*g.stride()[:3], *r.stride()[:2], *mask_strides),
        DH=d_h,
        DHP=max(least, next_power_of_2(d_h)),
        D=d_osc,
        DP=max(least, next_power_of_2(d_osc)),
        COUPLING=coupling,
        PEAK=shifted,
        CAUSAL=causal,
        KEY=mask is not None,
        PRECISION="tf32x3" if strict else "tf32",
        BN=block,
        num_warps=4,
    )
    return h, peak


def _rows_together(x: Tensor) -> Tensor:
    """As it is if features lie side by side; tokens may be far apart, counted in 64 bits."""
    return x if x.stride(-1) == 1 else x.contiguous()


def _key_mask(masks: list[Tensor]) -> tuple[Tensor | None, tuple[int, ...]]:
    """The mask of the keys as bytes, and strides for (batch, heads, keys)."""
    mask = masks[0] if masks else None
    b, h, _, j = strides(mask)
    return None if mask is None else mask.view(torch.uint8), (b, h, j)


# --- kernels ------------------------------------------------------------------------------------
# `no_type_check` keeps the tests' shape checks out of what Triton reads.


NORMAL = tl.constexpr(torch.finfo(torch.float32).tiny)
ROUNDING = tl.constexpr(4 * torch.finfo(torch.float32).eps)


@triton.jit
@no_type_check
def _coupling(s, COUPLING: tl.constexpr):
    """σ of Eq. 2, floor included."""
    w = coupled(s, 1.0, COUPLING, False, tl.float32)
    if COUPLING == "relu":
        w += RELU_FLOOR
    return w


@triton.jit(do_not_specialize=SIZES)
@no_type_check
def _one(
    p_f, p_g, p_r, p_mask, p_h, p_peak, scale, heads, splits, span, queries, keys, g_b, g_h, g_j,
    r_h, r_j, mask_b, mask_h, mask_j,
    DH: tl.constexpr, DHP: tl.constexpr, D: tl.constexpr, DP: tl.constexpr,
    COUPLING: tl.constexpr, PEAK: tl.constexpr, CAUSAL: tl.constexpr, KEY: tl.constexpr,
    PRECISION: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """h of one query of a head over `span` keys: bound by reading g, no matrix product.

    Each of BN slots takes every BN-th key, with a shift of its own; they meet at the end.
    """
    i_s = tl.program_id(0) % splits
    i_bh = (tl.program_id(0) // splits).to(tl.int64)
    i_b, i_h = i_bh // heads, i_bh % heads
    p_g += i_b * g_b + i_h * g_h
    p_r += i_h * r_h
    p_mask += i_b * mask_b + i_h * mask_h
    o_h, o_d, o_n = tl.arange(0, DHP), tl.arange(0, DP), tl.arange(0, BN)
    b_f = tl.load(p_f + i_bh * DH + o_h, mask=o_h < DH, other=0.0).to(tl.float32) * scale
    b_h = tl.zeros([BN, DP], tl.float32)
    b_peak = tl.zeros([BN], tl.float32) - float("inf")
    for start in range(i_s * span, tl.minimum(keys, (i_s + 1) * span), BN):
        o_j = start + o_n
        m_j = o_j < keys
        if KEY:
            m_j = m_j & (tl.load(p_mask + o_j * mask_j, mask=m_j, other=0) != 0)
        p_at = p_g + o_j.to(tl.int64)[:, None] * g_j + o_h[None, :]
        b_g = tl.load(p_at, mask=m_j[:, None] & (o_h < DH)[None, :], other=0.0)  # [BN, DHP]
        p_at = p_r + o_j.to(tl.int64)[:, None] * r_j + o_d[None, :]
        b_r = tl.load(p_at, mask=m_j[:, None] & (o_d < D)[None, :], other=0.0)  # [BN, DP]
        b_s = tl.sum(b_g.to(tl.float32) * b_f[None, :], 1)  # [BN]
        if PEAK:
            b_higher = tl.where(m_j, tl.maximum(b_peak, b_s), b_peak)
            b_zero = tl.where(b_higher == float("-inf"), 0.0, b_higher)
            b_h *= tl.exp(b_peak - b_zero)[:, None]
            b_peak = b_higher
            b_s = tl.where(m_j, b_s - b_zero, 0.0)
        b_h += _coupling(b_s, COUPLING)[:, None] * b_r  # r is 0 where masked
    i_row = tl.program_id(0).to(tl.int64)
    if PEAK:
        top = tl.max(b_peak, 0)
        b_h *= tl.exp(b_peak - tl.where(top == float("-inf"), 0.0, top))[:, None]
        tl.store(p_peak + i_row, top)
    tl.store(p_h + i_row * D + o_d, tl.sum(b_h, 0), mask=o_d < D)


@triton.jit(do_not_specialize=SIZES)
@no_type_check
def _few(
    p_f, p_g, p_r, p_mask, p_h, p_peak, scale, heads, splits, span, queries, keys, g_b, g_h, g_j,
    r_h, r_j, mask_b, mask_h, mask_j,
    DH: tl.constexpr, DHP: tl.constexpr, D: tl.constexpr, DP: tl.constexpr,
    COUPLING: tl.constexpr, PEAK: tl.constexpr, CAUSAL: tl.constexpr, KEY: tl.constexpr,
    PRECISION: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """h of up to 16 queries of a head over `span` keys, by matrix products."""
    i_s = tl.program_id(0) % splits
    i_bh = (tl.program_id(0) // splits).to(tl.int64)
    i_b, i_h = i_bh // heads, i_bh % heads
    p_g += i_b * g_b + i_h * g_h
    p_r += i_h * r_h
    p_mask += i_b * mask_b + i_h * mask_h
    o_i, o_h, o_d, o_n = tl.arange(0, 16), tl.arange(0, DHP), tl.arange(0, DP), tl.arange(0, BN)
    m_i = (o_i < queries)[:, None]
    p_f += (i_bh * queries + o_i[:, None]) * DH + o_h[None, :]
    b_f = tl.load(p_f, mask=m_i & (o_h < DH)[None, :], other=0.0).to(p_g.dtype.element_ty)
    b_h = tl.zeros([16, DP], tl.float32)
    b_peak = tl.zeros([16], tl.float32) - float("inf")
    for start in range(i_s * span, tl.minimum(keys, (i_s + 1) * span), BN):
        o_j = start + o_n
        m_j = (o_j < keys)[:, None]
        p_at = p_g + o_j.to(tl.int64)[:, None] * g_j + o_h[None, :]
        b_g = tl.load(p_at, mask=m_j & (o_h < DH)[None, :], other=0.0)  # [BN, DHP]
        b_s = tl.dot(b_f, tl.trans(b_g), input_precision=PRECISION) * scale  # [16, BN]
        m_w = (o_j < keys)[None, :]
        if CAUSAL:
            m_w = m_w & (o_j[None, :] <= o_i[:, None] + (keys - queries))
        if KEY:
            m_w = m_w & (tl.load(p_mask + o_j * mask_j, mask=o_j < keys, other=0) != 0)[None, :]
        if PEAK:
            b_s = tl.where(m_w, b_s, float("-inf"))
            b_higher = tl.maximum(b_peak, tl.max(b_s, 1))
            b_zero = tl.where(b_higher == float("-inf"), 0.0, b_higher)
            b_h *= tl.exp(b_peak - b_zero)[:, None]
            b_peak = b_higher
            b_s -= b_zero[:, None]
        b_w = tl.where(m_w, _coupling(b_s, COUPLING), 0.0)
        p_at = p_r + o_j.to(tl.int64)[:, None] * r_j + o_d[None, :]
        b_r = tl.load(p_at, mask=m_j & (o_d < D)[None, :], other=0.0)  # [BN, DP]
        b_h = tl.dot(b_w, b_r, b_h, input_precision=PRECISION)
    o_row = tl.program_id(0).to(tl.int64) * queries + o_i
    tl.store(p_h + o_row[:, None] * D + o_d[None, :], b_h, mask=m_i & (o_d < D)[None, :])
    if PEAK:
        tl.store(p_peak + o_row, b_peak, mask=o_i < queries)


@triton.jit
@no_type_check
def _whole(
    p_h,
    p_peak,
    splits,
    queries,
    SP: tl.constexpr,
    D: tl.constexpr,
    DP: tl.constexpr,
    PEAK: tl.constexpr,
):
    """h of one query from its parts, [DP], and what its scores were shifted by."""
    i_bh, i_q = (tl.program_id(0) // queries).to(tl.int64), tl.program_id(0) % queries
    o_s, o_d = tl.arange(0, SP), tl.arange(0, DP)
    o_row = (i_bh * splits + o_s) * queries + i_q
    m_h = (o_s < splits)[:, None] & (o_d < D)[None, :]
    b_h = tl.load(p_h + o_row[:, None] * D + o_d[None, :], mask=m_h, other=0.0)  # [SP, DP]
    top = 0.0
    if PEAK:
        b_peak = tl.load(p_peak + o_row, mask=o_s < splits, other=float("-inf"))
        top = tl.max(b_peak, 0)
        top = tl.where(top == float("-inf"), 0.0, top)
        b_h *= tl.exp(b_peak - top)[:, None]
    return tl.sum(b_h, 0), top


@triton.jit(do_not_specialize=SIZES)
@no_type_check
def _sum(
    p_h, p_peak, p_out, p_top, splits, queries,
    SP: tl.constexpr, D: tl.constexpr, DP: tl.constexpr, PEAK: tl.constexpr,
):  # fmt: skip
    o_d = tl.arange(0, DP)
    b_h, top = _whole(p_h, p_peak, splits, queries, SP, D, DP, PEAK)
    tl.store(p_out + tl.program_id(0).to(tl.int64) * D + o_d, b_h, mask=o_d < D)
    if PEAK:
        tl.store(p_top + tl.program_id(0), top * LOG2E)


@triton.jit(do_not_specialize=SIZES)
@no_type_check
def _read(
    p_h, p_peak, p_r, p_v, p_mask, p_weighted, p_total, p_out, p_new_weighted, p_new_total, root,
    heads, splits, queries, keys, r_h, r_j, mask_b, mask_h, mask_j,
    SP: tl.constexpr, NP: tl.constexpr, D: tl.constexpr, DP: tl.constexpr, V: tl.constexpr,
    VP: tl.constexpr, PEAK: tl.constexpr, KEY: tl.constexpr,
):  # fmt: skip
    """One query: z = h / ‖h‖, and ψ(z) = [1, root z] against the state up to its own token.

    The state is kept as [1, root r]ᵀ [v, 1] over the keys; its first row and column stand apart.
    """
    i_bh, i_q = (tl.program_id(0) // queries).to(tl.int64), tl.program_id(0) % queries
    i_b, i_h = i_bh // heads, i_bh % heads
    o_n, o_d, o_v = tl.arange(0, NP), tl.arange(0, DP), tl.arange(0, VP)
    m_d, m_v = o_d < D, o_v < V
    b_h, _ = _whole(p_h, p_peak, splits, queries, SP, D, DP, PEAK)
    largest = tl.max(tl.abs(b_h), 0)
    b_z = b_h / tl.where(largest < NORMAL, 1.0, largest)
    length = tl.sqrt(tl.sum(b_z * b_z, 0))
    b_z = tl.where(largest < NORMAL, 0.0, b_z / tl.where(largest < NORMAL, 1.0, length))  # [DP]

    # the state before the new tokens, and their anchors and values up to this one
    p_w = p_weighted + i_bh * (D + 1) * V
    p_rows = (1 + o_d)[:, None] * V + o_v[None, :]
    b_w0 = tl.load(p_w + o_v, mask=m_v, other=0.0)
    b_w = tl.load(p_w + p_rows, mask=m_d[:, None] & m_v[None, :], other=0.0)  # [DP, VP]
    total0 = tl.load(p_total + i_bh * (D + 1))
    b_total = tl.load(p_total + i_bh * (D + 1) + 1 + o_d, mask=m_d, other=0.0)
    m_n = o_n <= i_q
    o_j = keys - queries + o_n
    if KEY:
        p_mask += i_b * mask_b + i_h * mask_h
        m_n = m_n & (tl.load(p_mask + o_j * mask_j, mask=m_n, other=0) != 0)
    p_r += i_h * r_h + o_j[:, None] * r_j + o_d[None, :]
    b_r = tl.load(p_r, mask=m_n[:, None] & m_d[None, :], other=0.0) * root  # [NP, DP]
    p_v += (i_bh * queries + o_n[:, None]) * V + o_v[None, :]
    b_v = tl.load(p_v, mask=m_n[:, None] & m_v[None, :], other=0.0).to(tl.float32)  # [NP, VP]
    total0 += tl.sum(m_n.to(tl.float32), 0)
    b_total += tl.sum(b_r, 0)

    # all weights vanish: every key counts once
    b_z *= root
    weight = total0 + tl.sum(b_z * b_total, 0)
    b_z = tl.where(weight <= total0 * ROUNDING, 0.0, b_z)
    weight = tl.where(weight <= total0 * ROUNDING, total0, weight)
    b_new = tl.where(m_n, 1 + tl.sum(b_r * b_z[None, :], 1), 0.0)  # [NP]
    b_o = b_w0 + tl.sum(b_z[:, None] * b_w, 0) + tl.sum(b_new[:, None] * b_v, 0)
    b_o = b_o / tl.where(total0 > 0, weight, 1.0)
    p_out += (i_bh * queries + i_q) * V + o_v
    tl.store(p_out, b_o.to(p_out.dtype.element_ty), mask=m_v)

    if i_q == queries - 1:
        p_w = p_new_weighted + i_bh * (D + 1) * V
        tl.store(p_w + o_v, b_w0 + tl.sum(b_v, 0), mask=m_v)
        for n in tl.static_range(NP):
            b_one = (o_n == n)[:, None]
            b_rn, b_vn = tl.sum(tl.where(b_one, b_r, 0.0), 0), tl.sum(tl.where(b_one, b_v, 0.0), 0)
            b_w += b_rn[:, None] * b_vn[None, :]
        tl.store(p_w + p_rows, b_w, mask=m_d[:, None] & m_v[None, :])
        tl.store(p_new_total + i_bh * (D + 1), total0)
        tl.store(p_new_total + i_bh * (D + 1) + 1 + o_d, b_total, mask=m_d)
