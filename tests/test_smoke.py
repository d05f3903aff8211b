"""Everything from nothing: all items at smoke scale, without data and without records."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import commands
import lohe
from lohe.experiments import PAPER

SRC = Path(lohe.__file__).parents[1]
PAGE_BYTES = 5_000_000  # what a phone loads gladly
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """After `lohe run all --scale smoke` in a process of its own, which makes its own results/."""
    folder = tmp_path_factory.mktemp("fresh")
    here = {"PYTHONPATH": str(SRC), "LOHE_DATA": str(folder / "no-data"), "OMP_NUM_THREADS": "1"}
    command = "-m", "lohe", "run", "all", "--scale", "smoke", "--device", "cpu"
    ran = subprocess.run(
        [sys.executable, "-W", "error", *command],
        cwd=folder,
        env=os.environ | here,
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    assert "Traceback" not in ran.stderr
    return folder


@pytest.fixture
def said(monkeypatch):
    """said(folder, ...) -> what lohe prints there, with a data root where nothing is."""

    def run(folder: Path, *arguments: str) -> str:
        monkeypatch.chdir(folder)
        monkeypatch.setenv("LOHE_DATA", str(folder / "no-data"))
        done = commands.lohe(*arguments)
        assert done.exit_code == 0, done.output
        return done.stdout

    return run


def test_nothing_is_left_to_do(folder, said):
    plan = said(folder, "run", "all", "--scale", "smoke", "--device", "cpu", "--dry-run")
    assert re.match(r"([1-9]\d*) runs, \1 cached, 0 to train\n", plan)
    assert "to take" not in plan
    assert not (folder / "no-data").exists()


def test_every_item_is_rendered(folder, said):
    said(folder, "compare", "--scale", "smoke", "--html", "page")
    page = (folder / "page" / "index.html").read_text(encoding="utf-8")
    assert len(page) < PAGE_BYTES
    for name, item in PAPER.items():
        assert f'id="{name}"' in page
        picture = folder / "page" / "figures" / f"{name}.png"
        assert picture.is_file() == (item.figure is not None), name
        assert item.figure is None or picture.stat().st_size > 2_000, name
    # no verdict on models that have learned nothing, and no line without its record
    assert not re.search(r"<td[^>]*>(reproduced|differs|inconclusive)</td>", page)
    assert "holds</span>" not in page


def test_the_records_of_smoke_runs_are_no_evidence_at_full_scale(folder, said, tmp_path):
    """Nor is anything needed to compare: results/ may have been deleted."""
    pages = [said(place, "compare", "--brief") for place in (folder, tmp_path)]
    headlines = [re.findall(r"The paper's headlines.*?Training and", s, re.DOTALL) for s in pages]
    assert headlines[0] == headlines[1] != []
    assert re.search(r"^all, each once +0 ", pages[0], re.MULTILINE)
    assert list(tmp_path.iterdir()) == []


def test_import_is_light():
    """Neither Triton nor the compiler is imported before it is used."""
    code = "import sys, lohe; print([m for m in ('triton', 'torch._dynamo') if m in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
