"""Where a number was measured, in words."""

import os
import platform
import shutil
import subprocess
from importlib import metadata
from pathlib import Path

import torch

from lohe.version import code_version


def machine() -> dict[str, object]:
    """Processor, cores, GPU and versions; of lohe with a digest of its code."""
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return {
        "processor": processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "OMP_PROC_BIND": os.environ.get("OMP_PROC_BIND"),
        "gpu": gpu,
        "driver": _driver() if gpu else None,
        "cuda": torch.version.cuda,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "triton": version("triton"),
        "lohe": code_version(),
    }


def version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _driver() -> str | None:
    """NVIDIA's, which torch does not tell."""
    if not (tool := shutil.which("nvidia-smi")):
        return None
    query = [tool, "--query-gpu=driver_version", "--format=csv,noheader"]
    found = subprocess.run(query, capture_output=True, text=True, check=False).stdout.split()
    return found[0] if found else None


def processor() -> str:
    """Its name, where the system tells."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8", errors="replace").splitlines() if info.exists() else []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or platform.machine())
