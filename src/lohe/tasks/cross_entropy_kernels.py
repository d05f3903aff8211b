"""Triton kernels of `cross_entropy`, imported where they are used.

A row is held as a whole, or read twice in blocks where it is too long; sums are in float32. Nothing
is atomic: the same numbers every time. `no_type_check` keeps the tests' shape checks out of what
Triton reads.
"""
# Triton is not installed everywhere, and its decorator does not tell how a kernel is launched
# pyright: reportMissingImports=false, reportIndexIssue=false, reportCallIssue=false

from typing import no_type_check

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor

BLOCK = 2048  # classes at a time
WHOLE = 16384  # classes of a row that a program holds as a whole: it is read once
PIECE = 16384  # numbers that a program rescales
WARPS = 16


def negative_log_likelihood(
    logits: Float[Tensor, "models rows classes"],
    targets: Int[Tensor, "models rows"],
    scale: Float[Tensor, " models"],
    ignore_index: int,
    gradient: Float[Tensor, "models rows classes"] | None,
) -> Float[Tensor, "models rows"]:
    """-log softmax(x)_t of each row, 0 where t is ignored and NaN where it is no class.

    `gradient`, if given, becomes scale (softmax(x) - 1_t), and 0 where t is ignored.
    """
    models, rows, classes = logits.shape
    nll = torch.empty(models, rows, dtype=logits.dtype, device=logits.device)
    with torch.cuda.device_of(logits):
        _rows[(models * rows,)](
            logits,
            targets,
            scale,
            nll,
            nll if gradient is None else gradient,
            ignore_index,
            rows,
            CLASSES=classes,
            BLOCK=_block(classes),
            GRADIENT=gradient is not None,
            num_warps=WARPS,
        )
    return nll


def rescale(
    gradient: Float[Tensor, "models rows classes"], factor: Float[Tensor, " models"]
) -> None:
    """Multiply each model's gradient in place; a factor of 1, as in training, costs nothing."""
    count = gradient[0].numel()
    with torch.cuda.device_of(gradient):
        _rescale[(triton.cdiv(count, PIECE), len(gradient))](
            gradient, factor.contiguous(), count, BLOCK=PIECE, num_warps=WARPS
        )


def _block(classes: int) -> int:
    whole = int(triton.next_power_of_2(classes))
    return whole if whole <= WHOLE else BLOCK


@triton.jit
@no_type_check
def _rows(
    p_logits,
    p_targets,
    p_scale,
    p_nll,
    p_gradient,
    ignore_index,
    rows,
    CLASSES: tl.constexpr,
    BLOCK: tl.constexpr,
    GRADIENT: tl.constexpr,
):
    i_row = tl.program_id(0).to(tl.int64)  # a large pack has more than 2³¹ logits
    p_x = p_logits + i_row * CLASSES
    p_g = p_gradient + i_row * CLASSES
    o_block = tl.arange(0, BLOCK)
    target = tl.load(p_targets + i_row)
    if target == ignore_index:
        tl.store(p_nll + i_row, 0.0)
        if GRADIENT:
            for start in range(0, CLASSES, BLOCK):
                o = start + o_block
                tl.store(p_g + o, tl.zeros([BLOCK], tl.float32), mask=o < CLASSES)
    else:
        # Σ exp(x - top) as the top grows; where all is -inf so far, exp(-inf - 0) = 0
        top = float("-inf")
        total = 0.0
        b_x = tl.full([BLOCK], float("-inf"), tl.float32)
        for start in range(0, CLASSES, BLOCK):
            o = start + o_block
            b_x = tl.load(p_x + o, mask=o < CLASSES, other=float("-inf"))  # [BLOCK]
            higher = tl.maximum(top, tl.max(b_x, 0))
            shift = tl.where(higher == float("-inf"), 0.0, higher)
            total = total * tl.exp(top - shift) + tl.sum(tl.exp(b_x - shift), 0)
            top = higher
        known = (target >= 0) & (target < CLASSES)
        x_t = tl.load(p_x + target, mask=known, other=float("nan"))
        tl.store(p_nll + i_row, tl.log(total) - (x_t - top))
        if GRADIENT:
            scale = tl.load(p_scale + i_row // rows)
            scale = tl.where(known, scale, float("nan"))
            share = scale / total
            for start in range(0, CLASSES, BLOCK):
                o = start + o_block
                if BLOCK < CLASSES:
                    b_x = tl.load(p_x + o, mask=o < CLASSES, other=float("-inf"))  # [BLOCK]
                b_g = tl.exp(b_x - top) * share - tl.where(o == target, scale, 0.0)
                tl.store(p_g + o, b_g, mask=o < CLASSES)


@triton.jit
@no_type_check
def _rescale(p_gradient, p_factor, count, BLOCK: tl.constexpr):
    """By a mask, not a branch: where the factor is 1 nothing is read or written."""
    factor = tl.load(p_factor + tl.program_id(1))
    o = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    p_g = p_gradient + tl.program_id(1).to(tl.int64) * count + o
    moved = o < tl.where(factor == 1.0, 0, count)  # a NaN is not 1
    tl.store(p_g, tl.load(p_g, mask=moved) * factor, mask=moved)
