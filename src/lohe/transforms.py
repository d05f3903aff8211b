"""Which transforms of torch.func a function is called under, and a pack of models under vmap."""

from math import prod
from typing import Any

from torch import Tensor
from torch._C._functorch import (  # pyright: ignore; they have no public name
    CVmapInterpreterPtr,
    TransformType,
    get_interpreter_stack,
    peek_interpreter_stack,
)
from torch._functorch.utils import unwrap_dead_wrappers
from torch.autograd import Function


def apply(function: type[Function], *args: Any) -> Any:
    """`function.apply(*args)`; where no transform is at work, past the look at the signature of its
    forward pass, which takes longer than a launch."""
    if under_transforms():
        return function.apply(*args)
    return super(Function, function).apply(*unwrap_dead_wrappers(args))  # pyright: ignore


def under_transforms() -> bool:
    """Whether there is any."""
    return peek_interpreter_stack() is not None


def only_vmap() -> bool:
    """Whether there is none but vmap: then an autograd function with a rule for vmap serves."""
    return all(level.key() == TransformType.Vmap for level in get_interpreter_stack() or [])


def any_vmap() -> bool:
    """Whether there is vmap, and nothing else."""
    return under_transforms() and only_vmap()


def mapped() -> int:
    """How many calls at once vmap makes of one: the product of its sizes, 1 without any."""
    levels = get_interpreter_stack() or []
    sizes = (CVmapInterpreterPtr(x).batchSize() for x in levels if x.key() == TransformType.Vmap)
    return prod(sizes)


def into_models(x: Tensor, mapped: int | None, size: int) -> Tensor:
    """Move the axis that vmap maps into the first one of `x`, its models; what they share is
    repeated."""
    x = x.expand(size, *x.shape) if mapped is None else x.movedim(mapped, 0)
    return x.flatten(0, 1)
