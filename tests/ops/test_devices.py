"""Kernels for GPUs that are not there."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import lohe
from lohe.ops import dispatch
from lohe.ops.available import HAS_TRITON

CONSUMER = 101_376  # bytes of shared memory of RTX 30, 40 and 50, A10, L4
A100 = 166_912


@pytest.mark.slow
@pytest.mark.skipif(not HAS_TRITON, reason="needs Triton")
@pytest.mark.parametrize(("capability", "shared", "refused"), [(80, A100, 1), (86, CONSUMER, 0)])
def test_kernels_compile_and_fit(capability, shared, refused):
    script = Path(__file__).with_name("for_device.py")
    environment = {name: x for name, x in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["TRITON_DISABLE_LINE_INFO"] = "1"  # a debugger's, and slow to compile
    done = subprocess.run(
        [sys.executable, str(script), str(capability), str(shared)],
        capture_output=True, text=True, check=False, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    *said, tiles = done.stdout.splitlines()
    assert len(said) == refused
    assert all("more shared memory than this GPU has" in reason for reason in said)
    taken = {int(n) for n in tiles.split(":")[1].split()}
    assert taken != {0}  # smaller tiles, since there is less room than on an H100


@pytest.mark.skipif(not HAS_TRITON, reason="needs Triton")
@pytest.mark.parametrize(
    ("d_h", "d_osc", "shared"), [(256, 2, CONSUMER), (128, 64, CONSUMER), (256, 33, A100)]
)
def test_what_never_fits_is_refused_beforehand(monkeypatch, d_h, d_osc, shared):
    monkeypatch.setattr(dispatch, "INTERPRETED", True)
    monkeypatch.setattr(dispatch, "shared_memory", lambda _: shared)
    f, g, v = (torch.randn(1, 1, 4, d_h) for _ in range(3))
    with pytest.raises(ValueError, match=f"float32 with d_h = {d_h}, d_osc = {d_osc}"):
        lohe.oscillator_attention(f, g, v, torch.randn(1, 4, d_osc), backend="triton")
