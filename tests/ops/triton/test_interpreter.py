"""The other files of this folder on a CPU."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

HERE = Path(__file__)
OTHERS = sorted(path.name for path in HERE.parent.glob("test_*.py") if path != HERE)


@pytest.mark.skipif(torch.cuda.is_available(), reason="the same tests run on the device")
@pytest.mark.parametrize("file", OTHERS)
def test_the_kernels_in_the_interpreter(file):
    # Triton decides when it is imported whether it interprets: a process of its own
    pytest.importorskip("triton")
    call = [sys.executable, "-m", "pytest", "-q", str(HERE.with_name(file))]
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    done = subprocess.run(call, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stdout[-5000:]
