"""Does any kernel touch memory that is not its own? Forward and backward under compute-sanitizer.

    python benchmarks/sanitize.py                 # every case below, a minute or two each
    python benchmarks/sanitize.py relu products   # some of them

NVIDIA's compute-sanitizer comes with the CUDA toolkit; it is looked for in $PATH and under
$CUDA_HOME. Sizes are odd, so that every edge of a tile is met. Exits with 1 on any error.
"""

import argparse
import os
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import torch

from lohe.models import Oscillator
from lohe.ops import drop, oscillator_attention
from lohe.ops.triton.product import product_and_sums

TOKENS, HEADS = 205, 2
ATTENTION = {  # name: dtype, features, mechanism
    "relu": (torch.bfloat16, 64, Oscillator(coupling="relu")),
    "softplus": (torch.float32, 64, Oscillator(d_osc=8)),
    "sharp": (torch.bfloat16, 64, Oscillator(d_osc=32, sharpness=4, coupling="relu")),
    "wide": (torch.float32, 256, Oscillator(d_osc=64, sharpness=4)),
}


def attention(name: str) -> None:
    """Forward and backward, causal."""
    dtype, width, m = ATTENTION[name]
    rng = torch.Generator("cuda").manual_seed(0)
    how = {"generator": rng, "device": "cuda"}
    f, g, v = (torch.randn(2, HEADS, TOKENS, width, **how).to(dtype) for _ in range(3))
    anchors = torch.randn(HEADS, TOKENS, m.d_osc, **how)
    anchors = anchors / anchors.norm(dim=-1, keepdim=True)
    inputs = [x.requires_grad_() for x in (f, g, v, anchors)]
    options = {"coupling": m.coupling, "sharpness": m.sharpness, "causal": True}
    out = oscillator_attention(*inputs, **options, backend="triton")
    out.square().sum().backward()
    _finite(out, *(x.grad for x in inputs))


def products() -> None:
    """Float32 matrices in three parts, and in one, as a pack of models multiplies them."""
    rng = torch.Generator("cuda").manual_seed(0)
    for rows, terms, columns in ((205, 133, 301), (70, 1000, 129)):
        a = torch.randn(3, rows, terms, generator=rng, device="cuda")
        b = torch.randn(3, terms, columns, generator=rng, device="cuda")
        _finite(*product_and_sums(a, b), *product_and_sums(a, b, exact=False))


def dropout() -> None:
    """With GELU before it and without, as a pack of models drops."""
    rng = torch.Generator("cuda").manual_seed(0)
    for gelu in (False, True):
        x = torch.randn(3, 5, 1021, generator=rng, device="cuda").requires_grad_()
        out = drop.packed(x, 0.1, rng, gelu=gelu)
        out.square().sum().backward()
        _finite(out, x.grad)


CASES = {name: partial(attention, name) for name in ATTENTION}
CASES |= {"products": products, "dropout": dropout}


def _finite(*tensors: torch.Tensor | None) -> None:
    if any(x is None or not x.isfinite().all() for x in tensors):
        raise SystemExit("a result is not finite")


def _tool() -> str:
    home = Path(os.environ.get("CUDA_HOME", "/usr/local/cuda"))
    places = [os.environ.get("PATH", ""), str(home / "bin"), str(home / "compute-sanitizer")]
    found = shutil.which("compute-sanitizer", path=os.pathsep.join(places))
    if not found:
        raise SystemExit("compute-sanitizer is not there: install the CUDA toolkit, or set PATH.")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("cases", nargs="*", default=list(CASES), help=f"of {', '.join(CASES)}")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if unknown := [name for name in args.cases if name not in CASES]:
        raise SystemExit(f"{', '.join(unknown)}: not known. Choose from {', '.join(CASES)}.")
    if args.inside:
        for name in args.cases:
            CASES[name]()
        torch.cuda.synchronize()
        return
    tool, failed = _tool(), False
    for name in args.cases:
        command = [tool, "--tool", "memcheck", "--error-exitcode", "9", sys.executable, __file__]
        done = subprocess.run([*command, "--inside", name], capture_output=True, text=True)
        said = [x for x in done.stdout.splitlines() if "ERROR SUMMARY" in x] or ["no summary"]
        print(f"{name:10} {said[-1].lstrip('= ')}, exit {done.returncode}", flush=True)
        if done.returncode:
            failed = True
            print(done.stdout[-4000:], done.stderr[-2000:])
    raise SystemExit(failed)


if __name__ == "__main__":
    main()
