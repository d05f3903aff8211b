"""A GPU with less shared memory takes smaller tiles."""
# pyright: reportMissingImports=false

from collections.abc import Callable, Hashable, Sequence
from typing import Any

from triton.runtime.errors import OutOfResources

_FITS: dict[Hashable, int] = {}  # the number of the tile that was taken


def launch(kernel: Hashable, tiles: Sequence[Any], go: Callable[[Any], object]) -> None:
    """`go` with the first of the tiles that the device has room for; later calls start with it.

    `kernel` says what is compiled and where, so that the same answer holds again.
    """
    for n in range(_FITS.get(kernel, 0), len(tiles)):
        try:
            go(tiles[n])
        except OutOfResources:
            if n + 1 == len(tiles):
                raise
        else:
            _FITS[kernel] = n
            return
