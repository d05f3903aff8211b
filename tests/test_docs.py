"""What the documentation says is run: README's example, every docstring's, and the demo."""

import doctest
import importlib
import pkgutil
import re
from pathlib import Path

import pytest
import torch

import lohe
from lohe import demo

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


def test_readme_links_exist():
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", README.read_text(encoding="utf-8")):
        assert (README.parent / target).exists(), target


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples(name):
    results = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert results.failed == 0


def test_docstring_examples_are_found():
    finder = doctest.DocTestFinder()
    examples = [t for n in MODULES for t in finder.find(importlib.import_module(n)) if t.examples]
    assert len(examples) > 10


def test_demo_agrees_and_draws(tmp_path, capsys):
    demo.main(tmp_path)
    said = capsys.readouterr().out
    assert "agree to" in said
    assert "11.9 x" in said
    assert (tmp_path / "settling.png").stat().st_size > 20_000


def test_demo_refuses_to_hide_a_disagreement(monkeypatch, tmp_path):
    monkeypatch.setattr(demo, "flow", lambda z0, h, t: z0)
    with pytest.raises(SystemExit, match="disagree"):
        demo.main(tmp_path)
