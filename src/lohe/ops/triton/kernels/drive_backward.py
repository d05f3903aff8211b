"""Back through the drive, Eqs. 3 and 2: df, dg and dr, each tile made again."""
# Triton is not installed everywhere, and its decorator does not tell how a kernel is launched
# pyright: reportMissingImports=false

from typing import no_type_check

import triton
import triton.language as tl

from lohe.ops.triton.couplings import LOG2E, RELU_FLOOR, coupled, factor, through
from lohe.ops.triton.kernels.rows import SIZES, load_mask, load_rows, unpacked


@triton.jit
@no_type_check
def _along_anchors(
    dh, r, p_dh, p_r, p_mask, i, j, queries, keys, TRANSPOSED: tl.constexpr, EDGE: tl.constexpr,
    MASKED: tl.constexpr, PRECISION: tl.constexpr,
    D_OSC: tl.constexpr, D_R: tl.constexpr,
):  # fmt: skip
    """dw_ij = dh_i·r_j, or its transpose, from packed rows; from float32 at the edge, if better."""
    if EDGE and 3 * D_OSC > D_R:
        dh = load_rows(p_dh, i, queries, D_OSC, D_OSC, D_R, True)
        r = load_rows(p_r, j, keys, D_OSC, D_OSC, D_R, True)
        r *= load_mask(p_mask, j, keys, MASKED)[:, None]
        if TRANSPOSED:
            return tl.dot(r, tl.trans(dh), input_precision="tf32x3")
        else:  # noqa: RET505
            return tl.dot(dh, tl.trans(r), input_precision="tf32x3")
    elif TRANSPOSED:
        return tl.dot(r, tl.trans(dh), input_precision=PRECISION)
    else:
        return tl.dot(dh, tl.trans(r), input_precision=PRECISION)


@triton.jit
@no_type_check
def _score_gradient(x, dw, top, scale, COUPLING: tl.constexpr, SHIFTED: tl.constexpr, FAST: tl.constexpr):  # fmt: skip # noqa: E501
    """ds = dw σ′(s), s = scale · x; a shifted exponential is relative to `top` of its query."""
    if SHIFTED:
        return dw * tl.exp2(tl.minimum(x * (scale * LOG2E) - top, 0.0))
    return through(dw, x, scale, COUPLING, FAST)


@triton.jit
@no_type_check
def _add_query_gradient(
    df, f, dh, top, p_g, p_packed, p_dh, p_r, p_mask, i, last, start, stop, queries, keys,
    g_token, scale,
    COUPLING: tl.constexpr, SHIFTED: tl.constexpr, FAST: tl.constexpr, PRECISION: tl.constexpr,
    CAUSAL: tl.constexpr, MASKED: tl.constexpr, EDGE: tl.constexpr,
    D_OSC: tl.constexpr, D_H: tl.constexpr, D_R: tl.constexpr, DH: tl.constexpr,
    STEP: tl.constexpr,
):  # fmt: skip
    """df += Σ_j ds_ij g_j, ds = (dh·r_j) σ′."""
    for j0 in tl.range(start, stop, STEP, num_stages=1 if EDGE else None):
        j = j0 + tl.arange(0, STEP)
        g = load_rows(p_g, j, keys, g_token, D_H, DH, EDGE)
        r = load_rows(p_packed, j, keys, D_R, D_R, D_R, EDGE)
        x = tl.dot(f, tl.trans(g), input_precision=PRECISION)
        dw = _along_anchors(
            dh, r, p_dh, p_r, p_mask, i, j, queries, keys, False, EDGE,
            MASKED, PRECISION, D_OSC, D_R,
        )  # fmt: skip
        ds = _score_gradient(x, dw, top[:, None], scale, COUPLING, SHIFTED, FAST)
        if EDGE and CAUSAL:
            ds = tl.where(j[None, :] <= last[:, None], ds, 0.0)
        df = tl.dot(ds.to(f.dtype), g, df, input_precision=PRECISION)
    return df


@triton.jit(do_not_specialize=SIZES)
@no_type_check
def drive_queries(
    p_f, p_g, p_r, p_packed, p_mask, p_dh, p_packed_dh, p_top, p_df,
    f_batch, f_head, f_token, g_batch, g_head, g_token, r_head, packed_batch, packed_head,
    mask_batch, mask_head,
    heads, queries, keys, scale,
    COUPLING: tl.constexpr, CAUSAL: tl.constexpr, MASKED: tl.constexpr, SHIFTED: tl.constexpr,
    FAST: tl.constexpr, PRECISION: tl.constexpr,
    D_OSC: tl.constexpr, D_H: tl.constexpr, D_R: tl.constexpr, DH: tl.constexpr,
    BLOCK: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """df of a block of queries."""
    n = tl.num_programs(0)
    block = n - 1 - tl.program_id(0) if CAUSAL else tl.program_id(0)
    bh = tl.program_id(1)
    b, head = (bh // heads).to(tl.int64), (bh % heads).to(tl.int64)
    p_f += b * f_batch + head * f_head
    p_g += b * g_batch + head * g_head
    p_packed += b * packed_batch + head * packed_head
    p_r += head * r_head
    p_mask += b * mask_batch + head * mask_head
    d = tl.arange(0, DH)
    i = block * BLOCK + tl.arange(0, BLOCK)
    last = i + keys - queries
    first = block * BLOCK + keys - queries
    own = bh.to(tl.int64) * queries
    f = load_rows(p_f, i, queries, f_token, D_H, DH, True)
    p_dh += own * D_OSC
    dh = load_rows(p_packed_dh + own * D_R, i, queries, D_R, D_R, D_R, True)
    top = tl.zeros((BLOCK,), tl.float32)
    if SHIFTED:
        top = tl.load(p_top + own + i, mask=i < queries, other=0.0)
    full = (keys // STEP) * STEP
    stop = keys
    if CAUSAL:
        full = tl.minimum(full, (tl.maximum(first + 1, 0) // STEP) * STEP)
        stop = tl.maximum(0, tl.minimum(keys, first + BLOCK))
    df = tl.zeros((BLOCK, DH), tl.float32)
    df = _add_query_gradient(
        df, f, dh, top, p_g, p_packed, p_dh, p_r, p_mask, i, last, 0, full, queries, keys,
        g_token, scale,
        COUPLING, SHIFTED, FAST, PRECISION, CAUSAL, MASKED, False, D_OSC, D_H, D_R, DH, STEP,
    )  # fmt: skip
    df = _add_query_gradient(
        df, f, dh, top, p_g, p_packed, p_dh, p_r, p_mask, i, last, full, stop, queries, keys,
        g_token, scale,
        COUPLING, SHIFTED, FAST, PRECISION, CAUSAL, MASKED, True, D_OSC, D_H, D_R, DH, STEP,
    )  # fmt: skip
    tl.store(
        p_df + (own + i)[:, None] * D_H + d[None, :],
        (df * scale).to(p_df.dtype.element_ty),
        mask=(i < queries)[:, None] & (d < D_H)[None, :],
    )


@triton.jit
@no_type_check
def _add_key_gradient(
    dg, dr, g, r, j, p_f, p_packed_dh, p_dh, p_r, p_mask, p_top, start, stop, queries, keys,
    f_token, scale,
    COUPLING: tl.constexpr, SHIFTED: tl.constexpr, FAST: tl.constexpr, PRECISION: tl.constexpr,
    CAUSAL: tl.constexpr, MASKED: tl.constexpr, EDGE: tl.constexpr,
    D_OSC: tl.constexpr, D_H: tl.constexpr, D_R: tl.constexpr, DH: tl.constexpr,
    STEP: tl.constexpr,
):  # fmt: skip
    """dg += Σ_i ds_ij f_i and dr += Σ_i w_ij dh_i, all of it transposed: keys are the rows."""
    for i0 in tl.range(start, stop, STEP, num_stages=1 if EDGE else None):
        i = i0 + tl.arange(0, STEP)
        f = load_rows(p_f, i, queries, f_token, D_H, DH, EDGE)
        dh = load_rows(p_packed_dh, i, queries, D_R, D_R, D_R, EDGE)
        x = tl.dot(g, tl.trans(f), input_precision=PRECISION)
        dw = _along_anchors(
            dh, r, p_dh, p_r, p_mask, i, j, queries, keys, True, EDGE,
            MASKED, PRECISION, D_OSC, D_R,
        )  # fmt: skip
        top = x
        if SHIFTED:
            top = tl.load(p_top + i, mask=i < queries, other=0.0)[None, :]
            w = tl.exp2(tl.minimum(x * (scale * LOG2E) - top, 0.0)).to(f.dtype)
        else:
            w = coupled(x, scale, COUPLING, FAST, f.dtype)
            if COUPLING == "relu":
                w += tl.full((1, 1), RELU_FLOOR / scale, tl.float32).to(f.dtype)
        ds = _score_gradient(x, dw, top, scale, COUPLING, SHIFTED, FAST).to(f.dtype)
        if EDGE and CAUSAL:
            seen = j[:, None] <= (i + keys - queries)[None, :]
            w = tl.where(seen, w, 0.0)
            ds = tl.where(seen, ds, 0.0)
        dr = tl.dot(w, dh, dr, input_precision=PRECISION)
        dg = tl.dot(ds, f, dg, input_precision=PRECISION)
    return dg, dr


@triton.jit(do_not_specialize=SIZES)
@no_type_check
def drive_keys(
    p_f, p_g, p_r, p_packed, p_mask, p_dh, p_packed_dh, p_top, p_dg, p_dr,
    f_batch, f_head, f_token, g_batch, g_head, g_token, r_head, packed_batch, packed_head,
    mask_batch, mask_head,
    heads, queries, keys, scale,
    COUPLING: tl.constexpr, CAUSAL: tl.constexpr, MASKED: tl.constexpr, SHIFTED: tl.constexpr,
    ADD: tl.constexpr, FAST: tl.constexpr, PRECISION: tl.constexpr,
    D_OSC: tl.constexpr, D_H: tl.constexpr, D_R: tl.constexpr, DH: tl.constexpr,
    BLOCK: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """dg and dr of a block of keys; ADD to the dr that is there."""
    block, bh = tl.program_id(0), tl.program_id(1)
    b, head = (bh // heads).to(tl.int64), (bh % heads).to(tl.int64)
    own = bh.to(tl.int64) * queries
    p_f += b * f_batch + head * f_head
    p_dh += own * D_OSC
    p_packed_dh += own * D_R
    p_r += head * r_head
    p_mask += b * mask_batch + head * mask_head
    p_top += own
    offset = keys - queries
    start = block * BLOCK
    j, c = start + tl.arange(0, BLOCK), tl.arange(0, D_R)
    g = load_rows(p_g + b * g_batch + head * g_head, j, keys, g_token, D_H, DH, True)
    r = load_rows(p_packed + b * packed_batch + head * packed_head, j, keys, D_R, D_R, D_R, True)
    dr = tl.zeros((BLOCK, D_R), tl.float32)
    dg = tl.zeros((BLOCK, DH), tl.float32)

    low, middle = 0, 0
    full = (queries // STEP) * STEP
    if CAUSAL:  # queries before `low` see nothing of the block, those from `middle` on all of it
        low = (tl.maximum(start - offset, 0) // STEP) * STEP
        middle = tl.cdiv(tl.maximum(start + BLOCK - 1 - offset, 0), STEP) * STEP
        middle = tl.minimum(middle, full)
        dg, dr = _add_key_gradient(
            dg, dr, g, r, j, p_f, p_packed_dh, p_dh, p_r, p_mask, p_top, low, middle, queries,
            keys, f_token, scale,
            COUPLING, SHIFTED, FAST, PRECISION, CAUSAL, MASKED, True, D_OSC, D_H, D_R, DH, STEP,
        )  # fmt: skip
    dg, dr = _add_key_gradient(
        dg, dr, g, r, j, p_f, p_packed_dh, p_dh, p_r, p_mask, p_top, middle, full, queries, keys,
        f_token, scale,
        COUPLING, SHIFTED, FAST, PRECISION, CAUSAL, MASKED, False, D_OSC, D_H, D_R, DH, STEP,
    )  # fmt: skip
    dg, dr = _add_key_gradient(
        dg, dr, g, r, j, p_f, p_packed_dh, p_dh, p_r, p_mask, p_top,
        tl.maximum(low, full), queries, queries, keys, f_token, scale,
        COUPLING, SHIFTED, FAST, PRECISION, CAUSAL, MASKED, True, D_OSC, D_H, D_R, DH, STEP,
    )  # fmt: skip
    row = bh.to(tl.int64) * keys + j
    inside = j < keys
    d = tl.arange(0, DH)
    tl.store(
        p_dg + row[:, None] * D_H + d[None, :],
        (dg * scale).to(p_dg.dtype.element_ty),
        mask=inside[:, None] & (d < D_H)[None, :],
    )
    m = load_mask(p_mask, j, keys, MASKED)
    dr = unpacked(dr, 2 * D_OSC if FAST else 0, D_OSC, D_R)
    dr *= (factor(scale, COUPLING) * m)[:, None]
    at = p_dr + row[:, None] * D_OSC + c[None, :]
    held = inside[:, None] & (c < D_OSC)[None, :]
    if ADD:
        dr += tl.load(at, mask=held)
    tl.store(at, dr, mask=held)
