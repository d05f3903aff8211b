"""The kernels of `sharp`, whose docstring has the equations and says what is rounded.

i counts queries, j keys; a tile is [BM, BN] in the kernels over rows and [BN, BM] in the one over
columns. `no_type_check` keeps the tests' shape checks out of what Triton reads.
"""
# Triton is not installed everywhere, and its decorator does not tell how a kernel is launched
# pyright: reportMissingImports=false, reportIndexIssue=false, reportCallIssue=false

from typing import no_type_check

import triton
import triton.language as tl

# sizes do not make another kernel, nor do strides of masks but along the keys
SIZES = ["heads", "queries", "keys", "tokens", "key_b", "key_h", "pair_b", "pair_h", "pair_i"]


# --- parts of the kernels -----------------------------------------------------------------------


@triton.jit
@no_type_check
def _operand(
    p_x, o_rows, m_rows, divisor,
    LOW: tl.constexpr, D: tl.constexpr, K: tl.constexpr, SPLIT: tl.constexpr, DTYPE: tl.constexpr,
):  # fmt: skip
    """x / divisor as an operand of z·r, [rows, K]: once, or (SPLIT) as three parts of D columns,
    of which number LOW is what the rounding to float16 left over and the others are the rounded."""
    o_k = tl.arange(0, K)
    m_k = o_k < (3 * D if SPLIT else D)
    p_x = p_x + o_rows[:, None] * D + (o_k % D)[None, :]
    x = tl.load(p_x, mask=m_rows[:, None] & m_k[None, :], other=0.0) / divisor
    b_x = x.to(DTYPE)
    if SPLIT:
        b_low = (x - b_x.to(tl.float32)).to(DTYPE)
        b_x = tl.where((o_k // D == LOW)[None, :], b_low, b_x)
    return b_x


@triton.jit
@no_type_check
def _tile(p_x, o_rows, rows, step, V: tl.constexpr, VP: tl.constexpr, EDGE: tl.constexpr):
    """Rows of a matrix with V columns, [rows, VP]; EDGE where they may lie beyond the last."""
    o_v = tl.arange(0, VP)
    p_x = p_x + o_rows[:, None] * step + o_v[None, :]
    if EDGE and V != VP:
        b_x = tl.load(p_x, mask=(o_rows < rows)[:, None] & (o_v < V)[None, :], other=0.0)
    elif EDGE:
        b_x = tl.load(p_x, mask=(o_rows < rows)[:, None], other=0.0)
    elif V != VP:
        b_x = tl.load(p_x, mask=(o_v < V)[None, :], other=0.0)
    else:
        b_x = tl.load(p_x)
    return b_x


@triton.jit
@no_type_check
def _whole_power(x, N: tl.constexpr):
    """x^N for 1 <= N <= 31 by squaring: before each step y = x to the leading bits of N."""
    y = x
    for k in tl.static_range(1, 6):
        if (N >> (6 - k)) > 0:
            y = y * y
            if ((N >> (5 - k)) & 1) == 1:
                y = y * x
    return y


@triton.jit
@no_type_check
def _power(c, power, POWER: tl.constexpr):
    """c^p, also at c = 0."""
    return _whole_power(c, POWER) if POWER > 0 else tl.exp2(power * tl.log2(c))


@triton.jit
@no_type_check
def _slope(c, power, POWER: tl.constexpr):
    """c^(p-1), and 0 at c = 0, where the clamp lets nothing through."""
    if POWER == 1:
        y = tl.where(c > 0, 1.0, 0.0)
    elif POWER > 1:
        y = _whole_power(c, POWER - 1)
    else:
        y = tl.where(c > 0, tl.exp2((power - 1) * tl.log2(c)), 0.0)
    return y


@triton.jit
@no_type_check
def _weight(
    b_x, b_slope, b_shift, o_i, o_j, queries, keys, p_key, key_j, p_pair, pair_i, pair_j,
    EDGE: tl.constexpr, CAUSAL: tl.constexpr, KEY: tl.constexpr, PAIR: tl.constexpr,
):  # fmt: skip
    """max(0, slope x + shift), 0 where masked; a NaN stays one."""
    c = tl.maximum(b_x * b_slope + b_shift, 0.0, propagate_nan=tl.PropagateNan.ALL)
    if EDGE:
        m = o_j < keys
        if CAUSAL:
            m = m & (o_j <= o_i + (keys - queries))
        c = tl.where(m, c, 0.0)
    if KEY:
        m = tl.load(p_key + o_j.to(tl.int64) * key_j, mask=o_j < keys, other=0)
        c = tl.where(m != 0, c, 0.0)
    if PAIR:
        p_pair = p_pair + o_i.to(tl.int64) * pair_i + o_j.to(tl.int64) * pair_j
        m = tl.load(p_pair, mask=(o_i < queries) & (o_j < keys), other=0)
        c = tl.where(m != 0, c, 0.0)
    return c


# --- kernels ------------------------------------------------------------------------------------


@triton.jit(do_not_specialize=SIZES)
@no_type_check
def _pack(
    p_x,
    p_divisor,
    p_out,
    tokens,
    D: tl.constexpr,
    K: tl.constexpr,
    SPLIT: tl.constexpr,
    ROWS: tl.constexpr,
):
    """The anchors of a head over a number of its own, as one operand of a product."""
    n = tl.cdiv(tokens, ROWS)
    i_h = (tl.program_id(0) // n).to(tl.int64)
    o_j = tl.program_id(0) % n * ROWS + tl.arange(0, ROWS)
    divisor = tl.load(p_divisor + i_h)
    divisor = tl.where(divisor > 0, divisor, 1.0)
    p_x += i_h * tokens * D
    p_out += i_h * tokens * K
    DTYPE: tl.constexpr = p_out.dtype.element_ty
    b_x = _operand(p_x, o_j, o_j < tokens, divisor, 1, D, K, SPLIT, DTYPE)
    tl.store(p_out + o_j[:, None] * K + tl.arange(0, K)[None, :], b_x, mask=o_j[:, None] < tokens)


@triton.jit(do_not_specialize=SIZES)
@no_type_check
def _forward(
    p_z, p_r, p_v, p_gain, p_power, p_longest, p_key, p_pair, p_o, p_s, heads, queries, keys, v_b,
    v_h, v_j, key_b, key_h, key_j, pair_b, pair_h, pair_i, pair_j,
    D: tl.constexpr, K: tl.constexpr, V: tl.constexpr, VP: tl.constexpr, POWER: tl.constexpr,
    SPLIT: tl.constexpr, CAUSAL: tl.constexpr, KEY: tl.constexpr, PAIR: tl.constexpr,
    PRECISION: tl.constexpr, LIFT: tl.constexpr, LEAST: tl.constexpr, BM: tl.constexpr,
    BN: tl.constexpr,
):  # fmt: skip
    """o and s of BM queries."""
    n = tl.cdiv(queries, BM)
    i_bh = (tl.program_id(0) // n).to(tl.int64)
    i_b, i_h = i_bh // heads, i_bh % heads
    i_m = n - 1 - tl.program_id(0) % n  # the longest rows of a causal problem first
    o_i = i_m * BM + tl.arange(0, BM)
    o_n, o_v = tl.arange(0, BN), tl.arange(0, VP)
    p_r += i_h * keys * K
    p_v += i_b * v_b + i_h * v_h
    p_key += i_b * key_b + i_h * key_h
    p_pair += i_b * pair_b + i_h * pair_h
    DTYPE: tl.constexpr = p_v.dtype.element_ty
    gain, power = tl.load(p_gain + i_h), tl.load(p_power + i_h)
    longest = tl.load(p_longest + i_h)
    b_z = _operand(
        *(p_z + i_bh * queries * D, o_i, o_i < queries, 1.0),
        *(2, D, K, SPLIT, p_r.dtype.element_ty),
    )  # [BM, K]

    # keys before `whole` make tiles that are allowed in full, those up to `end` in part
    end, whole = keys, keys
    if CAUSAL:
        end = tl.minimum(keys, (i_m + 1) * BM + keys - queries)
        whole = tl.minimum(keys, i_m * BM + keys - queries + 1)
    whole = tl.maximum(whole, 0) // BN * BN

    # c / bound = slope x + shift, where x = z·r / longest
    shift = tl.exp2(LIFT / power) / (1 + tl.abs(gain) * longest)
    slope = gain * longest * shift
    b_total = tl.zeros([BM], tl.float32)
    b_o = tl.zeros([BM, VP], tl.float32)
    for part in tl.static_range(2):
        for start in range(0 if part == 0 else whole, whole if part == 0 else end, BN):
            o_j = start + o_n
            b_r = _tile(p_r, o_j, keys, K, K, K, part == 1)  # [BN, K]
            b_x = tl.dot(b_z, tl.trans(b_r), input_precision="tf32x3")  # [BM, BN]
            b_c = _weight(
                *(b_x, slope, shift, o_i[:, None], o_j[None, :], queries, keys),
                *(p_key, key_j, p_pair, pair_i, pair_j, part == 1, CAUSAL, KEY, PAIR),
            )
            b_a = _power(b_c, power, POWER)
            b_total += tl.sum(b_a, 1)
            b_v = _tile(p_v, o_j, keys, v_j, V, VP, part == 1)  # [BN, VP]
            b_o = tl.dot(b_a.to(DTYPE), b_v, b_o, input_precision=PRECISION)
    b_shift = tl.zeros([BM], tl.float32) + shift
    b_alive = b_total >= LEAST

    if tl.min(tl.where((o_i < queries) & (b_total < LEAST), 0, 1), 0) == 0:
        # some row is nothing, or nearly, beside the bound: all of this block by its own maxima
        b_top = tl.zeros([BM], tl.float32)
        for start in range(0, end, BN):
            o_j = start + o_n
            b_r = _tile(p_r, o_j, keys, K, K, K, True)
            b_x = tl.dot(b_z, tl.trans(b_r), input_precision="tf32x3")
            b_c = _weight(
                *(b_x, gain * longest, 1.0, o_i[:, None], o_j[None, :], queries, keys),
                *(p_key, key_j, p_pair, pair_i, pair_j, True, CAUSAL, KEY, PAIR),
            )
            b_top = tl.maximum(b_top, tl.max(b_c, 1))
        # a row that vanishes weighs its allowed keys alike: 0 x + 1
        b_alive = b_top > 0
        b_shift = tl.where(b_alive, 1 / tl.where(b_alive, b_top, 1.0), 1.0)
        b_slope = tl.where(b_alive, gain * longest * b_shift, 0.0)
        b_total = tl.zeros([BM], tl.float32)
        b_o = tl.zeros([BM, VP], tl.float32)
        for start in range(0, end, BN):
            o_j = start + o_n
            b_r = _tile(p_r, o_j, keys, K, K, K, True)
            b_x = tl.dot(b_z, tl.trans(b_r), input_precision="tf32x3")
            b_c = _weight(
                *(b_x, b_slope[:, None], b_shift[:, None], o_i[:, None], o_j[None, :]),
                *(queries, keys, p_key, key_j, p_pair, pair_i, pair_j, True, CAUSAL, KEY, PAIR),
            )
            b_a = _power(b_c, power, POWER)
            b_total += tl.sum(b_a, 1)
            b_v = _tile(p_v, o_j, keys, v_j, V, VP, True)
            b_o = tl.dot(b_a.to(DTYPE), b_v, b_o, input_precision=PRECISION)

    b_some = b_total != 0
    b_total = tl.where(b_some, b_total, 1.0)
    b_o = b_o / b_total[:, None]
    # total^(-1/p), and one step of Newton's method for total y^p = 1
    b_y = tl.exp2(-tl.log2(b_total) / power)
    b_y = b_y * (1 - (b_total * _power(b_y, power, POWER) - 1) / power)
    b_s = tl.where(b_alive, b_shift * b_y, tl.where(b_some, -b_y, 0.0))
    tl.store(p_s + i_bh * queries + o_i, b_s, mask=o_i < queries)
    p_o += i_bh * queries * V
    m_o = (o_i < queries)[:, None] & (o_v < V)[None, :]
    tl.store(p_o + o_i[:, None] * V + o_v[None, :], b_o.to(DTYPE), mask=m_o)


@triton.jit(do_not_specialize=SIZES)
@no_type_check
def _prepare(
    p_z, p_s, p_o, p_do, p_zk, p_zd, p_along, queries,
    D: tl.constexpr, K: tl.constexpr, V: tl.constexpr, VP: tl.constexpr, DP: tl.constexpr,
    SPLIT: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """What the backward pass reads of each query again and again: do·o, z for z·r, s z for dr."""
    n = tl.cdiv(queries, ROWS)
    i_bh = (tl.program_id(0) // n).to(tl.int64)
    o_i = tl.program_id(0) % n * ROWS + tl.arange(0, ROWS)
    m_i = o_i < queries
    b_o, b_do = (
        _tile(p_o + i_bh * queries * V, o_i, queries, V, V, VP, True).to(tl.float32),
        _tile(p_do + i_bh * queries * V, o_i, queries, V, V, VP, True).to(tl.float32),
    )
    tl.store(p_along + i_bh * queries + o_i, tl.sum(b_o * b_do, 1), mask=m_i)
    p_z += i_bh * queries * D
    p_zk += i_bh * queries * K
    p_zd += i_bh * queries * DP
    b_zk = _operand(p_z, o_i, m_i, 1.0, 2, D, K, SPLIT, p_zk.dtype.element_ty)
    tl.store(p_zk + o_i[:, None] * K + tl.arange(0, K)[None, :], b_zk, mask=m_i[:, None])
    b_s = tl.load(p_s + i_bh * queries + o_i, mask=m_i, other=0.0)
    b_zd = _tile(p_z, o_i, queries, D, D, DP, True) * tl.where(b_s < 0, 0.0, b_s)[:, None]
    p_zd += o_i[:, None] * DP + tl.arange(0, DP)[None, :]
    tl.store(p_zd, b_zd.to(p_zd.dtype.element_ty), mask=m_i[:, None])


@triton.jit(do_not_specialize=SIZES)
@no_type_check
def _columns(
    p_zk, p_zd, p_r, p_v, p_do, p_s, p_along, p_gain, p_power, p_longest, p_key, p_pair, p_dv,
    p_dr, p_dp, heads, queries, keys, v_b, v_h, v_j, key_b, key_h, key_j, pair_b, pair_h, pair_i,
    pair_j,
    D: tl.constexpr, K: tl.constexpr, V: tl.constexpr, VP: tl.constexpr, DP: tl.constexpr,
    POWER: tl.constexpr, CAUSAL: tl.constexpr, KEY: tl.constexpr, PAIR: tl.constexpr,
    PRECISION: tl.constexpr, DP_TOO: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """dv and dr (in this sequence) of BN keys, and their part of dp."""
    n = tl.cdiv(keys, BN)
    i_bh = (tl.program_id(0) // n).to(tl.int64)
    i_b, i_h = i_bh // heads, i_bh % heads
    i_n = tl.program_id(0) % n
    o_j = i_n * BN + tl.arange(0, BN)
    o_m, o_d, o_v = tl.arange(0, BM), tl.arange(0, DP), tl.arange(0, VP)
    p_zk += i_bh * queries * K
    p_zd += i_bh * queries * DP
    p_do += i_bh * queries * V
    p_s += i_bh * queries
    p_along += i_bh * queries
    p_v += i_b * v_b + i_h * v_h
    p_key += i_b * key_b + i_h * key_h
    p_pair += i_b * pair_b + i_h * pair_h
    DTYPE: tl.constexpr = p_v.dtype.element_ty
    NARROW: tl.constexpr = p_zd.dtype.element_ty
    gain, power = tl.load(p_gain + i_h), tl.load(p_power + i_h)
    slope = gain * tl.load(p_longest + i_h)
    b_r = _tile(p_r + i_h * keys * K, o_j, keys, K, K, K, True)  # [BN, K]
    b_v = _tile(p_v, o_j, keys, v_j, V, VP, True)  # [BN, VP]

    # queries from `first` on may see some of these keys, those from `whole` on all of them
    first, whole = 0, 0
    if CAUSAL:
        first = tl.maximum(i_n * BN - (keys - queries), 0) // BM * BM
        whole = tl.maximum(i_n * BN + BN - 1 - (keys - queries), 0)
        whole = tl.minimum(tl.cdiv(whole, BM) * BM, tl.cdiv(queries, BM) * BM)
    b_dv = tl.zeros([BN, VP], tl.float32)
    b_dr = tl.zeros([BN, DP], tl.float32)
    b_dp = tl.zeros([BN], tl.float32)
    for part in tl.static_range(2):
        for start in range(first if part == 0 else whole, whole if part == 0 else queries, BM):
            o_i = start + o_m
            b_s = tl.load(p_s + o_i, mask=o_i < queries, other=0.0)
            b_zk = _tile(p_zk, o_i, queries, K, K, K, True)  # [BM, K]
            b_x = tl.dot(b_r, tl.trans(b_zk), input_precision="tf32x3")  # [BN, BM]
            b_c = _weight(
                *(b_x, (tl.where(b_s < 0, 0.0, b_s) * slope)[None, :], tl.abs(b_s)[None, :]),
                *(o_i[None, :], o_j[:, None], queries, keys),
                *(p_key, key_j, p_pair, pair_i, pair_j, part == 0, CAUSAL, KEY, PAIR),
            )
            b_w = _slope(b_c, power, POWER)
            b_a = b_w * b_c
            b_do = _tile(p_do, o_i, queries, V, V, VP, True)  # [BM, VP]
            b_dv = tl.dot(b_a.to(DTYPE), b_do, b_dv, input_precision=PRECISION)
            b_along = tl.load(p_along + o_i, mask=o_i < queries, other=0.0)
            b_da = tl.dot(b_v, tl.trans(b_do), input_precision=PRECISION) - b_along[None, :]
            if DP_TOO:
                b_log = tl.where((b_c > 0) & (b_s > 0)[None, :], tl.log(b_c), 0.0)
                b_dp += tl.sum(b_a * b_da * b_log, 1)
            b_dx = (b_w * b_da).to(NARROW)
            b_zd = _tile(p_zd, o_i, queries, DP, DP, DP, True)  # [BM, DP]
            b_dr = tl.dot(b_dx, b_zd, b_dr, input_precision=PRECISION)

    m_j = (o_j < keys)[:, None]
    p_dv += i_bh * keys * V + o_j[:, None] * V + o_v[None, :]
    tl.store(p_dv, b_dv.to(DTYPE), mask=m_j & (o_v < V)[None, :])
    p_dr += i_bh * keys * D + o_j[:, None] * D + o_d[None, :]
    tl.store(p_dr, b_dr * (gain * power), mask=m_j & (o_d < D)[None, :])
    if DP_TOO:
        tl.store(p_dp + i_bh * keys + o_j, b_dp, mask=o_j < keys)


@triton.jit(do_not_specialize=SIZES)
@no_type_check
def _rows(
    p_zk, p_rd, p_r, p_v, p_do, p_s, p_along, p_gain, p_power, p_longest, p_key, p_pair, p_dz,
    heads, queries, keys, v_b, v_h, v_j, key_b, key_h, key_j, pair_b, pair_h, pair_i, pair_j,
    D: tl.constexpr, K: tl.constexpr, V: tl.constexpr, VP: tl.constexpr, DP: tl.constexpr,
    POWER: tl.constexpr, CAUSAL: tl.constexpr, KEY: tl.constexpr, PAIR: tl.constexpr,
    PRECISION: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """dz / (s γ p) of BM queries."""
    n = tl.cdiv(queries, BM)
    i_bh = (tl.program_id(0) // n).to(tl.int64)
    i_b, i_h = i_bh // heads, i_bh % heads
    i_m = n - 1 - tl.program_id(0) % n
    o_i = i_m * BM + tl.arange(0, BM)
    o_n, o_d = tl.arange(0, BN), tl.arange(0, DP)
    p_r += i_h * keys * K
    p_rd += i_h * keys * DP
    p_v += i_b * v_b + i_h * v_h
    p_key += i_b * key_b + i_h * key_h
    p_pair += i_b * pair_b + i_h * pair_h
    NARROW: tl.constexpr = p_rd.dtype.element_ty
    power = tl.load(p_power + i_h)
    b_zk = _tile(p_zk + i_bh * queries * K, o_i, queries, K, K, K, True)  # [BM, K]
    b_do = _tile(p_do + i_bh * queries * V, o_i, queries, V, V, VP, True)  # [BM, VP]
    b_s = tl.load(p_s + i_bh * queries + o_i, mask=o_i < queries, other=0.0)
    b_along = tl.load(p_along + i_bh * queries + o_i, mask=o_i < queries, other=0.0)
    slope = tl.load(p_gain + i_h) * tl.load(p_longest + i_h)
    b_slope, b_shift = tl.where(b_s < 0, 0.0, b_s) * slope, tl.abs(b_s)

    end, whole = keys, keys
    if CAUSAL:
        end = tl.minimum(keys, (i_m + 1) * BM + keys - queries)
        whole = tl.minimum(keys, i_m * BM + keys - queries + 1)
    whole = tl.maximum(whole, 0) // BN * BN
    b_dz = tl.zeros([BM, DP], tl.float32)
    for part in tl.static_range(2):
        for start in range(0 if part == 0 else whole, whole if part == 0 else end, BN):
            o_j = start + o_n
            b_r = _tile(p_r, o_j, keys, K, K, K, part == 1)  # [BN, K]
            b_x = tl.dot(b_zk, tl.trans(b_r), input_precision="tf32x3")  # [BM, BN]
            b_c = _weight(
                *(b_x, b_slope[:, None], b_shift[:, None], o_i[:, None], o_j[None, :]),
                *(queries, keys, p_key, key_j, p_pair, pair_i, pair_j),
                *(part == 1, CAUSAL, KEY, PAIR),
            )
            b_v = _tile(p_v, o_j, keys, v_j, V, VP, part == 1)  # [BN, VP]
            b_da = tl.dot(b_do, tl.trans(b_v), input_precision=PRECISION) - b_along[:, None]
            b_dx = (_slope(b_c, power, POWER) * b_da).to(NARROW)
            b_rd = _tile(p_rd, o_j, keys, DP, DP, DP, part == 1)  # [BN, DP]
            b_dz = tl.dot(b_dx, b_rd, b_dz, input_precision=PRECISION)
    p_dz += i_bh * queries * D + o_i[:, None] * D + o_d[None, :]
    tl.store(p_dz, b_dz, mask=(o_i < queries)[:, None] & (o_d < D)[None, :])


@triton.jit(do_not_specialize=SIZES)
@no_type_check
def _finish(
    p_dz, p_z, p_s, p_gain, p_power, p_dgain, heads, queries,
    D: tl.constexpr, DP: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """dz by its factor s γ p, and dγ = Σ_i z_i·dz_i / γ of each block of queries."""
    n = tl.cdiv(queries, ROWS)
    i_bh = (tl.program_id(0) // n).to(tl.int64)
    o_i = tl.program_id(0) % n * ROWS + tl.arange(0, ROWS)
    o_d, m_i = tl.arange(0, DP), o_i < queries
    gain, power = tl.load(p_gain + i_bh % heads), tl.load(p_power + i_bh % heads)
    b_s = tl.load(p_s + i_bh * queries + o_i, mask=m_i, other=0.0)
    p_dz += i_bh * queries * D
    b_dz = _tile(p_dz, o_i, queries, D, D, DP, True) * tl.where(b_s < 0, 0.0, b_s * power)[:, None]
    b_z = _tile(p_z + i_bh * queries * D, o_i, queries, D, D, DP, True)
    tl.store(p_dgain + tl.program_id(0), tl.sum(tl.sum(b_z * b_dz, 1), 0))
    m_dz = m_i[:, None] & (o_d < D)[None, :]
    tl.store(p_dz + o_i[:, None] * D + o_d[None, :], b_dz * gain, mask=m_dz)
