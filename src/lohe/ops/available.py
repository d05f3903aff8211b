"""What the Triton kernels need: known without importing them."""

from importlib.util import find_spec

import torch

HAS_TRITON = find_spec("triton") is not None


@torch.compiler.assume_constant_result
def serves(device: torch.device) -> bool:
    """Whether the matrix units have TF32 and bfloat16, and assembly is NVIDIA's."""
    return torch.version.cuda is not None and torch.cuda.get_device_capability(device) >= (8, 0)


@torch.compiler.assume_constant_result
def shared_memory(device: torch.device) -> float:
    """Bytes that a block of threads can share; on a CPU there is no such bound."""
    if device.type != "cuda":
        return float("inf")
    return torch.cuda.get_device_properties(device).shared_memory_per_block_optin
