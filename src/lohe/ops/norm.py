"""Layer normalisation of a pack of models: one kernel forward, one backward.

vmap of F.layer_norm normalises, multiplies and adds in three passes, and goes back in five.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd import Function

from lohe.ops.available import serves_pack
from lohe.transforms import into_models

WIDEST = 1024  # features that a program holds


class LayerNorm(nn.LayerNorm):
    """nn.LayerNorm over the last axis, and what a pack on CUDA makes of it."""

    def __init__(self, width: int):
        super().__init__(width)

    def forward(  # pyright: ignore
        self, x: Float[Tensor, "*rows d"]
    ) -> Float[Tensor, "*rows d"]:
        if _pays(x):
            return packed(x, self.weight, self.bias, self.eps)
        return super().forward(x)


def packed(
    x: Float[Tensor, "*rows d"], weight: Float[Tensor, " d"], bias: Float[Tensor, " d"], eps: float
) -> Float[Tensor, "*rows d"]:
    """F.layer_norm in float32, by Triton: vmap adds a leading axis of models."""
    rows = x.reshape(1, -1, x.shape[-1])
    return Norm.apply(rows, weight[None], bias[None], eps)[0].view(x.shape)


def _pays(x: Tensor) -> bool:
    return x.shape[-1] <= WIDEST and serves_pack(x)


class Norm(Function):
    """x (S, rows, d), weight and bias (S, d) -> y, and mean and 1 / deviation of each row.

    With x̂ = (x - mean) / deviation, y = w x̂ + b, and of the gradient g of y, with <> over features,

        dx = (w g - <w g> - x̂ <w g x̂>) / deviation,    dw = Σ_rows g x̂,    db = Σ_rows g.
    """

    @staticmethod
    def forward(
        x: Tensor, weight: Tensor, bias: Tensor, eps: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        from lohe.ops.triton import norm

        return norm.forward(x.contiguous(), weight.contiguous(), bias.contiguous(), eps)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        x, weight, _, _ = inputs
        _, mean, inverse = output
        ctx.mark_non_differentiable(mean, inverse)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, weight, mean, inverse)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        from lohe.ops.triton import norm

        if torch.is_grad_enabled():
            raise RuntimeError(
                "Layer normalisation of a pack has first derivatives only; for second ones call "
                "torch.nn.functional.layer_norm."
            )
        (g, *_), (x, weight, mean, inverse) = grads, ctx.saved_tensors
        if g is None:
            return (None,) * 4
        dx, dw, db = norm.backward(
            g.contiguous(), x.contiguous(), weight.contiguous(), mean, inverse
        )
        return dx, dw, db, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[Any, Any]:
        size: int = info.batch_size
        tensors = [into_models(t, m, size) for t, m in zip(args[:3], in_dims[:3], strict=True)]
        found = Norm.apply(*tensors, args[3])
        return tuple(t.unflatten(0, (size, -1)) for t in found), (0, 0, 0)
