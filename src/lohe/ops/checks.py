"""Checks of values (NaN, couplings that are not positive): a pass over the data, a device sync."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor

from lohe.transforms import under_transforms

_asked: ContextVar[bool | None] = ContextVar("lohe_checks", default=None)


@contextmanager
def checks(enabled: bool = True) -> Iterator[None]:
    """Turn value checks on (or off) for every backend inside the block.

    Without it they run where `backend="reference"` or a callable coupling is asked for. They never
    run while torch compiles, vmaps or captures a CUDA graph.

    >>> import lohe
    >>> with lohe.checks(False):
    ...     pass
    """
    token = _asked.set(enabled)
    try:
        yield
    finally:
        _asked.reset(token)


def active(default: bool) -> bool:
    """Whether to look at values here and now."""
    if torch.compiler.is_compiling() or under_transforms():
        return False
    if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
        return False
    asked = _asked.get()
    return default if asked is None else asked


def require_finite(**tensors: Tensor | None) -> None:
    for name, x in tensors.items():
        if x is not None and not bool(torch.isfinite(x).all()):
            bad = int((~torch.isfinite(x)).sum())
            raise ValueError(
                f"`{name}` of shape {tuple(x.shape)} has {bad} NaN or infinite entries. Look "
                "upstream for an overflow, or wrap the call in `lohe.checks(False)` to let them "
                "through."
            )


def require_positive(couplings: Tensor, allowed: Tensor | None) -> None:
    """Eq. 2 asks for σ > 0 wherever a key is allowed."""
    w = couplings if allowed is None else couplings.masked_fill(~allowed, 1.0)
    lowest = w.amin().item()  # NaN if any is
    if not lowest > 0 or w.amax().item() == float("inf"):
        raise ValueError(
            "The coupling function must return positive, finite couplings (Eq. 2: w_ij > 0); the "
            f"smallest is {lowest}. Add a positive floor, as relu(x) + 1e-3 does."
        )


def require_not_overflown(drive: Tensor) -> None:
    """Exponential couplings are kept from overflowing only where their scale does not matter."""
    if active(default=True) and not bool(torch.isfinite(drive).all()):
        raise ValueError(
            "The drive of exponential couplings is not finite: the inputs are not, or exp(f·g / "
            "sqrt(d_h)) overflows, which a device sees as it is, where exact settling may divide "
            "each row by its largest. Keep scores below 80, or use another coupling; "
            "`lohe.checks(False)` lets it through."
        )
