"""Turns a pair of ops over (batch, heads, ...) into a function with gradients that can be vmapped.

Anchors, gain and sharpness belong to a head, so a pack of models is one model with more heads: vmap
moves the mapped axis into the head axis and calls the op once.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.utils._python_dispatch import _get_current_dispatch_mode  # pyright: ignore; nor has it

from lohe import transforms
from lohe.transforms import under_transforms


class Pair(NamedTuple):
    """forward(*inputs, masks, *options) -> outputs, of which the first has a gradient;
    backward(gradient, *inputs, *outputs, masks, *options) -> the gradient of each input."""

    forward: Any
    backward: Any
    inputs: int
    outputs: int


PAIRS: dict[str, Pair] = {}


def op(name: str) -> Callable[[Callable[..., Any]], Any]:
    """A `torch.library` op that keeps the function which it was made of, as `plain`."""

    def decorate(function: Callable[..., Any]) -> Any:
        made = torch.library.custom_op(f"lohe::{name}", function, mutates_args=())
        made.plain = function  # pyright: ignore
        return made

    return decorate


def register(name: str, pair: Pair) -> Callable[..., Tensor]:
    """apply(inputs, masks, options) -> the first output, differentiable.

    The op itself gets a gradient formula, for torch.compile and everything else that looks into a
    call. Eager mode and torch.func take an autograd function: `Forward`.
    """
    PAIRS[name] = pair

    def save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]):
        tensors, masks, ctx.options = (
            inputs[: pair.inputs],
            inputs[pair.inputs],
            inputs[pair.inputs + 1 :],
        )
        ctx.save_for_backward(*tensors, *output, *masks)

    def backward(ctx: Any, *grads: Tensor):
        n = pair.inputs + pair.outputs
        saved, masks = ctx.saved_tensors[:n], list(ctx.saved_tensors[n:])
        gradients = pair.backward(grads[0].contiguous(), *saved, masks, *ctx.options)
        return (*gradients, [None] * len(masks), *(None for _ in ctx.options))

    def apply(inputs: tuple[Tensor, ...], masks: tuple[Tensor, ...], options: tuple[Any, ...]):
        if watched(inputs) and (torch.compiler.is_compiling() or not under_transforms()):
            return pair.forward(*inputs, list(masks), *options)[0]
        return transforms.apply(Forward, name, len(options), *options, *inputs, *masks)[0]

    torch.library.register_autograd(f"lohe::{name}", backward, setup_context=save)
    torch.library.register_autograd(f"lohe::{name}_backward", _refuse)
    return apply


def watched(tensors: Sequence[Tensor]) -> bool:
    """Whether somebody wants to see the op: a compiler, a dispatch mode, a subclass of Tensor."""
    return (
        torch.compiler.is_compiling()
        or torch.jit.is_tracing()  # pyright: ignore
        or _get_current_dispatch_mode() is not None
        or any(type(x) not in (Tensor, nn.Parameter) for x in tensors)
    )


def call(op: Any, tensors: Sequence[Tensor], *rest: Any) -> tuple[Tensor, ...]:
    """Without the dispatcher, which takes 100 us to find the function, if nobody is watching."""
    return (op if watched(tensors) else op.plain)(*tensors, *rest)


def _refuse(ctx: Any, *grads: Tensor):
    raise RuntimeError(
        "The chunked and triton backends have first derivatives only; for second ones (Hessians, "
        'gradient penalties) call lohe.oscillator_attention with backend="reference".'
    )


class Forward(Function):
    """The forward op as autograd and torch.func know it, with vmap over heads."""

    @staticmethod
    def forward(name: str, options: int, *args: Any):
        op, _, inputs, _ = PAIRS[name]
        tensors = args[options:]
        return call(op, tensors[:inputs], list(tensors[inputs:]), *args[:options])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]):
        name, options, *args = inputs
        n, tensors = PAIRS[name].inputs, args[options:]
        ctx.head, ctx.masks = (name, options, *args[:options]), len(tensors) - n
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)  # of what has no gradient; zeros would be made for it
        ctx.save_for_backward(*tensors[:n], *output, *tensors[n:])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None):
        above = grads[0]
        if above is None:
            gradients = (None,) * PAIRS[ctx.head[0]].inputs
        else:
            tensors = above.contiguous(), *ctx.saved_tensors
            # a function of its own only if somebody may differentiate or map it
            plain = not torch.is_grad_enabled() and not under_transforms()
            gradients = (Backward.forward if plain else Backward.apply)(*ctx.head, *tensors)
        return (*(None for _ in ctx.head), *gradients, *(None for _ in range(ctx.masks)))

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *args: Any):
        return _over_heads(Forward.apply, info, in_dims, args)


class Backward(Function):
    """The backward op, as a function of its own so that vmap(grad(...)) finds a rule for it."""

    @staticmethod
    def forward(name: str, options: int, *args: Any):
        _, op, inputs, outputs = PAIRS[name]
        tensors, n = args[options:], 1 + inputs + outputs
        return call(op, tensors[:n], list(tensors[n:]), *args[:options])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]):
        pass

    backward = staticmethod(_refuse)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *args: Any):
        return _over_heads(Backward.apply, info, in_dims, args)


def _over_heads(
    apply: Callable[..., tuple[Tensor, ...]],
    info: Any,
    mapped: tuple[Any, ...],
    args: tuple[Any, ...],
) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
    """vmap rule: fold the mapped axis of every tensor into its heads, call once, unfold."""
    size: int = info.batch_size
    first, at = next((a, m) for a, m in zip(args, mapped, strict=True) if isinstance(a, Tensor))
    heads = (first if at is None else first.select(at, 0)).shape[1]
    folded = (
        _fold(a, m, size, heads) if isinstance(a, Tensor) else a
        for a, m in zip(args, mapped, strict=True)
    )
    outs = apply(*folded)
    axes = tuple(_head_axis(out.ndim) for out in outs)
    return tuple(o.unflatten(a, (size, heads)) for o, a in zip(outs, axes, strict=True)), axes


def _head_axis(ndim: int) -> int:
    """Second of four axes (batch, heads, ...), else first: (heads, tokens, features), (heads,)."""
    return 1 if ndim == 4 else 0


def _fold(x: Tensor, mapped: int | None, size: int, heads: int) -> Tensor:
    """Move the mapped axis of `x` into its head axis; what broadcasts over both stays as it is."""
    axis = _head_axis(x.ndim - (mapped is not None))
    if mapped is not None:
        x = x.movedim(mapped, axis)
    elif x.shape[axis] == 1 and heads > 1:
        return x
    else:
        x = x.unsqueeze(axis)
    sizes = list(x.shape)
    sizes[axis : axis + 2] = size, heads
    # with one head, flatten leaves a view in another order, which the ops take for their own
    return torch.broadcast_to(x, sizes).flatten(axis, axis + 1).contiguous()
