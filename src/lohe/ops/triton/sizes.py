"""Triton's helpers for sizes, which cost microseconds: theirs can be called from a kernel, too."""


def cdiv(n: int, size: int) -> int:
    """How many pieces of `size` hold n."""
    return -(-n // size)


def next_power_of_2(n: int) -> int:
    """The least that is not below n >= 1."""
    return 1 << (int(n) - 1).bit_length()
