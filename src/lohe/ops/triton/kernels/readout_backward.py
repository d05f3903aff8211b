"""Back through the readout at p = 1, Eqs. 6-4: dh, dv and their share of dr."""
# Triton is not installed everywhere, and its decorator does not tell how a kernel is launched
# pyright: reportMissingImports=false

from typing import no_type_check

import triton
import triton.language as tl

from lohe.ops.triton.kernels.rows import (
    FEW,
    SIZES,
    UP,
    along,
    column,
    inverse_root,
    load_mask,
    load_pair,
    load_rows,
    spread_pair,
    times,
)


@triton.jit(do_not_specialize=SIZES)
@no_type_check
def readout_queries(
    p_do, p_o, p_v, p_r, p_mask, p_w, p_n, p_h, p_den, p_dh, p_c, p_s, p_t,
    v_batch, v_head, v_token, r_head, mask_batch, mask_head, n_batch,
    heads, queries, keys, origin, blocks, gain,
    CAUSAL: tl.constexpr, MASKED: tl.constexpr, PRECISION: tl.constexpr,
    D_OSC: tl.constexpr, D_V: tl.constexpr, D_R: tl.constexpr, DV: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Back through Eqs. 6-4 for a block of queries: dh, 1 / den, c_i = do′_i·o_i (do′ = do / den),

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
    inverse = 1.0 / tl.abs(den)
    do = load_rows(p_do + own * D_V, i, queries, D_V, D_V, DV, True)
    o = load_rows(p_o + own * D_V, i, queries, D_V, D_V, DV, True)
    wide = do.to(tl.float32) * inverse[:, None]
    c_i = tl.sum(wide * o.to(tl.float32), 1)
    tl.store(p_c + 2 * row, inverse, mask=i < queries)
    tl.store(p_c + 2 * row + 1, c_i, mask=i < queries)

    before = (first - origin) // BLOCK - 1 if CAUSAL else blocks - 1
    some = (before >= 0).to(tl.float32)
    at = (bh.to(tl.int64) * blocks + tl.maximum(before, 0)) * (1 + D_OSC)
    p_n += b * n_batch + head * keys * (1 + D_OSC)
    end = first - 1 if CAUSAL else keys - 1  # the last key of those sums
    if D_OSC == 2:
        w0 = tl.load(p_w + (at + 1) * D_V + d, mask=d < D_V, other=0.0)
        w1 = tl.load(p_w + (at + 2) * D_V + d, mask=d < D_V, other=0.0)
        total0, total1 = (
            tl.load(p_n + keys + end, mask=end >= 0, other=0.0),
            tl.load(p_n + 2 * keys + end, mask=end >= 0, other=0.0),
        )
        dz0 = some * tl.sum(wide * w0[None, :], 1) - c_i * total0
        dz1 = some * tl.sum(wide * w1[None, :], 1) - c_i * total1
    else:
        inside = c < tl.where(end >= 0, D_OSC, 0)
        total = tl.load(p_n + (1 + c) * keys + end, mask=inside, other=0.0)
        dz = along(wide, p_w + (at + 1) * D_V, d, d < D_V, D_V, False, PRECISION, D_OSC, D_R)
        dz = some * dz - c_i[:, None] * total[None, :]
    if CAUSAL:
        v = load_rows(p_v + b * v_batch + head * v_head, last, keys, v_token, D_V, DV, True)
        m = load_mask(p_mask + b * mask_batch + head * mask_head, last, keys, MASKED)
        e = tl.dot(do, tl.trans(v), input_precision=PRECISION) * inverse[:, None] - c_i[:, None]
        e = tl.where((a[None, :] <= a[:, None]) & (m > 0.0)[None, :], e, 0.0)
        inside = (last >= 0) & (last < keys)
        p_r += head * r_head
        if D_OSC == 2:
            r0, r1 = spread_pair(p_r, last, keys)
            dz0 += tl.sum(e * r0[None, :], 1)
            dz1 += tl.sum(e * r1[None, :], 1)
        else:
            dz += along(e, p_r, last, inside, D_OSC, True, PRECISION, D_OSC, D_R)

    out = (bh.to(tl.int64) * tl.num_programs(0) + block) * (1 + D_OSC)
    tl.store(p_s + out * D_V + d, tl.sum(wide, 0), mask=d < D_V)
    tl.store(p_t + out, 0.0)
    lifted = gain * tl.where(den < 0.0, UP, 1.0)
    if D_OSC == 2:
        h0, h1 = load_pair(p_h + 2 * own, i, queries)
        unit = inverse_root(h0 * h0 + h1 * h1)
        z0, z1 = h0 * unit, h1 * unit
        unit *= lifted
        inward = z0 * dz0 + z1 * dz1
        tl.store(p_dh + 2 * row, (dz0 - z0 * inward) * unit, mask=i < queries)
        tl.store(p_dh + 2 * row + 1, (dz1 - z1 * inward) * unit, mask=i < queries)
        z0, z1 = gain * z0, gain * z1
        p_s += (out + 1) * D_V + d
        tl.store(p_s, tl.sum(wide * z0[:, None], 0), mask=d < D_V)
        tl.store(p_s + D_V, tl.sum(wide * z1[:, None], 0), mask=d < D_V)
        tl.store(p_t + out + 1, tl.sum(z0 * c_i, 0))
        tl.store(p_t + out + 2, tl.sum(z1 * c_i, 0))
    else:
        h = load_rows(p_h + own * D_OSC, i, queries, D_OSC, D_OSC, D_R, True)
        unit = inverse_root(tl.sum(h * h, 1))
        z = h * unit[:, None]
        dh = (dz - z * tl.sum(z * dz, 1)[:, None]) * (lifted * unit)[:, None]
        tl.store(
            p_dh + row[:, None] * D_OSC + c[None, :],
            dh,
            mask=(i < queries)[:, None] & (c < D_OSC)[None, :],
        )
        z = gain * z
        if D_OSC <= FEW:
            for k in tl.static_range(D_OSC):
                sums = tl.sum(wide * column(z, k, D_R)[:, None], 0)
                tl.store(p_s + (out + 1 + k) * D_V + d, sums, mask=d < D_V)
        else:
            tl.store(
                p_s + (out + 1 + c)[:, None] * D_V + d[None, :],
                tl.dot(tl.trans(z), wide, input_precision=PRECISION),
                mask=(c < D_OSC)[:, None] & (d < D_V)[None, :],
            )
        tl.store(p_t + out + 1 + c, tl.sum(z * c_i[:, None], 0), mask=c < D_OSC)


@triton.jit(do_not_specialize=SIZES)
@no_type_check
def readout_keys(
    p_do, p_v, p_r, p_mask, p_h, p_c, p_s, p_t, p_dr, p_dv,
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
    m = load_mask(p_mask + b * mask_batch + head * mask_head, j, keys, MASKED)
    v = load_rows(p_v + b * v_batch + head * v_head, j, keys, v_token, D_V, DV, True)
    p_r += head * r_head
    if D_OSC == 2:
        r0, r1 = load_pair(p_r, j, keys)
    else:
        r = load_rows(p_r, j, keys, D_OSC, D_OSC, D_R, True)

    after = 0
    if CAUSAL:  # the block of queries at the diagonal, and all after it
        offset = keys - queries
        diagonal = (start - offset) // BLOCK if start >= offset else -1
        after = diagonal + 1
    some = (after < query_blocks).to(tl.float32)
    at = (bh.to(tl.int64) * query_blocks + tl.minimum(after, query_blocks - 1)) * (1 + D_OSC)
    p_s += (at + 1) * D_V
    p_t += at + 1
    if D_OSC == 2:
        s1 = tl.load(p_s + d, mask=d < D_V, other=0.0)
        s2 = tl.load(p_s + D_V + d, mask=d < D_V, other=0.0)
        dr0 = some * (tl.sum(v.to(tl.float32) * s1[None, :], 1) - tl.load(p_t))
        dr1 = some * (tl.sum(v.to(tl.float32) * s2[None, :], 1) - tl.load(p_t + 1))
    else:
        t = tl.load(p_t + c, mask=c < D_OSC, other=0.0)
        dr = along(v.to(tl.float32), p_s, d, d < D_V, D_V, False, PRECISION, D_OSC, D_R)
        dr = some * (dr - t[None, :])
    most = 1.0
    if CAUSAL:
        i = diagonal * BLOCK + a
        real = (i >= 0) & (i < queries)
        inverse, c_i = spread_pair(p_c + 2 * own, i, queries)
        do = load_rows(p_do + own * D_V, i, queries, D_V, D_V, DV, True)
        p_h += own * D_OSC
        seen = (a[:, None] <= a[None, :]) & real[None, :]
        e = tl.dot(v, tl.trans(do), input_precision=PRECISION) * inverse[None, :] - c_i[None, :]
        # do is exact in 16 bits and do / den is not; den is about the number of keys
        most = tl.maximum(diagonal * BLOCK + BLOCK + keys - queries, 1).to(tl.float32)
        if D_OSC == 2:
            z0, z1 = spread_pair(p_h, i, queries)
            unit = gain * inverse_root(z0 * z0 + z1 * z1)
            z0, z1 = z0 * unit, z1 * unit
            e = tl.where(seen, e, 0.0)
            dr0 += tl.sum(e * z0[None, :], 1)
            dr1 += tl.sum(e * z1[None, :], 1)
            x = 1.0 + r0[:, None] * z0[None, :] + r1[:, None] * z1[None, :]
        else:
            h = load_rows(p_h, i, queries, D_OSC, D_OSC, D_R, True)
            unit = gain * inverse_root(tl.sum(h * h, 1))
            e = tl.where(seen, e * unit[None, :], 0.0)
            dr += along(e, p_h, i, real, D_OSC, True, PRECISION, D_OSC, D_R)
            x = 1.0 + times(r, p_h, i, real, D_OSC, True, PRECISION, D_OSC, D_R) * unit[None, :]
        x = tl.where(seen, x * (most * inverse)[None, :], 0.0)
    if D_OSC == 2:
        tl.store(p_dr + 2 * row, dr0 * m, mask=inside)
        tl.store(p_dr + 2 * row + 1, dr1 * m, mask=inside)
    else:
        tl.store(
            p_dr + row[:, None] * D_OSC + c[None, :],
            dr * m[:, None],
            mask=inside[:, None] & (c < D_OSC)[None, :],
        )
    dv = tl.zeros((BLOCK, DV), tl.float32)
    if CAUSAL:
        dv = tl.dot(x.to(v.dtype), do, dv, input_precision=PRECISION)
    if D_OSC == 2:
        s1 = tl.load(p_s + d, mask=d < D_V, other=0.0)  # once more: kept, they take registers
        s2 = tl.load(p_s + D_V + d, mask=d < D_V, other=0.0)
        later = r0[:, None] * s1[None, :] + r1[:, None] * s2[None, :]
    else:
        later = times(r, p_s, d, d < D_V, D_V, False, PRECISION, D_OSC, D_R)
    s0 = tl.load(p_s - D_V + d, mask=d < D_V, other=0.0)
    dv = dv * (1.0 / most) + some * (s0[None, :] + later)
    tl.store(
        p_dv + row[:, None] * D_V + d[None, :],
        (dv * m[:, None]).to(p_dv.dtype.element_ty),
        mask=inside[:, None] & (d < D_V)[None, :],
    )
