"""Which of a kernel's tiles a device gets.

On an H200 or H100 it is the first, which was measured there. On any other GPU the first large call
times a few of them, once: it takes seconds, most of them to compile, and the answer stays in
Triton's cache on disk. A device without room for a tile takes a smaller one.
"""
# pyright: reportMissingImports=false

import json
from collections.abc import Callable, Hashable, Sequence
from functools import cache
from hashlib import sha256
from typing import Any

import torch
import triton
from torch import Tensor
from triton.runtime.cache import get_cache_manager
from triton.runtime.errors import OutOfResources

from lohe.version import __version__

MEASURED = "H200", "H100", "GH200"  # GPUs whose first tiles were measured, or that share the chip
ENOUGH = 2**28  # pairs of query and key: below, a tenth of a millisecond says little
TRIED, ROUNDS = 3, 5
FILE = "tile.json"
GAIN = 0.97  # of the first tile's time, that another has to beat

# numbers of tiles, by kernel: the first that there is room for, and the fastest found
_FITS: dict[Hashable, int] = {}
_FASTEST: dict[Hashable, int] = {}

Go = Callable[[Any], object]


def launch(
    kernel: tuple[Hashable, ...],
    tiles: Sequence[Any],
    go: Go,
    device: torch.device,
    pairs: int,
    adds_to: Tensor | None = None,
) -> None:
    """`go` with one of the tiles.

    `kernel` says what is compiled and where, so that the same answer holds again; `adds_to` is what
    the kernel adds to rather than writes. Tiles change the last bits of a result, so deterministic
    mode takes the first that fits.
    """
    if torch.are_deterministic_algorithms_enabled():
        known = _FITS
    else:
        if kernel not in _FASTEST and _to_be_tuned(device, pairs):
            _FASTEST[kernel] = _tuned(kernel, tiles, go, device, adds_to)
        known = _FASTEST if kernel in _FASTEST else _FITS
    for n in range(known.get(kernel, 0), len(tiles)):
        try:
            go(tiles[n])
        except OutOfResources:
            if n + 1 == len(tiles):
                raise
        else:
            known[kernel] = n
            return


def _to_be_tuned(device: torch.device, pairs: int) -> bool:
    """Large enough, on an unknown GPU, and not while a CUDA graph is captured."""
    return (
        pairs >= ENOUGH and not _measured(device) and not torch.cuda.is_current_stream_capturing()
    )


@cache
def _measured(device: torch.device) -> bool:
    if device.type != "cuda":
        return True
    return any(name in torch.cuda.get_device_name(device) for name in MEASURED)


def _tuned(
    kernel: tuple[Hashable, ...],
    tiles: Sequence[Any],
    go: Go,
    device: torch.device,
    adds_to: Tensor | None,
) -> int:
    """The number of the fastest tile, from disk if it was found before."""
    gpu = torch.cuda.get_device_name(device)
    said = repr((gpu, triton.__version__, __version__, kernel, tiles))
    kept = get_cache_manager(sha256(said.encode()).hexdigest())
    path = kept.get_file(FILE)
    if path is None:
        before = None if adds_to is None else adds_to.clone()
        times = [_milliseconds(go, tile) for tile in tiles[:TRIED]]
        if adds_to is not None and before is not None:
            adds_to.copy_(before)
        kept.put(json.dumps({"milliseconds": times, "of": said}), FILE, binary=False)
    else:
        with open(path) as file:
            times = json.load(file)["milliseconds"]
    return _fastest(times)


def _fastest(times: Sequence[float]) -> int:
    """The first, unless another is clearly faster; infinite is what there is no room for."""
    n = min(range(len(times)), key=times.__getitem__)
    return n if times[n] < GAIN * times[0] else 0


def _milliseconds(go: Go, tile: Any) -> float:
    """The shortest of a few rounds, after one that compiles."""
    try:
        go(tile)
    except OutOfResources:
        return float("inf")
    rounds = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(ROUNDS)]
    for begin, end in rounds:
        begin.record()
        go(tile)
        end.record()
    torch.cuda.synchronize()
    return min(begin.elapsed_time(end) for begin, end in rounds)
