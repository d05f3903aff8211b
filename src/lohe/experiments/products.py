"""MKL takes AVX2 on AMD processors with AVX-512: two fifths of their speed, or nine tenths."""

from pathlib import Path

import torch

CPUINFO = Path("/proc/cpuinfo")


def quick_products() -> bool:
    """Have oneDNN make float32 products where MKL holds back; whether it does.

    MKL takes AVX2 on processors that are not Intel's; oneDNN takes what there is. PyTorch lets it
    where products may round their operands to bfloat16, which without AMX they do not: it is tried
    here, and undone if they do. Where AVX-512 is twice as wide as AVX2 a step on WikiText-2 takes
    0.6 of the time; on Zen 4, where it is not, products are a tenth faster. Elsewhere nothing
    happens, nor where somebody has chosen `fp32_precision` already. Afterwards
    torch.get_float32_matmul_precision() raises, as it does after any choice by that name.
    """
    of = torch.backends.mkldnn.matmul  # pyright: ignore[reportAttributeAccessIssue]
    if of.fp32_precision != "none" or not held_back():
        return False
    of.fp32_precision = "bf16"
    if rounded():
        of.fp32_precision = "none"
        return False
    return True


def held_back() -> bool:
    """Whether MKL would be asked, on an AMD processor that has AVX-512."""
    if not (torch.backends.mkl.is_available() and torch.backends.mkldnn.is_available()):
        return False
    if not CPUINFO.exists():
        return False
    amd = "AuthenticAMD" in CPUINFO.read_text(encoding="utf-8", errors="replace")
    return amd and torch.backends.cpu.get_cpu_capability() == "AVX512"


def rounded() -> bool:
    """Whether products of float32, as they are made now, round their operands to fewer bits.

    Seen on 1 + 2^-12, of which bfloat16 (8 bits) and TF32 (11) leave 1: as a matrix and in a batch.
    """
    a, b = torch.full((4, 256, 128), 1 + 2**-12), torch.ones(4, 128, 256)
    exact = 128 * (1 + 2**-12)
    return any((made - exact).abs().max().item() > 1e-3 for made in (a[0] @ b[0], a @ b))
