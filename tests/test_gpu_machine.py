"""The tests of the GPU can be collected where little more than PyTorch and pytest is installed."""

import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
ABSENT = ("beartype", "torchode", "librosa", "tensorboard", "xdist")
COLLECT = f"""
import sys
for name in {ABSENT}:
    sys.modules[name] = None
import pytest
options = ["-q", "-o", "addopts=", "--import-mode=importlib", "-p", "no:cacheprovider"]
sys.exit(pytest.main([*options, "--collect-only", "tests/gpu", "tests/ops/triton"]))
"""


def test_nothing_else_is_imported():
    paths = ":".join(str(REPOSITORY / name) for name in ("src", "tests", "benchmarks"))
    found = subprocess.run(
        [sys.executable, "-c", COLLECT],
        env={"PYTHONPATH": paths, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "TRITON_INTERPRET": "1"},
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
    )
    assert found.returncode == 0, found.stdout[-2000:]
    assert "tests/gpu/test_training.py::" in found.stdout
