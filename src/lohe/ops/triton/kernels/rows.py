"""What the kernels share: loads, and products with a matrix of d_osc rows."""
# Triton is not installed everywhere, and its decorator does not tell how a kernel is launched
# pyright: reportMissingImports=false

from typing import no_type_check

import triton
import triton.language as tl

# sizes do not make another kernel; of strides only those of f, g and v do, by their alignment
SIZES = ["heads", "queries", "keys", "origin", "blocks", "query_blocks", "count"]
SIZES += ["counts", "packs", "r_head", "x_batch", "x_head", "mask_batch", "mask_head", "n_batch"]

FEW = tl.constexpr(8)  # d_osc up to which sums over keys go component by component


@triton.jit
@no_type_check
def load_rows(
    p, index, count, token, WIDTH: tl.constexpr, PADDED: tl.constexpr, EDGE: tl.constexpr
):
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
def load_mask(p_mask, j, keys, MASKED: tl.constexpr):
    """m_j: 1 for a key that may be used, else 0."""
    inside = (j >= 0) & (j < keys)
    if MASKED:
        return tl.load(p_mask + j, mask=inside, other=0).to(tl.float32)
    return inside.to(tl.float32)


UP = tl.constexpr(2.0**80)


@triton.jit
@no_type_check
def lift(top):
    """What numbers up to `top` are multiplied by so that their squares do not vanish: 1 or UP, and
    0 where 1 / top is no number."""
    return tl.where(top < 2.0**-40, tl.where(top < 2.0**-120, 0.0, UP), 1.0)


@triton.jit
@no_type_check
def inverse_root(square):
    """1 / √square, and 0 for 0."""
    return tl.where(square > 0.0, 1.0 / tl.sqrt(tl.where(square > 0.0, square, 1.0)), 0.0)


@triton.jit
@no_type_check
def column(x, k, WIDTH: tl.constexpr):
    """Column k of a matrix, (rows,)."""
    return tl.sum(tl.where((tl.arange(0, WIDTH) == k)[None, :], x, 0.0), 1)


@triton.jit
@no_type_check
def unpacked(x, SECOND: tl.constexpr, D_OSC: tl.constexpr, D_R: tl.constexpr):
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
def times(
    x, p, index, inside, step, TURNED: tl.constexpr,
    PRECISION: tl.constexpr, D_OSC: tl.constexpr, D_R: tl.constexpr,
):  # fmt: skip
    """x M: (rows, D_R) to (rows, columns)."""
    if D_OSC <= FEW and not TURNED:
        out = tl.zeros((x.shape[0], index.shape[0]), tl.float32)
        for k in tl.static_range(D_OSC):
            m = tl.load(p + k * step + index, mask=inside, other=0.0)
            out += column(x, k, D_R)[:, None] * m[None, :]
        return out
    else:  # noqa: RET505
        m = _whole(p, index, inside, step, TURNED, D_OSC, D_R)
        return tl.dot(x, m, input_precision=PRECISION)


@triton.jit
@no_type_check
def along(
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


@triton.jit
@no_type_check
def load_pair(p, i, count):
    """Both numbers of rows on the circle, one vector each, 0 outside."""
    inside = (i >= 0) & (i < count)
    return (
        tl.load(p + 2 * i, mask=inside, other=0.0),
        tl.load(p + 2 * i + 1, mask=inside, other=0.0),
    )


@triton.jit
@no_type_check
def spread_pair(p, i, count):
    """The same for the columns of a tile: read once, not by every thread that has a column."""
    x = load_rows(p, i, count, 2, 2, 2, True)
    return column(x, 0, 2), column(x, 1, 2)
