"""Triton's helpers for sizes, which cost microseconds: theirs can be called from a kernel, too.
And how tensors lie in memory, as kernels read them."""

from torch import Tensor

FAR = 2**31  # numbers from the first of a head on: kernels count them with 32 bits


def cdiv(n: int, size: int) -> int:
    """How many pieces of `size` hold n."""
    return -(-n // size)


def next_power_of_2(n: int) -> int:
    """The least that is not below n >= 1."""
    return 1 << (int(n) - 1).bit_length()


def rows_together(x: Tensor) -> Tensor:
    """(batch, heads, tokens, features) as it is if the features of a token lie side by side and the
    tokens of a head not too far from each other, else copied."""
    near = (x.shape[2] - 1) * x.stride(2) + x.shape[3] <= FAR
    return x if near and x.stride(3) == 1 else x.contiguous()
