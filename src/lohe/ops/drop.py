"""Dropout of a pack of models, alone or behind GELU: one pass forward, one backward.

PyTorch's is five passes behind GELU's two, with a mask that is written and read three times. Here
the mask is never stored: a counter and a seed make it, and backward makes it again.
"""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd import Function

from lohe.ops.available import serves_pack
from lohe.transforms import into_models


def dropped(
    x: Float[Tensor, "*shape"], p: float, generator: torch.Generator | None, *, gelu: bool = False
) -> Float[Tensor, "*shape"] | None:
    """`packed` for a pack of models on CUDA; None elsewhere."""
    return packed(x, p, generator, gelu=gelu) if _pays(x) else None


def packed(
    x: Float[Tensor, "*shape"], p: float, generator: torch.Generator | None, *, gelu: bool = False
) -> Float[Tensor, "*shape"]:
    """Each entry of x, or of GELU(x), is 0 with probability p, else divided by 1 - p.

    By Triton, in float32; vmap(..., randomness="different") gives each model a seed of its own.
    """
    seed = torch.randint(2**63 - 1, (1,), device=x.device, generator=generator)
    return Drop.apply(x.reshape(1, -1), seed, p, gelu).view(x.shape)


def _pays(x: Tensor) -> bool:
    return serves_pack(x)


class Drop(Function):
    """x (S, entries), seed (S,) -> y = m a(x), with a the identity or GELU.

    m is 1 / (1 - p) where an entry is kept, else 0: the gradient is dx = m a'(x) g.
    """

    @staticmethod
    def forward(
        x: Float[Tensor, "models entries"], seed: Int[Tensor, " models"], p: float, gelu: bool
    ) -> Float[Tensor, "models entries"]:
        from lohe.ops.triton import drop

        return drop.forward(x.contiguous(), seed, p, gelu)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, seed, ctx.p, ctx.gelu = inputs
        ctx.save_for_backward(*((seed, x) if ctx.gelu else (seed,)))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        from lohe.ops.triton import drop

        if torch.is_grad_enabled():
            raise RuntimeError(
                "Dropout of a pack has first derivatives only; for second ones train one model "
                "without vmap."
            )
        seed, *x = ctx.saved_tensors
        g = grads[0].contiguous()
        if ctx.gelu:
            return drop.backward_of_gelu(g, x[0].contiguous(), seed, ctx.p), None, None, None
        return drop.forward(g, seed, ctx.p, gelu=False), None, None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[Tensor, int]:
        size: int = info.batch_size
        x, seed = (into_models(t, m, size) for t, m in zip(args[:2], in_dims[:2], strict=True))
        return Drop.apply(x, seed, *args[2:]).unflatten(0, (size, -1)), 0
