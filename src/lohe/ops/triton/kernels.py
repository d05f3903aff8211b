"""Kernels of the drive (Eqs. 2 and 3) and, at p = 1, of the whole of Eqs. 2-6.

Notation: i counts queries, j keys; a program works on BLOCK of either and goes through the other in
tiles of STEP. Query i sees the keys j <= i + offset in the causal case, offset = keys - queries.
At p = 1 the readout is linear attention (`ops.linear`): with the sums

    N_i = Σ_j m_j,   P_i = Σ_j m_j r_j,   V_i = Σ_j m_j v_j,   W_i = Σ_j m_j r_j v_jᵀ

over the keys that query i sees (m masks keys), o_i = (V_i + γ z_i W_i) / (N_i + γ z_i·P_i).
N and P are made for every key (`_counts`). Blocks of keys end where blocks of queries do, so V and
W are those of all earlier blocks (`_block_sums`, `_scan`) and a triangle.

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
SIZES += ["counts", "packs", "r_head", "x_batch", "x_head", "mask_batch", "mask_head", "n_batch"]

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
def _column(x, k, WIDTH: tl.constexpr):
    """Column k of a matrix, (rows,)."""
    return tl.sum(tl.where((tl.arange(0, WIDTH) == k)[None, :], x, 0.0), 1)


@triton.jit
@no_type_check
def _unpacked(x, SECOND: tl.constexpr, D_OSC: tl.constexpr, D_R: tl.constexpr):
    """The sum over the copies of a packed product: columns c and SECOND + c, (BLOCK, D_R)."""
    if 3 * D_OSC <= D_R and SECOND > 0:
        k = tl.arange(0, D_R)
        out = tl.zeros_like(x)
        for c in tl.static_range(D_OSC):
            copies = ((k == c) | (k == SECOND + c))[None, :]
            total = tl.sum(tl.where(copies, x, 0.0), 1)
            out += tl.where((k == c)[None, :], total[:, None], 0.0)
        return out
    return x


# --- products with a matrix of d_osc rows ---------------------------------------------------------
# M, (d_osc, columns), is in memory as it is, its rows `step` apart, or TURNED: column n is row n of
# what is there. Up to FEW rows that lie in memory as they are, row by row: a program that does
# little else would wait for the matrix units, which pad to 16 rows.


@triton.jit
@no_type_check
def _whole(p, index, inside, step, TURNED: tl.constexpr, D_OSC: tl.constexpr, D_R: tl.constexpr):
    """M, (D_R, columns); zeros outside."""
    k = tl.arange(0, D_R)
    if TURNED:
        at = p + index[:, None] * step + k[None, :]
        m = tl.load(at, mask=inside[:, None] & (k < D_OSC)[None, :], other=0.0)
        return tl.trans(m)
    else:  # noqa: RET505
        at = p + k[:, None] * step + index[None, :]
        return tl.load(at, mask=(k < D_OSC)[:, None] & inside[None, :], other=0.0)


@triton.jit
@no_type_check
def _times(
    x, p, index, inside, step, TURNED: tl.constexpr,
    PRECISION: tl.constexpr, D_OSC: tl.constexpr, D_R: tl.constexpr,
):  # fmt: skip
    """x M: (rows, D_R) to (rows, columns)."""
    if D_OSC <= FEW and not TURNED:
        out = tl.zeros((x.shape[0], index.shape[0]), tl.float32)
        for k in tl.static_range(D_OSC):
            m = tl.load(p + k * step + index, mask=inside, other=0.0)
            out += _column(x, k, D_R)[:, None] * m[None, :]
        return out
    else:  # noqa: RET505
        m = _whole(p, index, inside, step, TURNED, D_OSC, D_R)
        return tl.dot(x, m, input_precision=PRECISION)


@triton.jit
@no_type_check
def _along(
    y, p, index, inside, step, TURNED: tl.constexpr,
    PRECISION: tl.constexpr, D_OSC: tl.constexpr, D_R: tl.constexpr,
):  # fmt: skip
    """y Mᵀ: (rows, columns) to (rows, D_R)."""
    if D_OSC <= FEW and not TURNED:
        c = tl.arange(0, D_R)
        out = tl.zeros((y.shape[0], D_R), tl.float32)
        for k in tl.static_range(D_OSC):
            m = tl.load(p + k * step + index, mask=inside, other=0.0)
            out += tl.where((c == k)[None, :], tl.sum(y * m[None, :], 1)[:, None], 0.0)
        return out
    else:  # noqa: RET505
        m = _whole(p, index, inside, step, TURNED, D_OSC, D_R)
        return tl.dot(y, tl.trans(m), input_precision=PRECISION)


# --- anchors as the matrix units read them -------------------------------------------------------


@triton.jit
@no_type_check
def _pack_rows(
    part, bh, p_x, p_mask, p_out, x_batch, x_head, mask_batch, mask_head, heads, count,
    MASKED: tl.constexpr, MIDDLE: tl.constexpr, D_OSC: tl.constexpr, D_R: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Rows of float32 in the dtype of `p_out`, D_R wide, and what rounding lost of them.

    MIDDLE: the second copy holds what was lost and the third the rounded rows again; else the other
    way round. A masked row is 0.
    """
    b, h = (bh // heads).to(tl.int64), (bh % heads).to(tl.int64)
    i, k = part * BLOCK + tl.arange(0, BLOCK), tl.arange(0, D_R)
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


@triton.jit(do_not_specialize=SIZES)
@no_type_check
def _pack(
    p_x, p_mask, p_out, x_batch, x_head, mask_batch, mask_head, heads, count,
    MASKED: tl.constexpr, MIDDLE: tl.constexpr, D_OSC: tl.constexpr, D_R: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """`_pack_rows` by itself."""
    _pack_rows(
        tl.program_id(0), tl.program_id(1), p_x, p_mask, p_out,
        x_batch, x_head, mask_batch, mask_head, heads, count, MASKED, MIDDLE, D_OSC, D_R, BLOCK,
    )  # fmt: skip


# --- sums over keys -----------------------------------------------------------------------------


@triton.jit
@no_type_check
def _counts(
    part, bh, p_r, p_mask, p_n, r_head, mask_batch, mask_head, heads, keys,
    MASKED: tl.constexpr, D_OSC: tl.constexpr, FEATURES: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """N and P up to each key: Σ m [1; r], FEATURES components of it."""
    b, h = (bh // heads).to(tl.int64), (bh % heads).to(tl.int64)
    k = part * FEATURES + tl.arange(0, FEATURES)
    p_r += h * r_head + k[None, :] - 1
    p_n += ((bh.to(tl.int64) * (1 + D_OSC) + k) * keys)[None, :]
    before = tl.zeros((FEATURES,), tl.float32)
    for start in range(0, keys, CHUNK):
        j = start + tl.arange(0, CHUNK)
        inside = (j < keys)[:, None] & (k <= D_OSC)[None, :]
        x = tl.load(p_r + j[:, None] * D_OSC, mask=inside & (k > 0)[None, :], other=1.0)
        x *= _mask(p_mask + b * mask_batch + h * mask_head, j, keys, MASKED)[:, None]
        tl.store(p_n + j[:, None], tl.cumsum(x, 0) + before[None, :], mask=inside)
        before += tl.sum(x, 0)


@triton.jit
@no_type_check
def _up_to(p_n, last, keys, D_OSC: tl.constexpr, D_R: tl.constexpr):
    """P up to the keys `last`, (BLOCK, D_R); 0 outside."""
    k = tl.arange(0, D_R)
    at = p_n + (1 + k)[None, :] * keys + last[:, None]
    inside = ((last >= 0) & (last < keys))[:, None] & (k < D_OSC)[None, :]
    return tl.load(at, mask=inside, other=0.0)


@triton.jit
@no_type_check
def _block_sums(
    block, bh, p_v, p_r, p_mask, p_w,
    v_batch, v_head, v_token, r_head, mask_batch, mask_head,
    heads, keys, origin, blocks,
    D_OSC: tl.constexpr, D_V: tl.constexpr, D_R: tl.constexpr, DV: tl.constexpr,
    MASKED: tl.constexpr, PRECISION: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """V and W of a block of keys: Σ_j m_j [1; r_j] v_jᵀ, (1 + d_osc, d_v)."""
    b, h = (bh // heads).to(tl.int64), (bh % heads).to(tl.int64)
    j = origin + block * BLOCK + tl.arange(0, BLOCK)
    c, d = tl.arange(0, D_R), tl.arange(0, DV)
    p_r += h * r_head
    v = _rows(p_v + b * v_batch + h * v_head, j, keys, v_token, D_V, DV, True).to(tl.float32)
    if MASKED:
        v *= _mask(p_mask + b * mask_batch + h * mask_head, j, keys, MASKED)[:, None]
    p_w += (bh.to(tl.int64) * blocks + block) * (1 + D_OSC) * D_V
    tl.store(p_w + d, tl.sum(v, 0), mask=d < D_V)
    if D_OSC <= FEW:
        for k in tl.static_range(D_OSC):
            r = tl.load(p_r + j * D_OSC + k, mask=(j >= 0) & (j < keys), other=0.0)
            tl.store(p_w + (1 + k) * D_V + d, tl.sum(v * r[:, None], 0), mask=d < D_V)
    else:
        r = _rows(p_r, j, keys, D_OSC, D_OSC, D_R, True)
        w = tl.dot(tl.trans(r), v, input_precision=PRECISION)
        rows = p_w + (1 + c)[:, None] * D_V + d[None, :]
        tl.store(rows, w, mask=(c < D_OSC)[:, None] & (d < D_V)[None, :])


@triton.jit(do_not_specialize=SIZES)
@no_type_check
def _prepare(
    p_v, p_r, p_mask, p_w, p_n, p_packed,
    v_batch, v_head, v_token, r_head, mask_batch, mask_head,
    heads, keys, origin, blocks, counts, packs,
    D_OSC: tl.constexpr, D_V: tl.constexpr, D_R: tl.constexpr, DV: tl.constexpr,
    MASKED: tl.constexpr, PRECISION: tl.constexpr, BLOCK: tl.constexpr,
    FEATURES: tl.constexpr, CHUNK: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """What needs neither f nor g, in one launch: `counts` programs for N and P, whose way is the
    longest, `packs` for the anchors, the others for sums of blocks."""
    program = tl.program_id(0)
    if program < counts:
        parts: tl.constexpr = (D_OSC + FEATURES) // FEATURES
        _counts(
            program % parts, program // parts, p_r, p_mask, p_n,
            r_head, mask_batch, mask_head, heads, keys, MASKED, D_OSC, FEATURES, CHUNK,
        )  # fmt: skip
    elif program < counts + packs:
        program -= counts
        tiles = tl.cdiv(keys, ROWS)
        _pack_rows(
            program % tiles, program // tiles, p_r, p_mask, p_packed,
            0, r_head, mask_batch, mask_head, heads, keys, MASKED, True, D_OSC, D_R, ROWS,
        )  # fmt: skip
    else:
        program -= counts + packs
        _block_sums(
            program % blocks, program // blocks, p_v, p_r, p_mask, p_w,
            v_batch, v_head, v_token, r_head, mask_batch, mask_head,
            heads, keys, origin, blocks, D_OSC, D_V, D_R, DV, MASKED, PRECISION, BLOCK,
        )  # fmt: skip


@triton.jit(do_not_specialize=SIZES)
@no_type_check
def _scan(
    p_w, p_n, blocks,
    D_V: tl.constexpr, DV: tl.constexpr, FEATURES: tl.constexpr, COUNTS: tl.constexpr,
    REVERSE: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """Running sums over the blocks, each block included; from the last one if REVERSE.

    COUNTS: also of p_n, one number where p_w has D_V.
    """
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
        tl.store(at, tl.cumsum(w, 0) + w_before[None, :], mask=inside)
        w_before += tl.sum(w, 0)
        if COUNTS:
            n = tl.load(p_n + row, mask=k < blocks, other=0.0)
            tl.store(p_n + row, tl.cumsum(n, 0) + n_before, mask=k < blocks)
            n_before += tl.sum(n, 0)


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
        d = tl.arange(0, DV)
        if not CAUSAL:
            last = tl.zeros_like(last) + (keys - 1)
        p_n += b * n_batch + head * keys * (1 + D_OSC)
        seen = (last >= 0) & (last < keys)
        counts = tl.load(p_n + last, mask=seen, other=0.0)
        sums = _up_to(p_n, last, keys, D_OSC, D_R)
        if COUPLING == "relu":
            h += RELU_FLOOR * sums
        z = h * (gain * _unit(h))[:, None]
        den = tl.where(counts > 0.0, counts + tl.sum(z * sums, 1), 1.0)
        p_w += at * D_V
        w0 = tl.load(p_w + d, mask=d < D_V, other=0.0)
        o = _times(z, p_w + D_V, d, d < D_V, D_V, False, PRECISION, D_OSC, D_R)
        o = some * (w0[None, :] + o)
        if CAUSAL:
            v = _rows(p_v + b * v_batch + head * v_head, last, keys, v_token, D_V, DV, True)
            p_r += head * r_head
            x = 1.0 + _times(z, p_r, last, seen, D_OSC, True, PRECISION, D_OSC, D_R)
            m = _mask(p_mask, last, keys, MASKED)
            x = tl.where((a[None, :] <= a[:, None]) & (m > 0.0)[None, :], x, 0.0)
            o = tl.dot(x.to(v.dtype), v, o, input_precision=PRECISION)
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
    v_batch, v_head, v_token, r_head, mask_batch, mask_head, n_batch,
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
    inverse = 1.0 / tl.load(p_den + row, mask=i < queries, other=1.0)
    do = _rows(p_do + own * D_V, i, queries, D_V, D_V, DV, True)
    o = _rows(p_o + own * D_V, i, queries, D_V, D_V, DV, True)
    wide = do.to(tl.float32) * inverse[:, None]
    c_i = tl.sum(wide * o.to(tl.float32), 1)
    tl.store(p_c + row, c_i, mask=i < queries)

    before = (first - origin) // BLOCK - 1 if CAUSAL else blocks - 1
    some = (before >= 0).to(tl.float32)
    at = (bh.to(tl.int64) * blocks + tl.maximum(before, 0)) * (1 + D_OSC)
    p_n += b * n_batch + head * keys * (1 + D_OSC)
    end = first - 1 if CAUSAL else keys - 1  # the last key of those sums
    total = tl.load(p_n + (1 + c) * keys + end, mask=c < tl.where(end >= 0, D_OSC, 0), other=0.0)
    dz = _along(wide, p_w + (at + 1) * D_V, d, d < D_V, D_V, False, PRECISION, D_OSC, D_R)
    dz = some * dz - c_i[:, None] * total[None, :]
    if CAUSAL:
        v = _rows(p_v + b * v_batch + head * v_head, last, keys, v_token, D_V, DV, True)
        m = _mask(p_mask + b * mask_batch + head * mask_head, last, keys, MASKED)
        e = tl.dot(do, tl.trans(v), input_precision=PRECISION) * inverse[:, None] - c_i[:, None]
        e = tl.where((a[None, :] <= a[:, None]) & (m > 0.0)[None, :], e, 0.0)
        inside = (last >= 0) & (last < keys)
        dz += _along(e, p_r + head * r_head, last, inside, D_OSC, True, PRECISION, D_OSC, D_R)
    h = _rows(p_h + own * D_OSC, i, queries, D_OSC, D_OSC, D_R, True)
    unit = _unit(h)
    z = h * unit[:, None]
    dh = (dz - z * tl.sum(z * dz, 1)[:, None]) * (gain * unit)[:, None]
    tl.store(
        p_dh + row[:, None] * D_OSC + c[None, :],
        dh,
        mask=(i < queries)[:, None] & (c < D_OSC)[None, :],
    )
    z = gain * z
    out = (bh.to(tl.int64) * tl.num_programs(0) + block) * (1 + D_OSC)
    tl.store(p_s + out * D_V + d, tl.sum(wide, 0), mask=d < D_V)
    if D_OSC <= FEW:
        for k in tl.static_range(D_OSC):
            sums = tl.sum(wide * _column(z, k, D_R)[:, None], 0)
            tl.store(p_s + (out + 1 + k) * D_V + d, sums, mask=d < D_V)
    else:
        tl.store(
            p_s + (out + 1 + c)[:, None] * D_V + d[None, :],
            tl.dot(tl.trans(z), wide, input_precision=PRECISION),
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
    s0 = tl.load(p_s + at * D_V + d, mask=d < D_V, other=0.0)
    t = tl.load(p_t + at + 1 + c, mask=c < D_OSC, other=0.0)
    p_s += (at + 1) * D_V
    dr = _along(v.to(tl.float32), p_s, d, d < D_V, D_V, False, PRECISION, D_OSC, D_R)
    dr = some * (dr - t[None, :])
    most = 1.0
    if CAUSAL:
        i = diagonal * BLOCK + a
        real = (i >= 0) & (i < queries)
        inverse = 1.0 / tl.load(p_den + own + i, mask=real, other=1.0)
        c_i = tl.load(p_c + own + i, mask=real, other=0.0)
        do = _rows(p_do + own * D_V, i, queries, D_V, D_V, DV, True)
        p_h += own * D_OSC
        unit = gain * _unit(_rows(p_h, i, queries, D_OSC, D_OSC, D_R, True))
        seen = (a[:, None] <= a[None, :]) & real[None, :]
        e = tl.dot(v, tl.trans(do), input_precision=PRECISION) * inverse[None, :] - c_i[None, :]
        e = tl.where(seen, e * unit[None, :], 0.0)
        dr += _along(e, p_h, i, real, D_OSC, True, PRECISION, D_OSC, D_R)
        # do is exact in 16 bits and do / den is not; den is about the number of keys
        most = tl.maximum(diagonal * BLOCK + BLOCK + keys - queries, 1).to(tl.float32)
    tl.store(
        p_dr + row[:, None] * D_OSC + c[None, :],
        dr * m[:, None],
        mask=inside[:, None] & (c < D_OSC)[None, :],
    )
    dv = _times(r, p_s, d, d < D_V, D_V, False, PRECISION, D_OSC, D_R)
    dv = (most * some) * (s0[None, :] + dv)
    if CAUSAL:
        x = 1.0 + _times(r, p_h, i, real, D_OSC, True, PRECISION, D_OSC, D_R) * unit[None, :]
        x = tl.where(seen, x * (most * inverse)[None, :], 0.0)
        dv = tl.dot(x.to(v.dtype), do, dv, input_precision=PRECISION)
    tl.store(
        p_dv + row[:, None] * D_V + d[None, :],
        (dv * (m * (1.0 / most))[:, None]).to(p_dv.dtype.element_ty),
        mask=inside[:, None] & (d < D_V)[None, :],
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
