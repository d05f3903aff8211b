"""y = x Wᵀ + b for a pack of models, with the passes that bound it on a GPU taken out.

vmap of F.linear is a batched product and a pass for the bias, and its weight gradient sums
thousands of rows in a handful of blocks. Here a wide layer has its bias inside the product, and a
long sum is made in parts. On an H100 or H200 products of float32 go through the matrix units in
three parts (`ops.triton.product`), as exact and twice as fast, and with TF32 one product does that
sums the gradient of a wide layer's bias as it reads; everywhere else they are PyTorch's.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional as F

from lohe.ops.available import HAS_TRITON, tf32_allowed
from lohe.transforms import any_vmap

WIDE = 8  # outputs for each input from which on a pass over the outputs costs more than columns
TILE = 32  # side of the smallest tile of a matrix product on a GPU
TILES = 2048  # of them, enough to fill it
MOST_PARTS = 16  # of a sum over rows
SIDE = 64  # of a matrix that fills a tile of the matrix units


def affine(
    x: Float[Tensor, "*rows d_in"],
    weight: Float[Tensor, "d_out d_in"],
    bias: Float[Tensor, " d_out"] | None = None,
) -> Float[Tensor, "*rows d_out"]:
    """F.linear, which it is everywhere but in a pack of models on CUDA."""
    return packed(x, weight, bias) if _pays(x) else F.linear(x, weight, bias)


def packed(
    x: Float[Tensor, "*rows d_in"],
    weight: Float[Tensor, "d_out d_in"],
    bias: Float[Tensor, " d_out"] | None = None,
) -> Float[Tensor, "*rows d_out"]:
    """F.linear, on any device, as a pack computes it: vmap adds a leading axis of models."""
    rows = x.reshape(1, -1, x.shape[-1])
    out = Affine.apply(rows, weight[None], None if bias is None else bias[None])
    return out.view(*x.shape[:-1], -1)


def _pays(x: Tensor) -> bool:
    """On CUDA, in the dtype of the tensors, under vmap and no other transform of torch.func."""
    if x.device.type != "cuda" or torch.compiler.is_compiling():
        return False
    return (
        x.dtype in (torch.float32, torch.float64)
        and not torch.is_autocast_enabled("cuda")
        and any_vmap()
    )


class Affine(Function):
    """x (S, rows, d_in), W (S, d_out, d_in), b (S, d_out) or None -> (S, rows, d_out).

    S counts the models of a pack; a tensor that they share has S = 1. With G the gradient of y:

        dX = G W,    dW = Gᵀ X,    db = Gᵀ 1.
    """

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        wide = weight.shape[1] >= WIDE * weight.shape[2]
        if wide and bias is not None and not _by_matrix_units(x, weight.mT):
            x, weight = _with_bias_columns(x, weight, bias)
            return x @ weight.mT
        return _product(x, weight.mT, bias)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, weight, bias = inputs
        ctx.save_for_backward(x, weight)
        ctx.models = [1 if t is None else t.shape[0] for t in (x, weight, bias)]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (g,), (x, weight) = grads, ctx.saved_tensors
        want_x, want_w, want_b = ctx.needs_input_grad
        dx = _product(g, weight) if want_x else None
        dw = db = None
        if want_w:
            dw, db = _sums_over_rows(g, x, want_b)
        elif want_b:
            db = g.sum(-2)
        found = zip((dx, dw, db), ctx.models, strict=True)
        return tuple(None if t is None else _over_models(t, models) for t, models in found)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[Tensor, int]:
        size: int = info.batch_size
        pairs = list(zip(args, in_dims, strict=True))
        models = max(t.shape[1 if m == 0 else 0] for t, m in pairs if t is not None)
        out = Affine.apply(*(_fold(t, m, size, models) for t, m in pairs))
        return out.unflatten(0, (size, models)), 0


def _with_bias_columns(x: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """[x, 1 1 1 ...] and [W, b₁ b₂ b₃ 0 ...] with b = b₁ + b₂ + b₃, a multiple of 4 wide.

    TF32 keeps 11 bits of a factor. b₁ and b₂ have 8, in float32 b₃ has the other 8, and so the bias
    is as exact as if it were added.
    """
    models = max(weight.shape[0], bias.shape[0])
    first = bias.bfloat16().to(bias.dtype)
    second = (bias - first).bfloat16().to(bias.dtype)
    columns = torch.stack([first, second, bias - first - second], dim=-1)
    columns = F.pad(columns, (0, -(weight.shape[-1] + 3) % 4))
    ones = x.new_ones(()).expand(*x.shape[:-1], columns.shape[-1])
    weight = torch.cat([weight.expand(models, -1, -1), columns.expand(models, -1, -1)], dim=-1)
    return torch.cat([x, ones], dim=-1), weight


def _sums_over_rows(g: Tensor, x: Tensor, want_b: bool) -> tuple[Tensor, Tensor | None]:
    """Gᵀ X and, if it is wanted, Gᵀ 1; in parts where whole sums would leave a GPU idle."""
    models, rows = max(g.shape[0], x.shape[0]), g.shape[1]
    parts = _parts(rows, models * -(-g.shape[-1] // TILE) * -(-x.shape[-1] // TILE))
    if parts > 1:
        apart = models * parts, rows // parts
        g, x = (t.expand(models, -1, -1).reshape(*apart, t.shape[-1]) for t in (g, x))
    wide = g.shape[-1] >= WIDE * x.shape[-1]
    if _by_matrix_units(g.mT, x, or_tf32=want_b and wide):
        from lohe.ops.triton.product import product_and_sums

        dw, db = product_and_sums(g.mT, x, exact=not tf32_allowed())
    else:
        dw, db = g.mT @ x, g.sum(-2) if want_b else None
    if parts > 1:
        dw = dw.unflatten(0, (-1, parts)).sum(1)
        db = None if db is None else db.unflatten(0, (-1, parts)).sum(1)
    return dw, db if want_b else None


def _product(a: Tensor, b: Tensor, bias: Tensor | None = None) -> Tensor:
    if _by_matrix_units(a, b):
        from lohe.ops.triton.product import product

        return product(a, b, bias)
    return a @ b if bias is None else a @ b + bias[:, None]


def _by_matrix_units(a: Tensor, b: Tensor, *, or_tf32: bool = False) -> bool:
    """In float32, and TF32 if it is asked for, where it was seen to pay; a second derivative is
    PyTorch's."""
    return (
        a.is_cuda
        and a.dtype == torch.float32
        and min(*a.shape[1:], b.shape[2]) >= SIDE
        and HAS_TRITON
        and not torch.is_grad_enabled()
        and (or_tf32 or not tf32_allowed())
        and torch.cuda.get_device_capability(a.device) == (9, 0)
    )


def _parts(rows: int, tiles: int) -> int:
    """The largest divisor of `rows` that makes no more parts than the tiles call for.

    >>> _parts(64 * 49, 5 * 4 * 4), _parts(64 * 49, 5 * 313 * 4)  # 128 x 128, and 10,000 x 128
    (16, 1)
    """
    most = max(1, min(MOST_PARTS, -(-TILES // tiles)))
    return next(n for n in range(most, 0, -1) if rows % n == 0)


def _over_models(gradient: Tensor, models: int) -> Tensor:
    """What all models share gets the sum of their gradients."""
    return gradient if gradient.shape[0] == models else gradient.sum(0, keepdim=True)


def _fold(x: Tensor | None, mapped: int | None, size: int, models: int) -> Tensor | None:
    """Move the mapped axis of `x` into its models; what all of them share stays as it is."""
    if x is None or (mapped is None and x.shape[0] == 1):
        return x
    x = x[None] if mapped is None else x.movedim(mapped, 0)
    return x.expand(size, models, *x.shape[2:]).flatten(0, 1)
