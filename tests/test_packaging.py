"""What an installation asks for."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
NEWER = {"jaxtyping", "rich"}  # in the tests; constraints-lowest.txt says why


def pins(name: str) -> dict[str, str]:
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    return dict(line.split("==") for line in lines if line and not line.startswith("#"))


def test_the_oldest_versions_are_those_that_are_tested():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    asked = dict(line.split(">=") for line in project["dependencies"])
    tested = pins("constraints-lowest.txt")
    assert asked.keys() <= tested.keys()
    for name in asked.keys() - NEWER:
        assert re.sub(r"(\.0)*$", "", tested[name]) == re.sub(r"(\.0)*$", "", asked[name]), name


def test_triton_is_the_one_that_torch_brings():
    """Its CUDA build asks for exactly one: with another pinned, nothing could be installed."""
    brought = {"2.13.0": "3.7.1"}  # metadata of torch on PyPI
    found = pins("constraints.txt")
    assert brought[found["torch"]] == found["triton"]
