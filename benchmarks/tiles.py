"""Which tiles make the Triton kernels fastest on this GPU?

    python benchmarks/tiles.py                      # a minute; prints, writes nothing
    python benchmarks/tiles.py --d-h 128 --heads 16 --tokens 16384

Times the forward kernel and the two of the backward pass by themselves, for each of the tiles below
and for relu and softplus, causal and not. `tiles` of `lohe.ops.triton.attention` holds what was
fastest on an H200; a tile is (rows of a step, warps, stages, the most registers).
"""

import argparse
import itertools
import statistics
from functools import partial
from unittest.mock import patch

import torch

from lohe import sphere
from lohe.ops.triton import attention, fitting
from lohe.ops.triton.attention import Tiles

STEPS, WARPS, STAGES, REGISTERS = (64, 128), (4,), (2, 3, 4), (None, 128, 168)
ROUNDS = 5


def milliseconds(work) -> float:
    """The median of a few rounds, after one that compiles."""
    work()
    events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(ROUNDS)]
    for begin, end in events:
        begin.record()
        work()
        end.record()
    torch.cuda.synchronize()
    return statistics.median(begin.elapsed_time(end) for begin, end in events)


def only(kind: str):
    """Leave the other kernels of a pass out."""
    launch = attention._launch

    def one(name, *rest):
        if name == kind:
            launch(name, *rest)

    return patch.object(attention, "_launch", one)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--d-h", type=int, default=64)
    parser.add_argument("--heads", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=16384)
    parser.add_argument("--d-osc", type=int, default=2)
    parser.add_argument("--block", type=int, default=attention.BLOCK, help="rows of a program")
    given = parser.parse_args()
    attention.BLOCK = given.block
    place = {"device": "cuda", "generator": torch.Generator("cuda").manual_seed(0)}
    shape = (1, given.heads, given.tokens, given.d_h)
    f, g, v = (torch.randn(*shape, **place).bfloat16() for _ in range(3))
    r = sphere.uniform(given.heads, given.tokens, given.d_osc, **place)
    dh, scale = torch.randn(*shape[:3], given.d_osc, **place), given.d_h**-0.5
    print(
        torch.cuda.get_device_name(),
        torch.__version__,
        shape,
        f"bfloat16, blocks of {given.block}, milliseconds",
    )
    cases = list(itertools.product(("relu", "softplus"), (False, True)))
    print(" " * 26, *(f"{c} {'causal' if k else 'all':6}" for c, k in cases), sep="  ")
    kinds, cuts = ("forward", "queries", "keys"), (STEPS, WARPS, STAGES, REGISTERS)
    for kind, *cut in itertools.product(kinds, *cuts):
        times = []
        for coupling, causal in cases:
            call = attention._call(f, g, v, r, [], coupling, causal, False)
            packed, sums = attention._prepared(call)
            tile = patch.object(attention, "tiles", lambda *_, cut=cut: (Tiles(*cut),))
            fitting._FITS.clear()
            if kind == "forward":
                work = partial(attention._launch_forward, call, packed, sums, scale, 1.0)
            else:
                work = partial(attention._launch_backward, call, dh, dh, scale)
            with tile, only(kind):
                try:
                    times.append(milliseconds(work))
                except fitting.OutOfResources:
                    times.append(float("nan"))
        print(f"{kind:8} {cut!s:18}", *(f"{t:13.3f}" for t in times), sep="  ", flush=True)


if __name__ == "__main__":
    main()
