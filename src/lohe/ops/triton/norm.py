"""Kernels of layer normalisation, for a pack of models."""
# Triton is not installed everywhere, and its decorator does not tell how a kernel is launched
# pyright: reportMissingImports=false, reportIndexIssue=false, reportCallIssue=false

from typing import no_type_check

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from lohe.ops.triton.sizes import cdiv, next_power_of_2

ELEMENTS = 4096  # of a program's tile


def forward(
    x: Float[Tensor, "models rows d"],
    weight: Float[Tensor, "models d"],
    bias: Float[Tensor, "models d"],
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """w x̂ + b; the mean and 1 / deviation of each row."""
    models, rows, d = x.shape
    y, mean, inverse = torch.empty_like(x), x.new_empty(models, rows), x.new_empty(models, rows)
    cut = _cut(d)
    with torch.cuda.device_of(x):
        _forward[(cdiv(rows, cut["ROWS"]), models)](
            x, weight, bias, y, mean, inverse, rows, eps, **cut
        )
    return y, mean, inverse


def backward(
    g: Float[Tensor, "models rows d"],
    x: Float[Tensor, "models rows d"],
    weight: Float[Tensor, "models d"],
    mean: Float[Tensor, "models rows"],
    inverse: Float[Tensor, "models rows"],
) -> tuple[Tensor, Tensor, Tensor]:
    """dx, dw and db: a block of rows adds up its own, and the blocks are summed."""
    models, rows, d = x.shape
    cut = _cut(d)
    blocks = cdiv(rows, cut["ROWS"])
    dx, parts = torch.empty_like(x), x.new_empty(2, models, blocks, d)
    with torch.cuda.device_of(x):
        _backward[(blocks, models)](g, x, weight, mean, inverse, dx, *parts, rows, **cut)
    dw, db = parts.sum(dim=2)
    return dx, dw, db


def _cut(d: int) -> dict[str, int]:
    width = next_power_of_2(d)
    return {"D": d, "WIDTH": width, "ROWS": max(1, ELEMENTS // width)}


@triton.jit
@no_type_check
def _tile(p, model, rows, D: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr):
    """Where the rows of a program are, and which of them there are: (ROWS, WIDTH)."""
    i, k = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, WIDTH)
    at = (model.to(tl.int64) * rows + i)[:, None] * D + k[None, :]
    return p + at, (i < rows)[:, None] & (k < D)[None, :]


@triton.jit(do_not_specialize=["rows"])
@no_type_check
def _forward(
    p_x, p_weight, p_bias, p_y, p_mean, p_inverse, rows, eps,
    D: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    model, k = tl.program_id(1), tl.arange(0, WIDTH)
    at, inside = _tile(p_x, model, rows, D, WIDTH, ROWS)
    x = tl.load(at, mask=inside, other=0.0)
    mean = tl.sum(x, 1) / D
    x = tl.where(inside, x - mean[:, None], 0.0)
    inverse = 1.0 / tl.sqrt(tl.sum(x * x, 1) / D + eps)
    w = tl.load(p_weight + model * D + k, mask=k < D, other=0.0)
    b = tl.load(p_bias + model * D + k, mask=k < D, other=0.0)
    at, _ = _tile(p_y, model, rows, D, WIDTH, ROWS)
    tl.store(at, x * inverse[:, None] * w[None, :] + b[None, :], mask=inside)
    i = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    tl.store(p_mean + model.to(tl.int64) * rows + i, mean, mask=i < rows)
    tl.store(p_inverse + model.to(tl.int64) * rows + i, inverse, mask=i < rows)


@triton.jit(do_not_specialize=["rows"])
@no_type_check
def _backward(
    p_g, p_x, p_weight, p_mean, p_inverse, p_dx, p_dw, p_db, rows,
    D: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    model, k = tl.program_id(1), tl.arange(0, WIDTH)
    i = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    row = model.to(tl.int64) * rows + i
    at, inside = _tile(p_g, model, rows, D, WIDTH, ROWS)
    g = tl.load(at, mask=inside, other=0.0)
    at, _ = _tile(p_x, model, rows, D, WIDTH, ROWS)
    mean = tl.load(p_mean + row, mask=i < rows, other=0.0)
    inverse = tl.load(p_inverse + row, mask=i < rows, other=0.0)
    x = (tl.load(at, mask=inside, other=0.0) - mean[:, None]) * inverse[:, None]
    x = tl.where(inside, x, 0.0)
    out = (model.to(tl.int64) * tl.num_programs(0) + tl.program_id(0)) * D + k
    tl.store(p_dw + out, tl.sum(g * x, 0), mask=k < D)
    tl.store(p_db + out, tl.sum(g, 0), mask=k < D)
    w = tl.load(p_weight + model * D + k, mask=k < D, other=0.0)
    g = g * w[None, :]
    along = tl.sum(g * x, 1) / D
    dx = (g - (tl.sum(g, 1) / D)[:, None] - x * along[:, None]) * inverse[:, None]
    at, _ = _tile(p_dx, model, rows, D, WIDTH, ROWS)
    tl.store(at, dx, mask=inside)
