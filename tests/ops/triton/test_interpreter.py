"""The other files of this folder on a CPU, and `tasks/interpreted.py`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

HERE = Path(__file__)
LONGEST = HERE.with_name("test_attention.py")
OTHERS = sorted(path for path in HERE.parent.glob("test_*.py") if path not in (HERE, LONGEST))
OTHERS.append(HERE.parents[2] / "tasks" / "interpreted.py")


@pytest.mark.skipif(torch.cuda.is_available(), reason="the same tests run on the device")
@pytest.mark.slow
@pytest.mark.parametrize("files", [[LONGEST], OTHERS], ids=["attention", "others"])
def test_the_kernels_in_the_interpreter(files):
    # Triton decides when it is imported whether it interprets: a process of their own
    pytest.importorskip("triton")
    call = [sys.executable, "-m", "pytest", "-q", *map(str, files)]
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    done = subprocess.run(call, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stdout[-5000:]
