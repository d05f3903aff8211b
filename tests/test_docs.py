"""What the documentation says is run: README's example and every docstring's."""

import doctest
import importlib
import pkgutil
import re
from collections import Counter
from pathlib import Path

import pytest
import torch

import lohe
from lohe.experiments import PAPER, report
from lohe.experiments.evidence import Evidence
from lohe.experiments.setting import COMPACT, Setting
from lohe.experiments.store.store import Store
from lohe.experiments.verdicts import Agreement

README = Path(__file__).parents[1] / "README.md"
TOUR = README.parent / "docs" / "tour.md"
MODULES = sorted(
    m.name for m in pkgutil.walk_packages(lohe.__path__, "lohe.") if not m.name.endswith("__main__")
)


def test_readme_example():
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    names: dict = {}
    exec(code, names)
    assert names["output"].shape == (8, 100, 64)
    assert names["weights"].shape == (8, 4, 100, 100)
    assert names["on_hardware"].isfinite().all()
    assert not torch.equal(names["on_hardware"], names["output"])


def test_the_tour():
    names: dict = {}
    for code in re.findall(r"```python\n(.*?)```", TOUR.read_text(encoding="utf-8"), re.DOTALL):
        exec(code, names)  # one after the other, as a reader would
    assert names["noisy"].isfinite().all()
    assert len(names["trained"].outcomes) == 3
    assert [round(x) for x in names["accuracy"].values()] == pytest.approx([82, 91, 94, 98], abs=1)
    yields = sorted(names["yields"])
    assert yields[:2] == pytest.approx([90, 97], abs=1)
    assert yields[2:] == pytest.approx([98] * 18, abs=0.5)
    assert names["calibrated"] == pytest.approx(98, abs=0.5)
    assert names["tuned"] == pytest.approx(97, abs=1)


@pytest.fixture(scope="module")
def found() -> list[report.Section]:
    """Every item of the paper, by the committed records."""
    evidence = Evidence(Store(README.parent / "results").all(), Setting(chosen=COMPACT))
    return report.sections(PAPER, evidence)


def test_every_change_is_known_as_one(found):
    """What is printed with a sign, or as a bound, is a change, and may be below its margin."""
    for line in (judged.line for section in found for judged in section.judged):
        if isinstance(line.value, Agreement) and line.value.margin:
            change = re.match(r"[+-]|at most", line.paper) or re.search(" - | minus ", line.what)
            assert not change or line.value.effect is not None, line.what


def test_readme_says_what_has_come_out(found):
    """By the committed records; every item must be there."""
    lines = Counter(judged.value for section in found for judged in section.judged)
    claims = Counter(finding.verdict for section in found for finding in section.findings)
    exact = sum(judged.exact for section in found for judged in section.judged)
    coarse = sum(judged.coarse for section in found for judged in section.judged)
    elsewhere = sum(j.elsewhere and j.value == "differs" for s in found for j in s.judged)
    said = (
        f"Of {lines.total()} lines {lines['reproduced']} are reproduced ({exact} of them counts "
        f"and formulas, {coarse} changes which the paper has smaller than the margin), "
        f"{lines['differs']} differ ({elsewhere} of "
        "them judge WikiText-2 by what the paper has of TinyStories), "
        f"{lines['inconclusive']} are inconclusive, {lines['not comparable']} not comparable, "
        f"{lines['not reported']} not judged by a number; "
        f"of {claims.total()} claims {claims['holds']} hold, {claims['does not hold']} do not, "
        f"{claims['undecided']} are undecided."
    )
    assert not lines["no records"]
    assert not claims["no records"]
    assert said in " ".join(README.read_text(encoding="utf-8").split())


PAGES = [*README.parent.glob("*.md"), *TOUR.parent.glob("*.md")]


@pytest.mark.parametrize("page", sorted(PAGES), ids=lambda page: page.name)
def test_links_exist(page):
    for target, place in re.findall(r"\]\((?!http)([^)#]*)#?([^)]*)\)", page.read_text("utf-8")):
        linked = page.parent / target if target else page
        assert linked.exists(), target
        if place:
            text = re.sub(r"```.*?```", "", linked.read_text("utf-8"), flags=re.DOTALL)
            headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
            assert place in [re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings]


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples(name):
    results = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert results.failed == 0


def test_docstring_examples_are_found():
    finder = doctest.DocTestFinder()
    examples = [t for n in MODULES for t in finder.find(importlib.import_module(n)) if t.examples]
    assert len(examples) > 10


def test_readme_says_what_make_demo_does():
    text = README.read_text(encoding="utf-8")
    assert re.search(r"^make demo +# .*minutes", text, re.MULTILINE)
    assert "lohe demo --quick" in text
