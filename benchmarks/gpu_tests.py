"""Do all kernels pass their tests on this GPU? Many processes at once, and a log to keep.

    python benchmarks/gpu_tests.py                            # three minutes with 14 processes
    python benchmarks/gpu_tests.py --processes 4 tests/gpu/test_kernels.py
    python benchmarks/gpu_tests.py --log benchmarks/results/h200-tests.txt

The tests that need CUDA, in bfloat16, float16 and float32. Compiling their kernels takes longer
than running them, so processes share the list: each takes the next test that nobody has taken.
Those marked `alone` watch a clock and run after all others. Needs nothing but pytest, jaxtyping
and hypothesis; exits with 1 if a test failed or was not reached.
"""

import argparse
import hashlib
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
TESTS = ["tests/gpu", "tests/ops/triton"]
PYTEST = [sys.executable, "-m", "pytest", "-q", "-o", "addopts=", "--import-mode=importlib"]
PYTEST += ["-p", "no:cacheprovider", "-p", "gpu_tests", "--tb=short"]


class Share:
    """The plugin of each process: of the tests it finds, those that it is the first to take."""

    def __init__(self, folder: Path, number: int, of: int, until: float):
        self.folder, self.number, self.of, self.until = folder, number, of, until

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        alone = self.of == 1
        items[:] = [item for item in items if alone is bool(item.get_closest_marker("alone"))]
        first = self.number * len(items) // self.of  # each begins at another place
        items[:] = items[first:] + items[:first]
        if self.number == 0:
            names = "".join(f"{item.nodeid}\n" for item in items)
            (self.folder / f"all-{self.of}").write_text(names)

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """pytest's own loop prepares a test for the one behind it, which may not be ours."""
        for item in session.items:
            if time.time() < self.until and self._first_to_take(item):
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
        return True

    def _first_to_take(self, item: pytest.Item) -> bool:
        name = hashlib.sha256(item.nodeid.encode()).hexdigest()
        try:
            os.close(os.open(self.folder / name, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or not report.passed:
            with (self.folder / f"log-{self.of}-{self.number}").open("a") as log:
                log.write(f"{report.outcome.upper():8} {report.nodeid}\n")


def pytest_configure(config: pytest.Config) -> None:
    """Called by pytest, which is given this file as a plugin."""
    folder, number, of, until = os.environ["LOHE_SHARE"].split("|")
    config.pluginmanager.register(Share(Path(folder), int(number), int(of), float(until)))


def started(
    folder: Path, number: int, of: int, until: float, tests: list[str]
) -> subprocess.Popen[bytes]:
    here = {
        "LOHE_SHARE": f"{folder}|{number}|{of}|{until}",
        "PYTHONPATH": os.pathsep.join(str(REPOSITORY / p) for p in ("src", "tests", "benchmarks")),
        "OMP_NUM_THREADS": "1",
    }
    out = (folder / f"out-{of}-{number}").open("wb")
    return subprocess.Popen([*PYTEST, *tests], env=os.environ | here, stdout=out, cwd=REPOSITORY)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("tests", nargs="*", default=TESTS)
    parser.add_argument("--processes", type=int, default=max(2, (os.cpu_count() or 2) - 2))
    parser.add_argument("--seconds", type=float, default=1200, help="take no test after so many")
    parser.add_argument("--log", type=Path)
    args = parser.parse_args()
    begun = time.time()
    with tempfile.TemporaryDirectory() as name:
        folder, until = Path(name), begun + args.seconds
        n = args.processes
        together = [started(folder, i, n, until, args.tests) for i in range(n)]
        for process in together:
            process.wait()
        started(folder, 0, 1, until + 60, args.tests).wait()
        wanted = {x for of in (1, n) for x in _lines(folder / f"all-{of}")}
        lines = sorted({x for path in folder.glob("log-*") for x in _lines(path)})
        outputs = "\n".join(path.read_text() for path in sorted(folder.glob("out-*")))
    done = {line[9:] for line in lines}
    counts = {w: sum(line.startswith(w) for line in lines) for w in ("PASSED", "FAILED", "SKIPPED")}
    from lohe.bench.machine import machine

    here = machine()
    summary = ", ".join(f"{many} {what.lower()}" for what, many in counts.items())
    text = "\n".join(
        [
            f"python benchmarks/gpu_tests.py {' '.join(args.tests)}",
            f"{here['gpu']}, torch {here['torch']}, triton {here['triton']}, "
            f"Python {here['python']}, lohe {here['lohe']}, {time.strftime('%Y-%m-%d')}",
            f"{len(wanted)} tests, {n} processes, {time.time() - begun:.0f} s: {summary}, "
            f"{len(wanted - done)} not reached",
            "",
            *lines,
            *(f"MISSING  {x}" for x in sorted(wanted - done)),
        ]
    )
    if counts["FAILED"] or not wanted:
        text += f"\n\n{outputs}"
    print("\n".join(line for line in text.splitlines() if not line.startswith("PASSED")))
    if args.log:
        args.log.write_text(text + "\n")
    raise SystemExit(bool(counts["FAILED"] or wanted - done or not wanted))


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


if __name__ == "__main__":
    main()
