"""Kernels run on a CUDA device or in the interpreter; elsewhere only `test_interpreter.py` does."""

from pathlib import Path

import pytest
import torch

from kernels import INTERPRETED

RUNS_THE_OTHERS = "test_interpreter.py"
HERE = [path.name for path in Path(__file__).parent.glob("test_*.py")]
if INTERPRETED:
    collect_ignore = [RUNS_THE_OTHERS]
elif not torch.cuda.is_available():
    collect_ignore = [name for name in HERE if name != RUNS_THE_OTHERS]


@pytest.fixture
def deterministic():
    """PyTorch's deterministic mode, which also fills torch.empty with NaN: what is not written
    shows."""
    torch.use_deterministic_algorithms(True)
    assert torch.empty_like(torch.ones(2, 3)).isnan().all()
    yield
    torch.use_deterministic_algorithms(False)
