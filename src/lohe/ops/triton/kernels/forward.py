"""The drive, and at p = 1 the readout."""
# Triton is not installed everywhere, and its decorator does not tell how a kernel is launched
# pyright: reportMissingImports=false

from typing import no_type_check

import triton
import triton.language as tl

from lohe.ops.triton.couplings import LOG2E, RELU_FLOOR, coupled, factor
from lohe.ops.triton.kernels.rows import (
    SIZES,
    inverse_root,
    lift,
    load_mask,
    load_rows,
    spread_pair,
    times,
    unpacked,
)
from lohe.ops.triton.kernels.sums import up_to


@triton.jit
@no_type_check
def _add_drive(
    h, top, f, p_g, p_r, p_mask, last, start, stop, keys, g_token, scale,
    COUPLING: tl.constexpr, SHIFTED: tl.constexpr, FAST: tl.constexpr, PRECISION: tl.constexpr,
    CAUSAL: tl.constexpr, MASKED: tl.constexpr, EDGE: tl.constexpr, FLOOR: tl.constexpr,
    D_H: tl.constexpr, D_R: tl.constexpr, DH: tl.constexpr, STEP: tl.constexpr,
    COUPLED: tl.constexpr,
):  # fmt: skip
    """h += Σ_j w(f·g_j) r_j over the keys start <= j < stop; `last` is the last key of a query.

    EDGE: the tiles may reach past the last key, or past the diagonal.
    """
    for j0 in tl.range(start, stop, STEP, num_stages=1 if EDGE else None):
        j = j0 + tl.arange(0, STEP)
        g = load_rows(p_g, j, keys, g_token, D_H, DH, EDGE)
        r = load_rows(p_r, j, keys, D_R, D_R, D_R, EDGE)
        x = tl.dot(f, tl.trans(g), input_precision=PRECISION)
        if SHIFTED:
            s = x * (scale * LOG2E)
            s = tl.where((load_mask(p_mask, j, keys, MASKED) > 0.0)[None, :], s, -float("inf"))
            if EDGE and CAUSAL:
                s = tl.where(j[None, :] <= last[:, None], s, -float("inf"))
            above = tl.maximum(top, tl.max(s, 1))
            base = tl.where(above == -float("inf"), 0.0, above)
            h = h * tl.exp2(top - base)[:, None]
            w = tl.exp2(s - base[:, None]).to(COUPLED)
            top = above
        else:
            w = coupled(x, scale, COUPLING, FAST, COUPLED)
            if FLOOR and COUPLING == "relu":
                w += tl.full((1, 1), RELU_FLOOR / scale, tl.float32).to(COUPLED)
            if EDGE and CAUSAL:
                w = tl.where(j[None, :] <= last[:, None], w, 0.0)
        h = tl.dot(w, r, h, input_precision=PRECISION)
    return h, top


@triton.jit(do_not_specialize=SIZES)
@no_type_check
def drive_and_readout(
    p_f, p_g, p_v, p_r, p_packed, p_mask, p_w, p_n, p_o, p_h, p_den, p_top,
    f_batch, f_head, f_token, g_batch, g_head, g_token, v_batch, v_head, v_token,
    r_head, packed_batch, packed_head, mask_batch, mask_head, n_batch,
    heads, queries, keys, origin, blocks, scale, power, gain,
    COUPLING: tl.constexpr, CAUSAL: tl.constexpr, MASKED: tl.constexpr, SHIFTED: tl.constexpr,
    READOUT: tl.constexpr, FAST: tl.constexpr, PRECISION: tl.constexpr,
    D_OSC: tl.constexpr, D_H: tl.constexpr, D_V: tl.constexpr,
    D_R: tl.constexpr, DH: tl.constexpr, DV: tl.constexpr,
    BLOCK: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """h of Eq. 3 for a block of queries and, if READOUT, z of Eq. 4 and o of Eqs. 5 and 6.

    f is multiplied by `power`, of 2, so that couplings fit a 16-bit float; `scale` does the rest.
    If READOUT, a tiny h is kept UP times larger, and its denominator with a minus.
    """
    n = tl.num_programs(0)
    block = n - 1 - tl.program_id(0) if CAUSAL else tl.program_id(0)  # the longest ones first
    bh = tl.program_id(1)
    b, head = (bh // heads).to(tl.int64), (bh % heads).to(tl.int64)
    p_f += b * f_batch + head * f_head
    p_g += b * g_batch + head * g_head
    p_packed += b * packed_batch + head * packed_head
    p_mask += b * mask_batch + head * mask_head
    a, c = tl.arange(0, BLOCK), tl.arange(0, D_R)
    i = block * BLOCK + a
    first = block * BLOCK + keys - queries  # the key of the block's first query
    last = first + a
    f = load_rows(p_f, i, queries, f_token, D_H, DH, True)
    f = (f.to(tl.float32) * power).to(f.dtype)

    h = tl.zeros((BLOCK, D_R), tl.float32)
    top = tl.full((BLOCK,), -float("inf"), tl.float32)
    full = (keys // STEP) * STEP
    stop = keys
    if CAUSAL:
        full = tl.minimum(full, (tl.maximum(first + 1, 0) // STEP) * STEP)
        stop = tl.maximum(0, tl.minimum(keys, first + BLOCK))
    h, top = _add_drive(
        h, top, f, p_g, p_packed, p_mask, last, 0, full, keys, g_token, scale,
        COUPLING, SHIFTED, FAST, PRECISION, CAUSAL, MASKED, False, not READOUT,
        D_H, D_R, DH, STEP, p_packed.dtype.element_ty,
    )  # fmt: skip
    h, top = _add_drive(
        h, top, f, p_g, p_packed, p_mask, last, full, stop, keys, g_token, scale,
        COUPLING, SHIFTED, FAST, PRECISION, CAUSAL, MASKED, True, not READOUT,
        D_H, D_R, DH, STEP, p_packed.dtype.element_ty,
    )  # fmt: skip
    if D_OSC == 2:  # on the circle two numbers do instead of matrices with 16 columns
        h0, h1 = _pair(h, 2 if FAST else 0, D_R)
        h0, h1 = h0 * factor(scale, COUPLING), h1 * factor(scale, COUPLING)
    else:
        h = unpacked(h, D_OSC if FAST else 0, D_OSC, D_R) * factor(scale, COUPLING)

    row = bh.to(tl.int64) * queries + i
    if SHIFTED:
        tl.store(p_top + row, tl.where(top == -float("inf"), 0.0, top), mask=i < queries)
    if READOUT:
        # sums over the keys before the diagonal's block; those of the block itself follow
        before = (first - origin) // BLOCK - 1 if CAUSAL else blocks - 1
        at = (bh.to(tl.int64) * blocks + tl.maximum(before, 0)) * (1 + D_OSC)
        some = (before >= 0).to(tl.float32)
        d = tl.arange(0, DV)
        if not CAUSAL:
            last = tl.zeros_like(last) + (keys - 1)
        p_n += b * n_batch + head * keys * (1 + D_OSC)
        p_w += at * D_V
        seen = (last >= 0) & (last < keys)
        counts = tl.load(p_n + last, mask=seen, other=0.0)
        if D_OSC == 2:
            sum0 = tl.load(p_n + keys + last, mask=seen, other=0.0)
            sum1 = tl.load(p_n + 2 * keys + last, mask=seen, other=0.0)
            if COUPLING == "relu":
                h0, h1 = h0 + RELU_FLOOR * sum0, h1 + RELU_FLOOR * sum1
            up = lift(tl.maximum(tl.abs(h0), tl.abs(h1)))
            h0, h1 = h0 * up, h1 * up
            unit = gain * inverse_root(h0 * h0 + h1 * h1)
            z0, z1 = h0 * unit, h1 * unit
            along = z0 * sum0 + z1 * sum1
            w1 = tl.load(p_w + D_V + d, mask=d < D_V, other=0.0)
            w2 = tl.load(p_w + 2 * D_V + d, mask=d < D_V, other=0.0)
            o = z0[:, None] * w1[None, :] + z1[:, None] * w2[None, :]
        else:
            sums = up_to(p_n, last, keys, D_OSC, D_R)
            if COUPLING == "relu":
                h += RELU_FLOOR * sums
            up = lift(tl.max(tl.abs(h), 1))
            h *= up[:, None]
            z = h * (gain * inverse_root(tl.sum(h * h, 1)))[:, None]
            along = tl.sum(z * sums, 1)
            o = times(z, p_w + D_V, d, d < D_V, D_V, False, PRECISION, D_OSC, D_R)
        den = tl.where(counts > 0.0, counts + along, 1.0)
        w0 = tl.load(p_w + d, mask=d < D_V, other=0.0)
        o = some * (w0[None, :] + o)
        if CAUSAL:
            v = load_rows(p_v + b * v_batch + head * v_head, last, keys, v_token, D_V, DV, True)
            p_r += head * r_head
            if D_OSC == 2:
                r0, r1 = spread_pair(p_r, last, keys)
                x = 1.0 + z0[:, None] * r0[None, :] + z1[:, None] * r1[None, :]
            else:
                x = 1.0 + times(z, p_r, last, seen, D_OSC, True, PRECISION, D_OSC, D_R)
            m = load_mask(p_mask, last, keys, MASKED)
            x = tl.where((a[None, :] <= a[:, None]) & (m > 0.0)[None, :], x, 0.0)
            o = tl.dot(x.to(v.dtype), v, o, input_precision=PRECISION)
        tl.store(
            p_o + row[:, None] * D_V + d[None, :],
            (o * (1.0 / den)[:, None]).to(p_o.dtype.element_ty),
            mask=(i < queries)[:, None] & (d < D_V)[None, :],
        )
        tl.store(p_den + row, tl.where(up == 1.0, den, -den), mask=i < queries)
    if D_OSC == 2:
        tl.store(p_h + 2 * row, h0, mask=i < queries)
        tl.store(p_h + 2 * row + 1, h1, mask=i < queries)
    else:
        tl.store(
            p_h + row[:, None] * D_OSC + c[None, :],
            h,
            mask=(i < queries)[:, None] & (c < D_OSC)[None, :],
        )


@triton.jit
@no_type_check
def _pair(x, SECOND: tl.constexpr, D_R: tl.constexpr):
    """The sum over the copies of a packed product with two columns, one by one."""
    k = tl.arange(0, D_R)
    first = tl.sum(tl.where(((k == 0) | (k == SECOND))[None, :], x, 0.0), 1)
    return first, tl.sum(tl.where(((k == 1) | (k == SECOND + 1))[None, :], x, 0.0), 1)
