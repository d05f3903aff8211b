"""Kernels of the drive (Eqs. 2 and 3) and, at p = 1, of the whole of Eqs. 2-6.

Notation: i counts queries, j keys; a program works on BLOCK of either and goes through the other in
tiles of STEP. Query i sees the keys j <= i + offset in the causal case, offset = keys - queries.
At p = 1 the readout is linear attention (`ops.linear`): with the sums

    N_i = Σ_j m_j,   P_i = Σ_j m_j r_j,   V_i = Σ_j m_j v_j,   W_i = Σ_j m_j r_j v_jᵀ

over the keys that query i sees (m masks keys), o_i = (V_i + γ z_i W_i) / (N_i + γ z_i·P_i).
Blocks of keys end where blocks of queries do, so these sums are those of all earlier blocks
(`_block_sums`, `_scan`) and a triangle.

Products with anchors go through the matrix units in the dtype of f, padded to D_R >= 16 columns.
In 16 bits those columns hold, where there is room (3 d_osc <= D_R), what rounding lost: a product
a·b is taken of [a, a, a - rounded a] and [b, b - rounded b, b] (`_pack`). Where there is none, dh·r
of the tiles at the diagonal is made of float32: dh is orthogonal to z, and in a row of few keys z
is almost one of the anchors, so that the product is small beside its rounding.

The gradient takes two passes over the tiles, one for df and one for dg and dr, each product twice:
one pass that adds df with atomics does 3 large products instead of 4 and took longer (H200: 11.0
against 9.1 ms at 32 x 16,384 tokens), so the fastest way is the deterministic one.

Padding needs no mask in the tiles: where r_j = 0 (behind the last key, masked keys) nothing is
added to h, and where dh_i = 0 (behind the last query) nothing to a gradient.
"""
# Triton is not installed everywhere, and its decorator does not tell how a kernel is launched
# pyright: reportMissingImports=false

from typing import no_type_check

import triton
import triton.language as tl

from lohe.ops.triton.couplings import LOG2E, RELU_FLOOR, coupled, factor, through

# sizes do not make another kernel; of strides only those of f, g and v do, by their alignment
SIZES = ["heads", "queries", "keys", "origin", "blocks", "query_blocks", "count"]
SIZES += ["r_head", "x_batch", "x_head", "mask_batch", "mask_head"]

FEW = tl.constexpr(8)  # d_osc up to which sums over keys go component by component

# --- loads --------------------------------------------------------------------------------------


@triton.jit
@no_type_check
def _rows(p, index, count, token, WIDTH: tl.constexpr, PADDED: tl.constexpr, EDGE: tl.constexpr):
    """Rows of a matrix, (BLOCK, PADDED); zeros outside. EDGE: some index may be outside."""
    d = tl.arange(0, PADDED)
    at = p + index[:, None] * token + d[None, :]
    if EDGE:
        inside = (index >= 0) & (index < count)
        return tl.load(at, mask=inside[:, None] & (d < WIDTH)[None, :], other=0.0)
    if WIDTH == PADDED:
        return tl.load(at)
    return tl.load(at, mask=(d < WIDTH)[None, :], other=0.0)


@triton.jit
@no_type_check
def _mask(p_mask, j, keys, MASKED: tl.constexpr):
    """m_j: 1 for a key that may be used, else 0."""
    inside = (j >= 0) & (j < keys)
    if MASKED:
        return tl.load(p_mask + j, mask=inside, other=0).to(tl.float32)
    return inside.to(tl.float32)


@triton.jit
@no_type_check
def _unit(h):
    """1 / ‖h‖ of each row, and 0 for h = 0."""
    norm2 = tl.sum(h * h, 1)
    return tl.where(norm2 > 0.0, 1.0 / tl.sqrt(tl.where(norm2 > 0.0, norm2, 1.0)), 0.0)


@triton.jit
@no_type_check
def _unpacked(x, SECOND: tl.constexpr, D_OSC: tl.constexpr, D_R: tl.constexpr):
    """The sum over the copies of a packed product: columns c and SECOND + c, (BLOCK, D_R)."""
    if 3 * D_OSC <= D_R and SECOND > 0:
        k = tl.arange(0, D_R)
        fold = (k[:, None] % D_OSC == k[None, :]) & (k[None, :] < D_OSC)
        fold = fold & ((k < D_OSC) | ((k >= SECOND) & (k < SECOND + D_OSC)))[:, None]
        return tl.dot(x, fold.to(tl.float32), input_precision="ieee")
    return x


# --- anchors as the matrix units read them -------------------------------------------------------


@triton.jit(do_not_specialize=SIZES)
@no_type_check
def _pack(
    p_x, p_mask, p_out, x_batch, x_head, mask_batch, mask_head, heads, count,
    MASKED: tl.constexpr, MIDDLE: tl.constexpr, D_OSC: tl.constexpr, D_R: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Rows of float32 in the dtype of `p_out`, D_R wide, and what rounding lost of them.

    MIDDLE: the second copy holds what was lost and the third the rounded rows again; else the other
    way round. A masked row is 0.
    """
    bh = tl.program_id(1)
    b, h = (bh // heads).to(tl.int64), (bh % heads).to(tl.int64)
    i, k = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, D_R)
    SPLIT: tl.constexpr = 3 * D_OSC <= D_R and p_out.dtype.element_ty != tl.float32
    used = k < (3 * D_OSC if SPLIT else D_OSC)
    x = tl.load(
        p_x + b * x_batch + h * x_head + i[:, None] * D_OSC + (k % D_OSC)[None, :],
        mask=(i < count)[:, None] & used[None, :],
        other=0.0,
    )
    if MASKED:
        x *= _mask(p_mask + b * mask_batch + h * mask_head, i, count, MASKED)[:, None]
    rounded = x.to(p_out.dtype.element_ty)
    if SPLIT:
        lost = (x - rounded.to(tl.float32)).to(p_out.dtype.element_ty)
        first = D_OSC if MIDDLE else 2 * D_OSC
        rounded = tl.where(((k >= first) & (k < first + D_OSC))[None, :], lost, rounded)
    row = bh.to(tl.int64) * count + i
    tl.store(p_out + row[:, None] * D_R + k[None, :], rounded, mask=(i < count)[:, None])


# --- sums over blocks of keys --------------------------------------------------------------------


@triton.jit(do_not_specialize=SIZES)
@no_type_check
def _block_sums(
    p_v, p_r, p_mask, p_w, p_n,
    v_batch, v_head, v_token, r_head, mask_batch, mask_head,
    heads, keys, origin, blocks,
    D_OSC: tl.constexpr, D_V: tl.constexpr, D_R: tl.constexpr, DV: tl.constexpr,
    MASKED: tl.constexpr, PRECISION: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Σ_j m_j [1; r_j] [v_jᵀ, 1] over the keys of a block: (1 + d_osc, d_v) and (1 + d_osc)."""
    block, bh = tl.program_id(0), tl.program_id(1)
    b, h = (bh // heads).to(tl.int64), (bh % heads).to(tl.int64)
    j = origin + block * BLOCK + tl.arange(0, BLOCK)
    c, d = tl.arange(0, D_R), tl.arange(0, DV)
    p_r += h * r_head
    m = _mask(p_mask + b * mask_batch + h * mask_head, j, keys, MASKED)
    v = _rows(p_v + b * v_batch + h * v_head, j, keys, v_token, D_V, DV, True)
    v = v.to(tl.float32) * m[:, None]
    at = (bh.to(tl.int64) * blocks + block) * (1 + D_OSC)
    tl.store(p_w + at * D_V + d, tl.sum(v, 0), mask=d < D_V)
    tl.store(p_n + at, tl.sum(m, 0))
    if D_OSC <= FEW:
        for k in tl.static_range(D_OSC):
            r = tl.load(p_r + j * D_OSC + k, mask=(j >= 0) & (j < keys), other=0.0)
            tl.store(p_w + (at + 1 + k) * D_V + d, tl.sum(v * r[:, None], 0), mask=d < D_V)
            tl.store(p_n + at + 1 + k, tl.sum(r * m, 0))
    else:
        r = _rows(p_r, j, keys, D_OSC, D_OSC, D_R, True) * m[:, None]
        w = tl.dot(tl.trans(r), v, input_precision=PRECISION)
        rows = p_w + (at + 1 + c)[:, None] * D_V + d[None, :]
        tl.store(rows, w, mask=(c < D_OSC)[:, None] & (d < D_V)[None, :])
        tl.store(p_n + at + 1 + c, tl.sum(r, 0), mask=c < D_OSC)


@triton.jit(do_not_specialize=SIZES)
@no_type_check
def _scan(
    p_w, p_n, blocks,
    D_V: tl.constexpr, DV: tl.constexpr, FEATURES: tl.constexpr, REVERSE: tl.constexpr,
    CHUNK: tl.constexpr,
):  # fmt: skip
    """Running sums over the blocks, each block included; from the last one if REVERSE."""
    first = tl.program_id(0).to(tl.int64) * blocks
    feature = tl.program_id(1)
    d = tl.arange(0, DV)
    w_before = tl.zeros((DV,), tl.float32)
    n_before = 0.0
    for start in range(0, blocks, CHUNK):
        k = start + tl.arange(0, CHUNK)
        block = blocks - 1 - k if REVERSE else k
        row = (first + block) * FEATURES + feature
        inside = (k < blocks)[:, None] & (d < D_V)[None, :]
        at = p_w + row[:, None] * D_V + d[None, :]
        w = tl.load(at, mask=inside, other=0.0)
        n = tl.load(p_n + row, mask=k < blocks, other=0.0)
        tl.store(at, tl.cumsum(w, 0) + w_before[None, :], mask=inside)
        tl.store(p_n + row, tl.cumsum(n, 0) + n_before, mask=k < blocks)
        w_before += tl.sum(w, 0)
        n_before += tl.sum(n, 0)


@triton.jit
@no_type_check
def _sums(p_w, p_n, at, some, D_OSC: tl.constexpr, D_V: tl.constexpr, D_R: tl.constexpr, DV: tl.constexpr):  # fmt: skip # noqa: E501
    """(1, d_v), (d_osc, d_v), 1 and d_osc running sums, times `some`."""
    c, d = tl.arange(0, D_R), tl.arange(0, DV)
    p_w += at * D_V
    first = tl.load(p_w + d, mask=d < D_V, other=0.0)
    inside = (c < D_OSC)[:, None] & (d < D_V)[None, :]
    rest = tl.load(p_w + (1 + c)[:, None] * D_V + d[None, :], mask=inside, other=0.0)
    count = tl.load(p_n + at)
    total = tl.load(p_n + at + 1 + c, mask=c < D_OSC, other=0.0)
    return some * first, some * rest, some * count, some * total


# --- forward ------------------------------------------------------------------------------------


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
        g = _rows(p_g, j, keys, g_token, D_H, DH, EDGE)
        r = _rows(p_r, j, keys, D_R, D_R, D_R, EDGE)
        x = tl.dot(f, tl.trans(g), input_precision=PRECISION)
        if SHIFTED:
            s = x * (scale * LOG2E)
            s = tl.where((_mask(p_mask, j, keys, MASKED) > 0.0)[None, :], s, -float("inf"))
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
def _forward(
    p_f, p_g, p_v, p_r, p_packed, p_mask, p_w, p_n, p_o, p_h, p_den, p_top,
    f_batch, f_head, f_token, g_batch, g_head, g_token, v_batch, v_head, v_token,
    r_head, packed_batch, packed_head, mask_batch, mask_head,
    heads, queries, keys, origin, blocks, scale, power, gain,
    COUPLING: tl.constexpr, CAUSAL: tl.constexpr, MASKED: tl.constexpr, SHIFTED: tl.constexpr,
    READOUT: tl.constexpr, FAST: tl.constexpr, PRECISION: tl.constexpr,
    D_OSC: tl.constexpr, D_H: tl.constexpr, D_V: tl.constexpr,
    D_R: tl.constexpr, DH: tl.constexpr, DV: tl.constexpr,
    BLOCK: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """h of Eq. 3 for a block of queries and, if READOUT, z of Eq. 4 and o of Eqs. 5 and 6.

    f is multiplied by `power`, of 2, so that couplings fit a 16-bit float; `scale` does the rest.
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
    f = _rows(p_f, i, queries, f_token, D_H, DH, True)
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
    h = _unpacked(h, D_OSC if FAST else 0, D_OSC, D_R) * factor(scale, COUPLING)

    row = bh.to(tl.int64) * queries + i
    if SHIFTED:
        tl.store(p_top + row, tl.where(top == -float("inf"), 0.0, top), mask=i < queries)
    if READOUT:
        # sums over the keys before the diagonal's block; those of the block itself follow
        before = (first - origin) // BLOCK - 1 if CAUSAL else blocks - 1
        at = (bh.to(tl.int64) * blocks + tl.maximum(before, 0)) * (1 + D_OSC)
        some = (before >= 0).to(tl.float32)
        v0, w, count, total = _sums(p_w, p_n, at, some, D_OSC, D_V, D_R, DV)
        counts = count + tl.zeros((BLOCK,), tl.float32)
        sums = total[None, :] + tl.zeros((BLOCK, D_R), tl.float32)
        if CAUSAL:
            m = _mask(p_mask, last, keys, MASKED)
            r = _rows(p_r + head * r_head, last, keys, D_OSC, D_OSC, D_R, True)
            counts += tl.cumsum(m, 0)
            sums += tl.cumsum(r * m[:, None], 0)
        if COUPLING == "relu":
            h += RELU_FLOOR * sums
        z = h * (gain * _unit(h))[:, None]
        den = tl.where(counts > 0.0, counts + tl.sum(z * sums, 1), 1.0)
        o = tl.dot(z, w, input_precision=PRECISION) + v0[None, :]
        if CAUSAL:
            v = _rows(p_v + b * v_batch + head * v_head, last, keys, v_token, D_V, DV, True)
            x = 1.0 + tl.dot(z, tl.trans(r), input_precision=PRECISION)
            x = tl.where((a[None, :] <= a[:, None]) & (m > 0.0)[None, :], x, 0.0)
            o = tl.dot(x.to(v.dtype), v, o, input_precision=PRECISION)
        d = tl.arange(0, DV)
        tl.store(
            p_o + row[:, None] * D_V + d[None, :],
            (o * (1.0 / den)[:, None]).to(p_o.dtype.element_ty),
            mask=(i < queries)[:, None] & (d < D_V)[None, :],
        )
        tl.store(p_den + row, den, mask=i < queries)
    tl.store(
        p_h + row[:, None] * D_OSC + c[None, :],
        h,
        mask=(i < queries)[:, None] & (c < D_OSC)[None, :],
    )


# --- backward -----------------------------------------------------------------------------------


@triton.jit(do_not_specialize=SIZES)
@no_type_check
def _before(
    p_do, p_o, p_v, p_r, p_mask, p_w, p_n, p_h, p_den, p_dh, p_c, p_s, p_t,
    v_batch, v_head, v_token, r_head, mask_batch, mask_head,
    heads, queries, keys, origin, blocks, gain,
    CAUSAL: tl.constexpr, MASKED: tl.constexpr, PRECISION: tl.constexpr,
    D_OSC: tl.constexpr, D_V: tl.constexpr, D_R: tl.constexpr, DV: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Back through Eqs. 6-4 for a block of queries: dh, c_i = do′_i·o_i with do′ = do / den, and

    Σ_i [1; γ z_i] do′_iᵀ and Σ_i γ z_i c_i, from which each key will take its share.
    """
    block, bh = tl.program_id(0), tl.program_id(1)
    b, head = (bh // heads).to(tl.int64), (bh % heads).to(tl.int64)
    a, c, d = tl.arange(0, BLOCK), tl.arange(0, D_R), tl.arange(0, DV)
    i = block * BLOCK + a
    first = block * BLOCK + keys - queries
    last = first + a
    own = bh.to(tl.int64) * queries
    row = own + i
    den = tl.load(p_den + row, mask=i < queries, other=1.0)
    do = _rows(p_do + own * D_V, i, queries, D_V, D_V, DV, True).to(tl.float32)
    do *= (1.0 / den)[:, None]
    o = _rows(p_o + own * D_V, i, queries, D_V, D_V, DV, True).to(tl.float32)
    c_i = tl.sum(do * o, 1)
    tl.store(p_c + row, c_i, mask=i < queries)

    before = (first - origin) // BLOCK - 1 if CAUSAL else blocks - 1
    at = (bh.to(tl.int64) * blocks + tl.maximum(before, 0)) * (1 + D_OSC)
    _, w, _, total = _sums(p_w, p_n, at, (before >= 0).to(tl.float32), D_OSC, D_V, D_R, DV)
    dz = tl.dot(do, tl.trans(w), input_precision=PRECISION) - c_i[:, None] * total[None, :]
    if CAUSAL:
        v = _rows(p_v + b * v_batch + head * v_head, last, keys, v_token, D_V, DV, True)
        m = _mask(p_mask + b * mask_batch + head * mask_head, last, keys, MASKED)
        e = tl.dot(do.to(v.dtype), tl.trans(v), input_precision=PRECISION) - c_i[:, None]
        e = tl.where((a[None, :] <= a[:, None]) & (m > 0.0)[None, :], e, 0.0)
        r = _rows(p_r + head * r_head, last, keys, D_OSC, D_OSC, D_R, True)
        dz = tl.dot(e, r, dz, input_precision=PRECISION)
    h = _rows(p_h + own * D_OSC, i, queries, D_OSC, D_OSC, D_R, True)
    inverse = _unit(h)
    z = h * inverse[:, None]
    dh = (dz - z * tl.sum(z * dz, 1)[:, None]) * (gain * inverse)[:, None]
    tl.store(
        p_dh + row[:, None] * D_OSC + c[None, :],
        dh,
        mask=(i < queries)[:, None] & (c < D_OSC)[None, :],
    )
    z = gain * z
    out = (bh.to(tl.int64) * tl.num_programs(0) + block) * (1 + D_OSC)
    tl.store(p_s + out * D_V + d, tl.sum(do, 0), mask=d < D_V)
    tl.store(
        p_s + (out + 1 + c)[:, None] * D_V + d[None, :],
        tl.dot(tl.trans(z), do, input_precision=PRECISION),
        mask=(c < D_OSC)[:, None] & (d < D_V)[None, :],
    )
    tl.store(p_t + out, 0.0)
    tl.store(p_t + out + 1 + c, tl.sum(z * c_i[:, None], 0), mask=c < D_OSC)


@triton.jit(do_not_specialize=SIZES)
@no_type_check
def _after(
    p_do, p_v, p_r, p_mask, p_h, p_den, p_c, p_s, p_t, p_dr, p_dv,
    v_batch, v_head, v_token, r_head, mask_batch, mask_head,
    heads, queries, keys, origin, query_blocks, gain,
    CAUSAL: tl.constexpr, MASKED: tl.constexpr, PRECISION: tl.constexpr,
    D_OSC: tl.constexpr, D_V: tl.constexpr, D_R: tl.constexpr, DV: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """dv of a block of keys, and the readout's share of dr: with x_ij = 1 + γ z_i·r_j,

    dv_j = Σ_i x_ij do′_i,  dr_j = Σ_i γ z_i (do′_i·v_j - c_i), over the queries that see key j.
    """
    block, bh = tl.program_id(0), tl.program_id(1)
    b, head = (bh // heads).to(tl.int64), (bh % heads).to(tl.int64)
    own = bh.to(tl.int64) * queries
    start = origin + block * BLOCK
    a, c, d = tl.arange(0, BLOCK), tl.arange(0, D_R), tl.arange(0, DV)
    j = start + a
    inside = (j >= 0) & (j < keys)
    row = bh.to(tl.int64) * keys + j
    m = _mask(p_mask + b * mask_batch + head * mask_head, j, keys, MASKED)
    v = _rows(p_v + b * v_batch + head * v_head, j, keys, v_token, D_V, DV, True)
    r = _rows(p_r + head * r_head, j, keys, D_OSC, D_OSC, D_R, True)

    after = 0
    if CAUSAL:  # the block of queries at the diagonal, and all after it
        offset = keys - queries
        diagonal = (start - offset) // BLOCK if start >= offset else -1
        after = diagonal + 1
    some = (after < query_blocks).to(tl.float32)
    at = (bh.to(tl.int64) * query_blocks + tl.minimum(after, query_blocks - 1)) * (1 + D_OSC)
    s0, s, _, t = _sums(p_s, p_t, at, some, D_OSC, D_V, D_R, DV)
    dv = tl.dot(r, s, input_precision=PRECISION) + s0[None, :]
    dr = tl.dot(v.to(tl.float32), tl.trans(s), input_precision=PRECISION) - t[None, :]
    if CAUSAL:
        i = diagonal * BLOCK + a
        real = (i >= 0) & (i < queries)
        den = tl.load(p_den + own + i, mask=real, other=1.0)
        c_i = tl.load(p_c + own + i, mask=real, other=0.0)
        do = _rows(p_do + own * D_V, i, queries, D_V, D_V, DV, True).to(tl.float32)
        do = (do * (1.0 / den)[:, None]).to(v.dtype)
        h = _rows(p_h + own * D_OSC, i, queries, D_OSC, D_OSC, D_R, True)
        z = h * (gain * _unit(h))[:, None]
        seen = (a[:, None] <= a[None, :]) & real[None, :]
        e = tl.dot(v, tl.trans(do), input_precision=PRECISION) - c_i[None, :]
        dr = tl.dot(tl.where(seen, e, 0.0), z, dr, input_precision=PRECISION)
        x = 1.0 + tl.dot(r, tl.trans(z), input_precision=PRECISION)
        dv = tl.dot(tl.where(seen, x, 0.0).to(v.dtype), do, dv, input_precision=PRECISION)
    tl.store(
        p_dv + row[:, None] * D_V + d[None, :],
        (dv * m[:, None]).to(p_dv.dtype.element_ty),
        mask=inside[:, None] & (d < D_V)[None, :],
    )
    tl.store(
        p_dr + row[:, None] * D_OSC + c[None, :],
        dr * m[:, None],
        mask=inside[:, None] & (c < D_OSC)[None, :],
    )


@triton.jit
@no_type_check
def _along_anchors(
    dh, r, p_dh, p_r, p_mask, i, j, queries, keys, TRANSPOSED: tl.constexpr, EDGE: tl.constexpr,
    MASKED: tl.constexpr, PRECISION: tl.constexpr,
    D_OSC: tl.constexpr, D_R: tl.constexpr,
):  # fmt: skip
    """dw_ij = dh_i·r_j, or its transpose, from packed rows; from float32 at the edge, if better."""
    if EDGE and 3 * D_OSC > D_R:
        dh = _rows(p_dh, i, queries, D_OSC, D_OSC, D_R, True)
        r = _rows(p_r, j, keys, D_OSC, D_OSC, D_R, True)
        r *= _mask(p_mask, j, keys, MASKED)[:, None]
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
        g = _rows(p_g, j, keys, g_token, D_H, DH, EDGE)
        r = _rows(p_packed, j, keys, D_R, D_R, D_R, EDGE)
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
def _queries_backward(
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
    f = _rows(p_f, i, queries, f_token, D_H, DH, True)
    p_dh += own * D_OSC
    dh = _rows(p_packed_dh + own * D_R, i, queries, D_R, D_R, D_R, True)
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
        f = _rows(p_f, i, queries, f_token, D_H, DH, EDGE)
        dh = _rows(p_packed_dh, i, queries, D_R, D_R, D_R, EDGE)
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
def _keys_backward(
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
    g = _rows(p_g + b * g_batch + head * g_head, j, keys, g_token, D_H, DH, True)
    r = _rows(p_packed + b * packed_batch + head * packed_head, j, keys, D_R, D_R, D_R, True)
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
    m = _mask(p_mask, j, keys, MASKED)
    dr = _unpacked(dr, 2 * D_OSC if FAST else 0, D_OSC, D_R)
    dr *= (factor(scale, COUPLING) * m)[:, None]
    at = p_dr + row[:, None] * D_OSC + c[None, :]
    held = inside[:, None] & (c < D_OSC)[None, :]
    if ADD:
        dr += tl.load(at, mask=held)
    tl.store(at, dr, mask=held)
