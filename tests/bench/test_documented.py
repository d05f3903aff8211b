"""The table of docs/kernels.md is the committed benchmark, to the digit."""

import re
from pathlib import Path

import pytest

from lohe.bench import rows

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "h200-table.jsonl"
LINES = {  # of the table: what was timed
    "forward, relu, d_osc 2": ("forward", "relu"),
    "forward, softplus": ("forward", "softplus"),
    "both, relu": ("both", "relu"),
    "both, softplus": ("both", "softplus"),
    "forward, relu, d_osc 32": ("forward", "relu-d32"),
    "both, p = 4, gain, d_osc 32": ("both", "relu-d32-p4-gain"),
}


@pytest.fixture(scope="module")
def ratios():
    _, found = rows.read(RESULTS)
    return {
        (row.measure, row.name, row.case.tokens, row.case.causal): row.ratio.median
        for row in found
        if row.status == "timed" and row.ratio
    }


@pytest.mark.parametrize("name", LINES)
def test_the_table_of_speeds(ratios, name):
    text = (ROOT / "docs" / "kernels.md").read_text()
    (line,) = re.findall(rf"^\| {re.escape(name)} \|(.*)\|$", text, flags=re.MULTILINE)
    for tokens, cell in zip((1024, 4096, 16384), line.split("|"), strict=True):
        ((said, floor),) = re.findall(r"^ (.*) \((.*), .*\) $", cell)
        for causal, number in zip((True, False), said.split(" / "), strict=True):
            ratio = ratios[(*LINES[name], tokens, causal)]
            assert number.strip("*") == f"{ratio:.2f}"
            assert number.startswith("**") == (ratio < float(floor))  # what is below is bold
