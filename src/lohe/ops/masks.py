"""Which keys a query may use, kept as the pieces it was given in, so that no T x T mask is made."""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from jaxtyping import Bool
from torch import Tensor


@dataclass(frozen=True)
class Allowed:
    """True where query i may use key j: the conjunction of `parts`, and of causality.

    Each part is boolean and broadcasts to (batch, heads, i, j). Causality aligns bottom-right: the
    last query is the last key, so query i sees the keys j <= i + (keys - queries), as decoding
    needs it.
    """

    queries: int
    keys: int
    device: torch.device
    causal: bool = False
    parts: tuple[Bool[Tensor, "_ _ _ _"], ...] = ()

    @property
    def by_key(self) -> bool:
        """Whether, causality aside, every query has the same keys (what a linear readout needs)."""
        return all(part.shape[2] == 1 for part in self.parts)

    def dense(self) -> Bool[Tensor, "_ _ i j"] | None:
        """All of it as one tensor, or None where everything is allowed."""
        return self.tile(slice(None), slice(None), 0, self.queries, 0, self.keys)

    def tile(
        self, batch: slice, heads: slice, i0: int, i1: int, j0: int, j1: int
    ) -> Bool[Tensor, "_ _ _ _"] | None:
        """The block of queries i0:i1 and keys j0:j1; None where all of it is allowed."""
        tile = None
        for part in self.parts:
            tile = _meet(tile, _block(part, (batch, heads, slice(i0, i1), slice(j0, j1))))
        offset = self.keys - self.queries
        if self.causal and j1 - 1 > i0 + offset:
            i = torch.arange(i0, i1, device=self.device)[:, None]
            j = torch.arange(j0, j1, device=self.device)
            tile = _meet(tile, (j <= i + offset)[None, None])
        return tile


def met(parts: Iterable[Bool[Tensor, "_ _ _ _"]]) -> Bool[Tensor, "_ _ _ _"] | None:
    """Their conjunction, as small as it comes; None without any."""
    all_of = None
    for part in parts:
        all_of = _meet(all_of, part)
    return all_of


def strides(mask: Bool[Tensor, "_ _ _ _"] | None) -> tuple[int, ...]:
    """Of its four axes, 0 where it broadcasts."""
    if mask is None:
        return 0, 0, 0, 0
    return tuple(0 if n == 1 else s for n, s in zip(mask.shape, mask.stride(), strict=True))


def _block(part: Tensor, where: tuple[slice, ...]) -> Tensor:
    """Slice every axis that is not broadcast."""
    return part[tuple(slice(None) if n == 1 else s for n, s in zip(part.shape, where, strict=True))]


def _meet(a: Tensor | None, b: Tensor) -> Tensor:
    return b if a is None else a & b
