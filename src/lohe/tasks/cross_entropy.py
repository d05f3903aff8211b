"""Cross-entropy over many classes: the gradient is made while the logits are at hand.

With x the logits of a row, t its target and c the weight of the row in the loss,

    nll = log Σ_k exp(x_k) - x_t,    ∂/∂x_k = c (softmax(x)_k - [k = t]).

Plain PyTorch goes over the logits, 627 MB for five seeds of WikiText-2, in five passes; here the
loss and its gradient together read them once and write once, and backward scales what is there
unless the factor is 1.
"""

from functools import cache
from importlib.util import find_spec
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional as F

from lohe.transforms import into_models, only_vmap

MANY = 1024  # classes; with fewer, a launch costs more than the passes

Reduction = Literal["mean", "sum"]


def cross_entropy(
    logits: Float[Tensor, "rows classes"],
    targets: Int[Tensor, " rows"],
    ignore_index: int,
    reduction: Reduction = "mean",
) -> Float[Tensor, ""]:
    """F.cross_entropy; for many classes on CUDA in float32, `fused`."""
    if _pays(logits):
        return fused(logits, targets, ignore_index, reduction)
    return F.cross_entropy(logits, targets, ignore_index=ignore_index, reduction=reduction)


def fused(
    logits: Float[Tensor, "rows classes"],
    targets: Int[Tensor, " rows"],
    ignore_index: int,
    reduction: Reduction = "mean",
) -> Float[Tensor, ""]:
    """F.cross_entropy in float32, by Triton; vmap makes the rows of all models one call.

    The loss has first derivatives only and is differentiated once: its backward pass hands out the
    gradient that the forward pass made. A target that is no class gives NaN.
    """
    scale = logits.new_ones(())
    if reduction == "mean":
        scale = scale / (targets != ignore_index).sum()
    # inside vmap, a tensor does not tell whether it requires a gradient
    losses, _ = CrossEntropy.apply(
        logits[None], targets[None], scale[None], ignore_index, torch.is_grad_enabled()
    )
    return losses.squeeze(0)


def _pays(logits: Tensor) -> bool:
    """Known from the kind of tensor: device, dtype, classes, and no transform but vmap."""
    return (
        logits.device.type == "cuda"
        and logits.dtype == torch.float32
        and logits.shape[-1] >= MANY
        and not torch.compiler.is_compiling()
        and only_vmap()
        and _has_triton()
    )


@cache
def _has_triton() -> bool:
    return find_spec("triton") is not None


class CrossEntropy(Function):
    """logits (S, rows, classes), targets (S, rows), scale (S,) -> losses (S,) and their gradient.

    S counts the models of a pack: loss_s = scale_s Σ_rows nll. Without `wanted`, no gradient is
    written.
    """

    @staticmethod
    def forward(
        logits: Tensor, targets: Tensor, scale: Tensor, ignore_index: int, wanted: bool
    ) -> tuple[Tensor, Tensor]:
        from lohe.tasks import cross_entropy_kernels as kernels

        logits, targets, scale = (t.contiguous() for t in (logits, targets, scale))
        gradient = torch.empty_like(logits) if wanted else None
        nll = kernels.negative_log_likelihood(logits, targets, scale, ignore_index, gradient)
        return nll.sum(-1) * scale, logits.new_empty(len(logits)) if gradient is None else gradient

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        _, gradient = output
        ctx.mark_non_differentiable(gradient)
        ctx.set_materialize_grads(False)  # or the unused gradient's gradient would be zeros
        ctx.save_for_backward(gradient)
        ctx.spent = False

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        if ctx.spent or torch.is_grad_enabled():
            raise RuntimeError(
                "The fused cross-entropy can be differentiated once: its gradient is handed out, "
                "not kept. For a second backward pass (retain_graph) or second derivatives "
                "(create_graph) call torch.nn.functional.cross_entropy."
            )
        factor, (gradient,) = grads[0], ctx.saved_tensors
        if factor is None:
            return (None,) * 5
        from lohe.tasks import cross_entropy_kernels as kernels

        ctx.spent = True
        kernels.rescale(gradient, factor)
        return gradient, None, None, None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[Any, Any]:
        size: int = info.batch_size
        tensors = [into_models(t, m, size) for t, m in zip(args[:3], in_dims[:3], strict=True)]
        losses, gradient = CrossEntropy.apply(*tensors, *args[3:])
        return (losses.unflatten(0, (size, -1)), gradient.unflatten(0, (size, -1))), (0, 0)
