"""What may import what: leftward only, and neighbours in one group stay strangers."""

import ast
from pathlib import Path

import pytest

import lohe

ROOT = Path(lohe.__file__).parent

# Each group may import the groups above it in this list, and a package may import itself.
LAYERS = [
    {"sphere", "transforms", "version"},
    {"theory", "ops", "dynamics", "cost", "measure", "tasks", "viz"},
    {"attention", "substrates"},
    {"models"},
    {"train"},
    {"experiments", "bench"},
    {"cli_common", "demo", "doctor"},
    {"data_cli", "run_cli", "contest_cli", "bench_cli"},
    {"cli"},
]
RANK = {name: rank for rank, group in enumerate(LAYERS) for name in group}
# `import lohe` is the sum of the public names: for what stands above all of them
FACADE = ""
FACADE_RANK = RANK["experiments"]
UNRESTRICTED = {"__init__.py", "__main__.py"}


def imported(source: str, path: str) -> set[str]:
    """Parts of lohe that the file at `path`, relative to the package, imports."""
    package = ["lohe", *Path(path).parent.parts]
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            targets = [f"{base}.{alias.name}" for alias in node.names]
        else:
            continue
        for target in targets:
            root, *rest = target.split(".")
            if root == "lohe":
                found.add(rest[0] if rest and is_part(rest[0]) else FACADE)
    return found


def is_part(name: str) -> bool:
    return name in RANK or (ROOT / name).is_dir() or (ROOT / f"{name}.py").is_file()


def violations(source: str, path: str) -> list[str]:
    """What is wrong with the imports of the file at `path`, in words; empty when nothing is."""
    if path in UNRESTRICTED:
        return []
    here = Path(path).parts[0].removesuffix(".py")
    if here not in RANK:
        return [f"lohe.{here} has no layer: place it in LAYERS, tests/test_layers.py"]
    return [
        f"{path} imports {f'lohe.{part}' if part else 'lohe'}, which is not below lohe.{here}"
        for part in sorted(imported(source, path) - {here})
        if (FACADE_RANK if part == FACADE else RANK.get(part, len(LAYERS))) >= RANK[here]
    ]


@pytest.mark.parametrize("path", sorted(str(p.relative_to(ROOT)) for p in ROOT.rglob("*.py")))
def test_imports_point_leftward(path):
    assert violations((ROOT / path).read_text(encoding="utf-8"), path) == []


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("attention/oscillator.py", "from lohe.substrates import imperfections"),  # neighbours
        ("attention/oscillator.py", "from lohe import substrates"),
        ("attention/oscillator.py", "from ..substrates.imperfections import Mismatch"),
        ("attention/oscillator.py", "from .. import substrates"),
        ("attention/oscillator.py", "import lohe.models.transformer as transformer"),  # upward
        ("ops/kernels/forward.py", "from ...dynamics import flow"),
        ("ops/reference.py", "def late():\n    from lohe import train"),
        ("models/transformer.py", "from lohe import OscillatorAttention"),  # through the facade
        ("theory.py", "import lohe"),
        ("gadgets.py", "import math"),  # nowhere in LAYERS
    ],
)
def test_the_checker_sees_a_violation(path, source):
    assert len(violations(source, path)) == 1


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("sphere.py", "import torch\nfrom jaxtyping import Float"),
        ("ops/kernels/forward.py", "from ..reference import drive\nfrom . import backward"),
        ("attention/oscillator.py", "from lohe import ops, sphere\nfrom lohe.ops import reference"),
        ("doctor.py", "from lohe import __version__, oscillator_attention, sphere"),
        ("cli.py", "from lohe import doctor"),
        ("__init__.py", "from lohe.attention import OscillatorAttention"),
    ],
)
def test_the_checker_lets_good_imports_pass(path, source):
    assert violations(source, path) == []


def test_an_unplaced_module_is_asked_to_be_placed():
    assert violations("import math", "gadgets/new.py") == [
        "lohe.gadgets has no layer: place it in LAYERS, tests/test_layers.py"
    ]
