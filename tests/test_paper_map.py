"""Finding the paper in the code: every item has one home, named by a docstring's first line."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import lohe

ROOT = Path(lohe.__file__).parent

# Rows join when their module does. Eqs. 8 and 9 are steps of a proof and have no home.
HOMES = {
    "ops/reference.py": ["Eq. 2", "drive of Eq. 3", "Eq. 4", "Eq. 5", "Eq. 6"],
    "dynamics/fields.py": ["Eq. 1", "Eq. 3", "Eq. 7", "Appendix A"],
    "theory.py": ["Theorem 3", "Proposition 4", "Proposition 5", "Eq. 10"],
    "attention/oscillator.py": ["Figure 1"],
    "cost.py": ["Table 7", "Table 10", "Table 11"],
    "experiments/studies/kws/keyword_spotting.py": ["Table 1", "Figure 3"],
    "experiments/studies/sva/agreement.py": ["Table 2"],
    "experiments/studies/sva/agreement_attention.py": ["Table 3"],
    "experiments/studies/sva/agreement_distributions.py": ["Figure 4"],
    "experiments/studies/sva/agreement_widths.py": ["Table 8"],
    "experiments/studies/settle/convergence.py": ["Table 6", "Figure 7"],
    "experiments/studies/rank/bottleneck.py": ["Figure 10"],
    "experiments/studies/rank/flatness.py": ["Figure 9"],
    "experiments/studies/lm/language_modeling.py": ["Table 4"],
    "experiments/studies/lm/scaling_law.py": ["Figure 6"],
    "experiments/studies/lm/sharpening.py": ["Table 5"],
    "experiments/studies/antipodal.py": ["Figure 2"],
    "experiments/studies/illustration.py": ["Figure 5"],
    "experiments/studies/robust/robustness.py": ["Table 9", "Figure 8"],
}
EQUATIONS = range(1, 11)  # the paper numbers ten

# A docstring claims items when its first line is "ITEMS: ...", with an optional "(tab:label)".
KINDS = {
    "Eq. ": r"Eqs?\.|Equations?",
    "Theorem ": r"Thms?\.|Theorems?",
    "Proposition ": r"Props?\.|Propositions?",
    "Table ": r"Tables?",
    "Figure ": r"Figs?\.|Figures?",
    "Appendix ": r"Apps?\.|Appendix|Appendices",
}
NUMBER = r"(?:\d+(?:[-–]\d+)?|[A-F]\b)"
NUMBERS = rf"{NUMBER}(?:(?:, and |, | and ){NUMBER})*"
GROUP = rf"(?:{'|'.join(KINDS.values())}) {NUMBERS}"
GROUPS = rf"{GROUP}(?:(?:, and |, |; | and ){GROUP})*"
CLAIM = re.compile(rf"(?P<items>{GROUPS})(?: \((?P<aside>[^()]*)\))?:")
DRIVE = re.compile(r"Weighted anchor sum of Eq\. 3\b")


def items(text: str) -> list[str]:
    """Items named in `text`: "Eqs. 3 and 7" is ["Eq. 3", "Eq. 7"], "Props. 4-5" two as well."""
    found = []
    for group in re.finditer(GROUP, text):
        kind = next(k for k, names in KINDS.items() if re.match(names, group[0]))
        for number in re.findall(NUMBER, group[0].partition(" ")[2]):
            first, _, last = number.replace("–", "-").partition("-")
            numbers = range(int(first), int(last) + 1) if last else [first]
            found += [f"{kind}{n}" for n in numbers]
    return found


def claims(docstring: str) -> list[str]:
    """Items that a docstring says it implements, in its first line."""
    line = docstring.strip().partition("\n")[0]
    if DRIVE.match(line):
        return ["drive of Eq. 3"]
    claim = CLAIM.match(line)
    return items(f"{claim['items']}; {claim['aside'] or ''}") if claim else []


def docstrings(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node) or ""


def sources() -> Iterator[tuple[str, str]]:
    for path in sorted(ROOT.rglob("*.py")):
        yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")


@cache
def claimed() -> dict[str, list[str]]:
    """Item -> the files that claim it, one entry per claim."""
    homes: dict[str, list[str]] = {}
    for path, source in sources():
        for docstring in docstrings(source):
            for item in claims(docstring):
                homes.setdefault(item, []).append(path)
    return homes


@pytest.mark.parametrize(
    ("item", "home"), [(item, home) for home, listed in HOMES.items() for item in listed]
)
def test_every_item_has_exactly_one_home(item, home):
    assert claimed().get(item, []) == [home]


def test_no_item_has_a_home_we_do_not_know():
    # appendices hold many things, and several files may serve one; the rest has a row in HOMES
    listed = {item for row in HOMES.values() for item in row}
    strays = {i: h for i, h in claimed().items() if i not in listed and "Appendix" not in i}
    assert strays == {}, "give each of these a row in HOMES, tests/test_paper_map.py"


def test_no_docstring_names_an_equation_the_paper_lacks():
    paper = {f"Eq. {n}" for n in EQUATIONS}
    for path, source in sources():
        named = {item for text in docstrings(source) for item in items(text)}
        assert {item for item in named if item.startswith("Eq. ")} <= paper, path


@pytest.mark.parametrize(
    ("docstring", "expected"),
    [
        ("Eq. 2: w_ij = σ(f_i·g_j / sqrt(d_h)).", ["Eq. 2"]),
        ("Eqs. 3 and 7: ż = (I - zzᵀ)h.\n\nMore, see Eq. 4: here.", ["Eq. 3", "Eq. 7"]),
        ("Eqs. 1, 3, and 7: fields.", ["Eq. 1", "Eq. 3", "Eq. 7"]),
        ("Props. 4-5: bounds.", ["Proposition 4", "Proposition 5"]),
        ("Proposition 5 (Eq. 10): the cap.", ["Proposition 5", "Eq. 10"]),
        ("Eq. 10 and Proposition 5: the cap.", ["Eq. 10", "Proposition 5"]),
        ("Table 10 (tab:cost_softplus): counts.", ["Table 10"]),
        ("Fig. 1: the layer.", ["Figure 1"]),
        ("Appendix A: Kuramoto.", ["Appendix A"]),
        ("Weighted anchor sum of Eq. 3, h_i = Σ_j w_ij r_j.", ["drive of Eq. 3"]),
        ("Eqs. 2-6 in plain PyTorch, one function each: the definition of correct.", []),
        ("State at time t of Eq. 3 started at z0, exactly.", []),
        ("Theorem 3's energy: it never rises.", []),
        ("Exact flow.\n\nEq. 3: not on the first line.", []),
        ("", []),
    ],
)
def test_the_parser_reads_first_lines(docstring, expected):
    assert claims(docstring) == expected
