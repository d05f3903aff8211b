"""Does the chunked path keep memory linear in T?

    python benchmarks/memory.py     # half a minute; writes results/memory.json

Peak resident memory of a fresh process (Linux) that runs one forward and one backward pass in
float32, one head, causal, less what it held before. Its time is a matter of `lohe bench`, which
also has the memory on a GPU.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

import torch
from torch import Tensor

import lohe
from harness import save

D_H, D_OSC, COUPLING = 64, 2, "relu"
TOKENS = (1024, 2048, 4096, 8192, 16384, 32768)


def inputs(tokens: int) -> list[Tensor]:
    rng = torch.Generator().manual_seed(0)
    shapes = [(1, 1, tokens, D_H)] * 3 + [(1, tokens, D_OSC)]
    return [torch.randn(s, generator=rng).requires_grad_() for s in shapes]


def passes(x: list[Tensor]) -> None:
    out = lohe.oscillator_attention(*x, coupling=COUPLING, causal=True, backend="chunked")
    torch.autograd.grad(out, x, torch.ones_like(out))


def peak_megabytes(tokens: int) -> float:
    """In a process of its own: the peak belongs to one size only."""
    call = [sys.executable, __file__, "--inside", str(tokens)]
    return json.loads(subprocess.run(call, capture_output=True, text=True, check=True).stdout)


def one_size(tokens: int) -> None:
    """Peak memory above inputs and libraries, printed in MB (10^6 bytes)."""
    passes(inputs(256))
    x = inputs(tokens)
    Path("/proc/self/clear_refs").write_text("5")  # Linux: start the high-water mark again
    before = _high_water()
    passes(x)
    print((_high_water() - before) * 1024 / 1e6)


def _high_water() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))  # KiB


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--inside", type=int, default=0, help=argparse.SUPPRESS)
    if inside := parser.parse_args().inside:
        one_size(inside)
    else:
        every_size()


def every_size() -> None:
    """The table, and the file."""
    rows = []
    for tokens in TOKENS:
        megabytes = peak_megabytes(tokens)
        rows.append({"tokens": tokens, "megabytes": megabytes})
        print(f"{tokens:>8} tokens {megabytes:8.1f} MB {1e3 * megabytes / tokens:7.2f} kB a token")
    setting = {"heads": 1, "d_h": D_H, "d_osc": D_OSC, "coupling": COUPLING, "dtype": "float32"}
    print(save("memory", {"setting": setting, "memory": rows}))


if __name__ == "__main__":
    main()
