"""Kernels of dropout, alone or behind GELU, for a pack of models."""
# Triton is not installed everywhere, and its decorator does not tell how a kernel is launched
# pyright: reportMissingImports=false, reportIndexIssue=false, reportCallIssue=false

from typing import no_type_check

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor

from lohe.ops.triton.sizes import cdiv

QUARTER = 512  # entries of a program over four: as many random numbers come from one counter
WARPS = 4


def forward(
    x: Float[Tensor, "models entries"], seed: Int[Tensor, " models"], p: float, gelu: bool
) -> Float[Tensor, "models entries"]:
    """m x or m GELU(x); m is drawn."""
    return _run(x, x, seed, p, gelu=gelu, back=False)


def backward_of_gelu(
    g: Float[Tensor, "models entries"],
    x: Float[Tensor, "models entries"],
    seed: Int[Tensor, " models"],
    p: float,
) -> Float[Tensor, "models entries"]:
    """m GELU'(x) g, with the m of the forward pass."""
    return _run(x, g, seed, p, gelu=True, back=True)


def _run(x: Tensor, g: Tensor, seed: Tensor, p: float, *, gelu: bool, back: bool) -> Tensor:
    models, entries = x.shape
    out = torch.empty_like(x)
    if entries:
        with torch.cuda.device_of(x):
            _drop[(cdiv(entries, 4 * QUARTER), models)](
                x, g, seed, out, entries, p, 1 / (1 - p),
                GELU=gelu, BACK=back, QUARTER=QUARTER, num_warps=WARPS,
            )  # fmt: skip
    return out


@triton.jit
@no_type_check
def _drop(
    p_x, p_g, p_seed, p_out, entries, p, scale,
    GELU: tl.constexpr, BACK: tl.constexpr, QUARTER: tl.constexpr,
):  # fmt: skip
    block, model = tl.program_id(0), tl.program_id(1).to(tl.int64)
    seed = tl.load(p_seed + model)
    counter = block * QUARTER + tl.arange(0, QUARTER)
    u0, u1, u2, u3 = tl.rand4x(seed, counter)
    first = block.to(tl.int64) * (4 * QUARTER) + tl.arange(0, QUARTER)
    p_x, p_g, p_out = p_x + model * entries, p_g + model * entries, p_out + model * entries
    _part(p_x, p_g, p_out, first, entries, u0, p, scale, GELU, BACK)
    _part(p_x, p_g, p_out, first + QUARTER, entries, u1, p, scale, GELU, BACK)
    _part(p_x, p_g, p_out, first + 2 * QUARTER, entries, u2, p, scale, GELU, BACK)
    _part(p_x, p_g, p_out, first + 3 * QUARTER, entries, u3, p, scale, GELU, BACK)


@triton.jit
@no_type_check
def _part(p_x, p_g, p_out, at, entries, u, p, scale, GELU: tl.constexpr, BACK: tl.constexpr):
    inside = at < entries
    x = tl.load(p_x + at, mask=inside, other=0.0)
    if GELU:
        below = 0.5 + 0.5 * tl.erf(x * 0.7071067811865476)
        if BACK:
            g = tl.load(p_g + at, mask=inside, other=0.0)
            x = g * (below + x * tl.exp(-0.5 * x * x) * 0.3989422804014327)
        else:
            x = x * below
    tl.store(p_out + at, tl.where(u >= p, x * scale, 0.0), mask=inside)
