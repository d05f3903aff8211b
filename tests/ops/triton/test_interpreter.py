"""The other files of this folder on a CPU."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch


@pytest.mark.skipif(torch.cuda.is_available(), reason="the same tests run on the device")
def test_the_kernels_in_the_interpreter():
    # Triton decides when it is imported whether it interprets: a process of its own
    pytest.importorskip("triton")
    call = [sys.executable, "-m", "pytest", "-q", str(Path(__file__).parent)]
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    done = subprocess.run(call, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stdout[-5000:]
