"""Real processes, and a disk small enough to fill."""

import multiprocessing
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

# one import of torch, then a fork per process: a few milliseconds instead of seconds
CONTEXT = multiprocessing.get_context("forkserver")
# torch._dynamo: the first step of any optimiser imports it, for a second
CONTEXT.set_forkserver_preload(["lohe.experiments.store.store", "torch._dynamo"])


@pytest.fixture
def context():
    return CONTEXT


@pytest.fixture
def start(context) -> Iterator[Callable]:
    """start(function, *args) runs it in a process, which does not outlive the test."""
    started = []

    def run(function, *args):
        process = context.Process(target=function, args=args)
        process.start()
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.join()


@pytest.fixture
def finish() -> Callable:
    def wait(*processes) -> None:
        for process in processes:
            process.join(30)
            assert process.exitcode == 0

    return wait


@pytest.fixture
def kill() -> Callable:
    def sigkill(process) -> None:
        process.kill()
        process.join(30)
        assert process.exitcode in (0, -signal.SIGKILL)

    return sigkill


@pytest.fixture
def small_disk(tmp_path) -> Iterator[Path]:
    """A file system of 256 KiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "lohe-test", str(disk)]
    try:
        done = subprocess.run(mount, capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("a full disk is tested on a tmpfs, and there is no `mount` here")
    if done.returncode:
        pytest.skip(f"a full disk is tested on a tmpfs, which needs root: {done.stderr.strip()}")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


@pytest.fixture
def fill() -> Callable[[Path], Path]:
    def until_full(disk: Path) -> Path:
        ballast = disk / "ballast"
        with open(ballast, "wb", buffering=0) as file, suppress(OSError):
            while file.write(b"0" * 4096):
                pass
        return ballast

    return until_full


@pytest.fixture
def eventually() -> Callable:
    def wait(condition: Callable[[], object], timeout_s: float = 20.0) -> None:
        deadline = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < deadline
            time.sleep(0.005)

    return wait
