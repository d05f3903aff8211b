"""What this machine offers lohe, what is missing, and the command that fixes it."""

import os
import platform
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch

from lohe import __version__, sphere
from lohe.bench.machine import version
from lohe.experiments.products import held_back
from lohe.tasks.root import data_root
from lohe.tasks.verify import list_corpora

PACKAGES = ("torch", "triton", "numpy", "scipy", "safetensors", "jaxtyping", "matplotlib")
OPTIONAL = {
    "torchode": ("adaptive, batched ODE solver", 'pip install "lohe[ode]"'),
    "soundfile": ("audio for keyword spotting", 'pip install "lohe[audio]"'),
    "beartype": ("shape checks in the tests", 'pip install "lohe[dev]"'),
}
# Plain PyTorch must run wherever lohe does; the fused kernels may decline, with a reason.
BACKENDS = {"reference": "must run", "chunked": "must run", "triton": "may decline"}
# float32 loses about 1e-6 over 16 tokens and values of order one; a wrong formula loses 1e-2
SELF_TEST_TOLERANCE = 1e-5


@dataclass(frozen=True)
class Finding:
    """One line of the report; `fix` is a command, empty where there is nothing to do."""

    name: str
    status: Literal["ok", "absent", "failed"]
    detail: str
    fix: str = ""


@dataclass(frozen=True)
class Report:
    """Everything that `lohe doctor` prints."""

    versions: dict[str, str | None]
    devices: list[Finding]
    backends: list[Finding]
    optional: list[Finding]
    data: Finding

    @property
    def findings(self) -> list[Finding]:
        return [*self.devices, *self.backends, *self.optional, self.data]

    @property
    def healthy(self) -> bool:
        """Nothing gave wrong numbers. Something optional may well be absent."""
        return all(finding.status != "failed" for finding in self.findings)


def examine() -> Report:
    """Look at this machine and run the self-test: a few seconds, nothing written."""
    found = list(devices())
    usable = [device.name for device in found if device.status == "ok"]
    return Report(
        versions=versions(),
        devices=found,
        backends=[self_test(backend, device) for device in usable for backend in BACKENDS],
        optional=[optional(package) for package in OPTIONAL],
        data=data(),
    )


def versions() -> dict[str, str | None]:
    """Versions by name, None for a package that is not installed."""
    return {
        "lohe": __version__,
        "python": platform.python_version(),
        **{package: version(package) for package in PACKAGES},
        "torch": torch.__version__,  # with the build, which the package's metadata may leave out
    }


def devices() -> Iterator[Finding]:
    """The devices that torch can use here, named as torch names them."""
    simd = torch.backends.cpu.get_cpu_capability()
    threads = f"{torch.get_num_threads()} of {os.cpu_count()} threads"
    slow = ", MKL takes AVX2: train with `lohe run`, which uses oneDNN" if held_back() else ""
    yield Finding("cpu", "ok", f"{platform.machine()}, {threads}, {simd}{slow}")
    for i in range(torch.cuda.device_count()):
        gpu = torch.cuda.get_device_properties(i)
        size = f"{gpu.total_memory / 2**30:.0f} GiB"
        yield Finding(f"cuda:{i}", "ok", f"{gpu.name}, {size}, capability {gpu.major}.{gpu.minor}")
    if torch.version.cuda is None and torch.version.hip is None and shutil.which("nvidia-smi"):
        detail = "an NVIDIA driver is installed, but this torch was built without CUDA"
        yield Finding("cuda", "absent", detail, "pip install --force-reinstall torch")
    if torch.backends.mps.is_available():
        yield Finding("mps", "ok", "Apple GPU; float64 work runs on the CPU")


def self_test(backend: str, device: str) -> Finding:
    """Sixteen tokens through `backend` in float32, against the reference in float64 on the CPU."""
    from lohe import oscillator_attention

    name = f"{backend} on {device}"
    if backend == "triton" and device == "cpu":
        return Finding(name, "absent", "needs a CUDA device")
    rng = torch.Generator().manual_seed(0)
    f, g, v = torch.randn(3, 1, 2, 16, 8, generator=rng, dtype=torch.float64)
    anchors = sphere.uniform(2, 16, 3, generator=rng, dtype=torch.float64)
    inputs = (f, g, v, anchors)
    try:
        exact = oscillator_attention(*inputs, causal=True, backend="reference")
        inputs = (x.to(device, torch.float32) for x in inputs)
        ours = oscillator_attention(*inputs, causal=True, backend=backend)
    except Exception as reason:  # whatever goes wrong on this machine is the finding
        declined = BACKENDS[backend] == "may decline" and isinstance(reason, ValueError)
        return Finding(name, "absent" if declined else "failed", str(reason))
    error = (ours.cpu().double() - exact).abs().max().item()
    # `not <=` rather than `>`: a NaN fails
    if not error <= SELF_TEST_TOLERANCE:
        detail = f"wrong by {error:.0e} (at most {SELF_TEST_TOLERANCE:.0e} is rounding)"
        return Finding(name, "failed", detail)
    return Finding(name, "ok", f"agrees with the float64 reference to {error:.0e}")


def optional(package: str) -> Finding:
    """A package that lohe uses where it is installed."""
    purpose, fix = OPTIONAL[package]
    found = version(package)
    if found is None:
        return Finding(package, "absent", purpose, fix)
    return Finding(package, "ok", f"{found}, {purpose}")


def data() -> Finding:
    """The folder for corpora, and which of them are there."""
    home = data_root()
    source = "$LOHE_DATA" if os.environ.get("LOHE_DATA") else "default; $LOHE_DATA overrides"
    present = [c.source.name for c in list_corpora() if c.state == "complete"]
    if present:
        return Finding("data", "ok", f"{home} ({source}): {', '.join(present)}")
    detail = f"nothing in {home} ({source}); only subject-verb agreement needs no data"
    return Finding("data", "absent", detail, "lohe data fetch wikitext2")
