"""Everything from nothing: all items at smoke scale, without data and without records."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import lohe
from lohe.experiments import PAPER

SRC = Path(lohe.__file__).parents[1]
PAGE_BYTES = 5_000_000  # what a phone loads gladly
pytestmark = pytest.mark.slow


def command(folder: Path, *arguments: str) -> subprocess.CompletedProcess:
    """lohe in an empty folder: no results/, and a data root where nothing is."""
    here = {"PYTHONPATH": str(SRC), "LOHE_DATA": str(folder / "no-data"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "lohe", *arguments],
        cwd=folder,
        env=os.environ | here,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """After `lohe run all --scale smoke`, which makes its own results/."""
    folder = tmp_path_factory.mktemp("fresh")
    ran = command(folder, "run", "all", "--scale", "smoke", "--device", "cpu")
    assert "Traceback" not in ran.stderr
    return folder


def test_nothing_is_left_to_do(folder):
    said = command(folder, "run", "all", "--scale", "smoke", "--device", "cpu", "--dry-run").stdout
    assert re.match(r"([1-9]\d*) runs, \1 cached, 0 to train\n", said)
    assert "to take" not in said
    assert not (folder / "no-data").exists()


def test_every_item_is_rendered(folder):
    command(folder, "compare", "--scale", "smoke", "--html", "page")
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


def test_the_records_of_smoke_runs_are_no_evidence_at_full_scale(folder, tmp_path):
    """Nor is anything needed to compare: results/ may have been deleted."""
    said = [command(place, "compare", "--brief").stdout for place in (folder, tmp_path)]
    headlines = [re.findall(r"The paper's headlines.*?Training and", s, re.DOTALL) for s in said]
    assert headlines[0] == headlines[1] != []
    assert re.search(r"^all, each once +0 ", said[0], re.MULTILINE)
    assert list(tmp_path.iterdir()) == []


def test_import_is_light():
    """Neither Triton nor the compiler is imported before it is used."""
    code = "import sys, lohe; print([m for m in ('triton', 'torch._dynamo') if m in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
