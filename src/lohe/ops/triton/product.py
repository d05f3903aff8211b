"""Products of float32 matrices by the matrix units, as exact as float32: for a pack of models.

The units read 11 bits of a number. With a = a₁ + a₂, a₁ the nearest number of 11 bits,

    a b = a₁ b₁ + a₁ b₂ + a₂ b₁,

and what is left out, a₂ b₂ and the last bit of a₂ and b₂, is rounding: 2⁻²³ of |a b|. The units cut
off what does not fit when they add; so they add a few terms at a time, and the sum of those is made
outside of them. b is taken apart once, before the product, and laid as the units read it. TF32 is
a₁ b₁, added by the units.
"""
# Triton is not installed everywhere, and its decorator does not tell how a kernel is launched
# pyright: reportMissingImports=false, reportIndexIssue=false, reportCallIssue=false

from typing import NamedTuple, no_type_check

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from lohe.ops.triton.sizes import cdiv

SIDE = 64  # of the squares of b that are turned over
TOGETHER = 8  # rows of tiles that are made one after the other, so that they share what they read


class Tile(NamedTuple):
    """Rows and columns of a program, terms that it adds at a time, and how it is compiled."""

    rows: int
    columns: int
    terms: int
    warps: int
    stages: int


# measured on an H200 with the products of 10,000 and of 8,000 words (LOG.md, tenth sitting)
TILE = Tile(64, 128, 32, 4, 3)
LONG = Tile(128, 64, 32, 8, 3)  # for sums of MANY terms that lie side by side in a
TF32 = Tile(128, 128, 32, 8, 3)
MANY = 4096


def product(
    a: Float[Tensor, "#models rows terms"],
    b: Float[Tensor, "#models terms columns"],
    bias: Float[Tensor, "#models columns"] | None = None,
    tile: Tile | None = None,
) -> Float[Tensor, "models rows columns"]:
    """a b + bias, model by model; a tensor that all models share has one."""
    return _run(a, b, bias, sums=False, tile=tile, exact=True)[0]


def product_and_sums(
    a: Float[Tensor, "models rows terms"],
    b: Float[Tensor, "#models terms columns"],
    tile: Tile | None = None,
    exact: bool = True,
) -> tuple[Float[Tensor, "models rows columns"], Float[Tensor, "models rows"]]:
    """a b, and a 1: the sum of each row, of which all numbers are at hand. The product is a₁ b₁
    where it need not be exact, the sum is exact always."""
    return _run(a, b, None, sums=True, tile=tile, exact=exact)


def _run(
    a: Tensor, b: Tensor, bias: Tensor | None, *, sums: bool, tile: Tile | None, exact: bool
) -> tuple[Tensor, Tensor]:
    models, rows, terms, columns = max(a.shape[0], b.shape[0]), *a.shape[1:], b.shape[2]
    out = a.new_empty(models, rows, columns)
    total = a.new_empty(models, rows if sums else 0)
    added = out if bias is None else bias.contiguous()
    a, b = (x if 1 in x.stride()[1:] else x.contiguous() for x in (a, b))
    strides, across, four = _layout(a)
    cut = tile or (TF32 if not exact else LONG if across and terms > MANY else TILE)
    with torch.cuda.device_of(a):
        first, rest = _parts(b, exact)
        _product[(cdiv(rows, cut.rows) * cdiv(columns, cut.columns), models)](
            a, first, rest, added, out, total, *strides,
            int(b.shape[0] > 1), int(added.shape[0] > 1), rows, columns, terms,
            ACROSS=across, FOUR_A=four, FOUR_B=1 if terms % 4 else 4,
            FOUR_OUT=1 if columns % 4 else 4, BIAS=bias is not None, SUMS=sums, EXACT=exact,
            ROWS=cut.rows, COLUMNS=cut.columns, TERMS=cut.terms, TOGETHER=TOGETHER,
            num_warps=cut.warps, num_stages=cut.stages,
        )  # fmt: skip
    return out, total


def _parts(b: Tensor, exact: bool) -> tuple[Tensor, Tensor]:
    """b₁ᵀ and, where it is needed, b₂ᵀ; else b₁ᵀ twice."""
    models, terms, columns = b.shape
    parts = b.new_empty(1 + exact, models, columns, terms)
    first, rest = parts[0], parts[-1]
    strides, across, four = _layout(b)
    _take_apart[(cdiv(terms, SIDE) * cdiv(columns, SIDE), models)](
        b, first, rest, *strides, terms, columns,
        ACROSS=across, FOUR=four, FOUR_OUT=1 if terms % 4 else 4, EXACT=exact,
        SIDE=SIDE, num_warps=4,
    )  # fmt: skip
    return first, rest


def _layout(x: Tensor) -> tuple[tuple[int, int], bool, int]:
    """Strides over models and rows (columns) in fours if they can be read so; whether the numbers
    of a row lie side by side; how many are read at once."""
    across = x.stride(2) == 1
    strides = 0 if x.shape[0] == 1 else x.stride(0), x.stride(1 if across else 2)
    four = 1 if x.shape[2 if across else 1] % 4 or strides[0] % 4 or strides[1] % 4 else 4
    return (strides[0] // four, strides[1] // four), across, four


@triton.jit
@no_type_check
def _tile(
    p, i, j, count_i, count_j, stride, model, model_stride, ACROSS: tl.constexpr, FOUR: tl.constexpr
):
    """Numbers x_ij of a model, 0 outside; ACROSS: those of a row lie side by side, else those of a
    column. FOUR of them are inside or outside together, and strides count so many."""
    p += model * model_stride * FOUR  # from the left, in 64 bits: a model may have 2^31 numbers
    if ACROSS:
        inside = (i < count_i)[:, None] & (j // FOUR < count_j // FOUR)[None, :]
        at = p + i[:, None].to(tl.int64) * (stride * FOUR) + j[None, :]
    else:
        inside = (i // FOUR < count_i // FOUR)[:, None] & (j < count_j)[None, :]
        at = p + j[None, :].to(tl.int64) * (stride * FOUR) + i[:, None]
    return tl.load(at, mask=inside, other=0.0)


@triton.jit
@no_type_check
def _two(x):
    """x₁ of 11 bits, the nearest, and x - x₁."""
    first = ((x.to(tl.int32, bitcast=True) + 4096) & -8192).to(tl.float32, bitcast=True)
    return first, x - first


@triton.jit(do_not_specialize=["model_stride", "stride", "terms", "columns"])
@no_type_check
def _take_apart(
    p_b, p_first, p_rest, model_stride, stride, terms, columns,
    ACROSS: tl.constexpr, FOUR: tl.constexpr, FOUR_OUT: tl.constexpr, EXACT: tl.constexpr,
    SIDE: tl.constexpr,
):  # fmt: skip
    program, model = tl.program_id(0), tl.program_id(1).to(tl.int64)
    down = tl.cdiv(terms, SIDE)
    k = program % down * SIDE + tl.arange(0, SIDE)
    j = program // down * SIDE + tl.arange(0, SIDE)
    b = _tile(p_b, k, j, terms, columns, stride, model, model_stride, ACROSS, FOUR)
    first, rest = _two(b)
    width = terms // FOUR_OUT
    inside = (k // FOUR_OUT < width)[:, None] & (j < columns)[None, :]
    at = (model * columns + j[None, :]) * (width * FOUR_OUT) + k[:, None]
    tl.store(p_first + at, first, mask=inside)
    if EXACT:
        tl.store(p_rest + at, rest, mask=inside)


@triton.jit(
    do_not_specialize=["a_model", "a_stride", "b_own", "bias_own", "rows", "columns", "terms"]
)
@no_type_check
def _product(
    p_a, p_first, p_rest, p_bias, p_out, p_sums, a_model, a_stride, b_own, bias_own,
    rows, columns, terms,
    ACROSS: tl.constexpr, FOUR_A: tl.constexpr, FOUR_B: tl.constexpr, FOUR_OUT: tl.constexpr,
    BIAS: tl.constexpr, SUMS: tl.constexpr, EXACT: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, TERMS: tl.constexpr, TOGETHER: tl.constexpr,
):  # fmt: skip
    program, model = tl.program_id(0), tl.program_id(1).to(tl.int64)
    down, across = tl.cdiv(rows, ROWS), tl.cdiv(columns, COLUMNS)
    top = program // (TOGETHER * across) * TOGETHER
    height, at = tl.minimum(down - top, TOGETHER), program % (TOGETHER * across)
    i = (top + at % height) * ROWS + tl.arange(0, ROWS)
    j = at // height * COLUMNS + tl.arange(0, COLUMNS)
    b_model, b_stride = model * b_own * columns, terms // FOUR_B
    total, sums = tl.zeros((ROWS, COLUMNS), tl.float32), tl.zeros((ROWS,), tl.float32)
    for start in range(0, terms, TERMS):
        k = start + tl.arange(0, TERMS)
        a = _tile(p_a, i, k, rows, terms, a_stride, model, a_model, ACROSS, FOUR_A)
        b = _tile(p_first, k, j, terms, columns, b_stride, b_model, b_stride, False, FOUR_B)
        if SUMS:
            sums += tl.sum(a, 1)
        a, a_rest = _two(a)
        if EXACT:
            b_rest = _tile(p_rest, k, j, terms, columns, b_stride, b_model, b_stride, False, FOUR_B)
            part = tl.dot(a_rest, b, input_precision="tf32")
            part = tl.dot(a, b_rest, part, input_precision="tf32")
            total += tl.dot(a, b, part, input_precision="tf32")
        else:
            total = tl.dot(a, b, total, input_precision="tf32")
    if SUMS:  # noqa: SIM102
        if at // height == 0:
            tl.store(p_sums + model * rows + i, sums, mask=i < rows)
    if BIAS:
        bias = tl.load(p_bias + model * bias_own * columns + j, mask=j < columns, other=0.0)
        total += bias[None, :]
    width = columns // FOUR_OUT
    inside = (i < rows)[:, None] & (j // FOUR_OUT < width)[None, :]
    at = (model * rows + i[:, None]) * (width * FOUR_OUT) + j[None, :]
    tl.store(p_out + at, total, mask=inside)
