"""What needs neither f nor g: packed anchors and sums over keys, and running sums over blocks."""
# Triton is not installed everywhere, and its decorator does not tell how a kernel is launched
# pyright: reportMissingImports=false

from typing import no_type_check

import triton
import triton.language as tl

from lohe.ops.triton.kernels.rows import FEW, SIZES, load_mask, load_rows


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
        x *= load_mask(p_mask + b * mask_batch + h * mask_head, i, count, MASKED)[:, None]
    rounded = x.to(p_out.dtype.element_ty)
    if SPLIT:
        lost = (x - rounded.to(tl.float32)).to(p_out.dtype.element_ty)
        first = D_OSC if MIDDLE else 2 * D_OSC
        rounded = tl.where(((k >= first) & (k < first + D_OSC))[None, :], lost, rounded)
    row = bh.to(tl.int64) * count + i
    tl.store(p_out + row[:, None] * D_R + k[None, :], rounded, mask=(i < count)[:, None])


@triton.jit(do_not_specialize=SIZES)
@no_type_check
def pack(
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
        x *= load_mask(p_mask + b * mask_batch + h * mask_head, j, keys, MASKED)[:, None]
        tl.store(p_n + j[:, None], tl.cumsum(x, 0) + before[None, :], mask=inside)
        before += tl.sum(x, 0)


@triton.jit
@no_type_check
def up_to(p_n, last, keys, D_OSC: tl.constexpr, D_R: tl.constexpr):
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
    v = load_rows(p_v + b * v_batch + h * v_head, j, keys, v_token, D_V, DV, True).to(tl.float32)
    if MASKED:
        v *= load_mask(p_mask + b * mask_batch + h * mask_head, j, keys, MASKED)[:, None]
    p_w += (bh.to(tl.int64) * blocks + block) * (1 + D_OSC) * D_V
    tl.store(p_w + d, tl.sum(v, 0), mask=d < D_V)
    if D_OSC <= FEW:
        for k in tl.static_range(D_OSC):
            r = tl.load(p_r + j * D_OSC + k, mask=(j >= 0) & (j < keys), other=0.0)
            tl.store(p_w + (1 + k) * D_V + d, tl.sum(v * r[:, None], 0), mask=d < D_V)
    else:
        r = load_rows(p_r, j, keys, D_OSC, D_OSC, D_R, True)
        w = tl.dot(tl.trans(r), v, input_precision=PRECISION)
        rows = p_w + (1 + c)[:, None] * D_V + d[None, :]
        tl.store(rows, w, mask=(c < D_OSC)[:, None] & (d < D_V)[None, :])


@triton.jit(do_not_specialize=SIZES)
@no_type_check
def prepare(
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
def scan(
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
