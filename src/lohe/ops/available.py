"""What the Triton kernels need: known without importing them."""

from collections.abc import Callable
from importlib.util import find_spec
from typing import TypeVar

import torch
from torch import Tensor

from lohe.transforms import any_vmap

HAS_TRITON = find_spec("triton") is not None

F = TypeVar("F", bound=Callable[..., object])


def constant(function: F) -> F:
    """torch.compiler.assume_constant_result without its import of torch._dynamo and triton, which
    takes longer than all of lohe: the mark is all that it sets."""
    function._dynamo_marked_constant = True  # pyright: ignore
    return function


def tf32_allowed() -> bool:
    """Whether float32 products may be TF32, by whichever of PyTorch's three switches it was said;
    reading an older one after a newer was set raises."""
    return torch.backends.cuda.matmul.fp32_precision == "tf32"


@constant
def serves(device: torch.device) -> bool:
    """Whether the matrix units have TF32 and bfloat16, and assembly is NVIDIA's."""
    return torch.version.cuda is not None and torch.cuda.get_device_capability(device) >= (8, 0)


@constant
def shared_memory(device: torch.device) -> float:
    """Bytes that a block of threads can share; on a CPU there is no such bound."""
    if device.type != "cuda":
        return float("inf")
    return torch.cuda.get_device_properties(device).shared_memory_per_block_optin


def serves_pack(x: Tensor) -> bool:
    """Of a pack of models: float32 on CUDA, under vmap and no other transform of torch.func."""
    return (
        x.is_cuda
        and x.dtype == torch.float32
        and not torch.compiler.is_compiling()
        and not torch.is_autocast_enabled("cuda")
        and HAS_TRITON
        and serves(x.device)
        and any_vmap()
    )
