"""x / ‖x‖ of each row by one kernel, and its gradient by another: `sphere.normalize` is twelve."""
# Triton is not installed everywhere, and its decorator does not tell how a kernel is launched
# pyright: reportMissingImports=false, reportIndexIssue=false, reportCallIssue=false

from typing import Any, no_type_check

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor
from torch.autograd import Function

from lohe import sphere
from lohe.ops.triton.sizes import cdiv, next_power_of_2

ELEMENTS = 2048  # of a program
TINY = tl.constexpr(torch.finfo(torch.float32).tiny)


class Unit(Function):
    """`sphere.normalize` of float32 rows; a second derivative goes through plain PyTorch."""

    @staticmethod
    def forward(x: Float[Tensor, "*rows d"]) -> Float[Tensor, "*rows d"]:
        return _launch(x, x, backward=False)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        if torch.is_grad_enabled():  # somebody will differentiate this
            return torch.autograd.grad(sphere.normalize(x), x, grads[0], create_graph=True)[0]
        return _launch(x, grads[0], backward=True)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *args: Tensor) -> tuple[Tensor, int]:
        return Unit.apply(args[0].movedim(in_dims[0], 0)), 0


def _launch(x: Tensor, grad: Tensor, *, backward: bool) -> Tensor:
    x, grad = x.contiguous(), grad.contiguous()
    out, d = torch.empty_like(x), x.shape[-1]
    rows, width = x.numel() // d, next_power_of_2(d)
    cut = max(1, ELEMENTS // width)
    with torch.cuda.device_of(x):
        _unit[(cdiv(rows, cut),)](x, grad, out, rows, D=d, WIDTH=width, ROWS=cut, BACKWARD=backward)
    return out


@triton.jit(do_not_specialize=["rows"])
@no_type_check
def _unit(
    p_x, p_grad, p_out, rows,
    D: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr, BACKWARD: tl.constexpr,
):  # fmt: skip
    """u = x / ‖x‖, or (I - u uᵀ) grad / ‖x‖; the largest component is divided out first."""
    i, k = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS), tl.arange(0, WIDTH)
    at = i[:, None] * D + k[None, :]
    inside = (i < rows)[:, None] & (k < D)[None, :]
    x = tl.load(p_x + at, mask=inside, other=0.0)
    largest = tl.max(tl.abs(x), 1)
    is_zero = largest < TINY
    largest = tl.where(is_zero, 1.0, largest)
    x = x / largest[:, None]
    norm = tl.sqrt(tl.where(is_zero, 1.0, tl.sum(x * x, 1)))
    out = tl.where(is_zero[:, None], 0.0, x / norm[:, None])
    if BACKWARD:
        grad = tl.load(p_grad + at, mask=inside, other=0.0)
        along = tl.sum(out * grad, 1)
        grad = (grad - along[:, None] * out) / norm[:, None] / largest[:, None]
        out = tl.where(is_zero[:, None], 0.0, grad)
    tl.store(p_out + at, out, mask=inside)
