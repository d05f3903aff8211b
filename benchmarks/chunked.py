"""Does the chunked path keep memory linear in T, and how fast is it beside SDPA on a CPU?

    python benchmarks/chunked.py             # about three minutes; writes results/chunked.json
    python benchmarks/chunked.py --quick     # a few small sizes, writes nothing

Memory: peak resident memory of a fresh process (Linux) that runs one forward and one backward pass,
less what it held before, for T from 1k to 32k. Time: forward, and forward plus backward, of
`lohe.oscillator_attention(backend="chunked")` and of PyTorch's SDPA, in turns in one process, in
float32. Ratio = SDPA / ours: above 1 we are faster. Outputs are compared with the float64 reference
before the clock starts.
"""

import argparse
import json
import statistics
import subprocess
import sys
from functools import partial
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

import lohe
from harness import in_turns, save, spread

HEADS, D_H, D_OSC = 8, 64, 2
MEMORY_TOKENS = (1024, 2048, 4096, 8192, 16384, 32768)
TIME_TOKENS = (128, 256, 512, 1024, 2048, 4096)
COUPLINGS = ("relu", "softplus")


def inputs(tokens: int, heads: int = HEADS) -> list[Tensor]:
    rng = torch.Generator().manual_seed(0)
    shapes = [(1, heads, tokens, D_H)] * 3 + [(heads, tokens, D_OSC)]
    return [torch.randn(s, generator=rng).requires_grad_() for s in shapes]


def ours(x: list[Tensor], **call) -> Tensor:
    return lohe.oscillator_attention(*x, backend="chunked", **call)


def sdpa(x: list[Tensor], causal: bool) -> Tensor:
    return F.scaled_dot_product_attention(x[0], x[1], x[2], is_causal=causal)


def backward(out: Tensor, x: list[Tensor]) -> None:
    torch.autograd.grad(out, x, torch.ones_like(out), allow_unused=True)


def check(tokens: int = 300) -> None:
    """No clock for wrong answers."""
    x = inputs(tokens)
    for coupling in COUPLINGS:
        for causal in (False, True):
            exact = lohe.oscillator_attention(
                *(t.double() for t in x), coupling=coupling, causal=causal, backend="reference"
            )
            error = (ours(x, coupling=coupling, causal=causal) - exact).abs().max().item()
            if not error < 1e-4:
                raise SystemExit(f"chunked is wrong by {error:.1e} ({coupling}, causal={causal})")


def peak_megabytes(tokens: int) -> float:
    """In a process of its own: the peak belongs to one size only."""
    call = [sys.executable, __file__, "--one-size", str(tokens)]
    return json.loads(subprocess.run(call, capture_output=True, text=True, check=True).stdout)


def one_size(tokens: int) -> None:
    """Peak memory of forward and backward above inputs and libraries, printed in MB."""
    warm = inputs(256, heads=1)
    backward(ours(warm, coupling="relu", causal=True), warm)
    x = inputs(tokens, heads=1)
    Path("/proc/self/clear_refs").write_text("5")  # Linux: start the high-water mark again
    before = _high_water()
    backward(ours(x, coupling="relu", causal=True), x)
    print((_high_water() - before) / 1024)


def _high_water() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def times(tokens: int, coupling: str, causal: bool) -> dict[str, object]:
    x = inputs(tokens)
    repeats = max(5, min(30, 20_000 // tokens))
    mine, theirs = partial(ours, x, coupling=coupling, causal=causal), partial(sdpa, x, causal)

    def without_gradient(run):
        with torch.no_grad():
            run()

    row: dict[str, object] = {"tokens": tokens, "coupling": coupling, "causal": causal}
    for name, wrap in (("forward", without_gradient), ("both", lambda run: backward(run(), x))):
        a, b = in_turns([partial(wrap, mine), partial(wrap, theirs)], repeats)
        row[name] = {"ours_s": spread(a), "sdpa_s": spread(b)}
        row[f"{name}_ratio"] = statistics.median(b) / statistics.median(a)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description="Memory and time of the chunked path.")
    parser.add_argument("--quick", action="store_true", help="a few small sizes, nothing written")
    parser.add_argument("--one-size", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one_size:
        one_size(args.one_size)
        return
    check()
    sizes = (MEMORY_TOKENS[:2], TIME_TOKENS[:2]) if args.quick else (MEMORY_TOKENS, TIME_TOKENS)
    memory = []
    print("peak memory, forward + backward, one head, causal, relu")
    for tokens in sizes[0]:
        memory.append({"tokens": tokens, "megabytes": peak_megabytes(tokens)})
        megabytes = memory[-1]["megabytes"]
        print(f"{tokens:>8} tokens {megabytes:8.1f} MB {1e3 * megabytes / tokens:7.2f} kB a token")
    rows = []
    print(f"\nSDPA time / ours, float32, {HEADS} heads x {D_H}, d_osc = {D_OSC}, p = 1")
    print(f"{'tokens':>8} {'coupling':>9} {'causal':>7} {'forward':>8} {'both':>6}")
    for tokens in sizes[1]:
        for coupling in COUPLINGS:
            for causal in (False, True):
                row = times(tokens, coupling, causal)
                rows.append(row)
                ratios = f"{row['forward_ratio']:8.2f} {row['both_ratio']:6.2f}"
                print(f"{tokens:>8} {coupling:>9} {causal!s:>7} {ratios}", flush=True)
    if not args.quick:
        setting = {"heads": HEADS, "d_h": D_H, "d_osc": D_OSC, "dtype": "float32", "sharpness": 1}
        print(save("chunked", {"setting": setting, "memory": memory, "time": rows}))


if __name__ == "__main__":
    main()
