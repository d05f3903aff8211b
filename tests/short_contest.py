"""The contest in seconds: two families of two trials, an epoch each, on short articles."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lohe.experiments.contest import alike, choose, large, stages, tables, trials
from lohe.experiments.contest.rotary import SoftmaxRopePositions
from lohe.experiments.contest.trials import FAMILIES, OURS, STAGES, Family, protocol
from lohe.tasks import wikitext2

TWO = (OURS, "softmax")
RATES = (2e-3, 4e-3)
SEEDS = dict.fromkeys(STAGES, 2) | {"trials": 1, "rates": 1, "scale rates": 1}


def write_corpus(root: Path, words: int = 60) -> Path:
    """A data root with four articles of so many words a split."""
    folder = root / wikitext2.FOLDERS["tokens"]
    folder.mkdir(parents=True)
    for split in ("train", "valid", "test"):
        articles = [
            f" = {a} = \n \n {' '.join(f'{a}x{n}' for n in range(words))} \n \n" for a in "abcd"
        ]
        (folder / f"wiki.{split}.tokens").write_text(" \n" + "".join(articles), encoding="utf-8")
    return root


@contextmanager
def shortened() -> Iterator[None]:
    whole = dict(FAMILIES)
    with pytest.MonkeyPatch.context() as patch:
        shorten(patch)
        yield
    for name in whole:  # undone, they are in another order, which the page would show
        FAMILIES[name] = FAMILIES.pop(name)  # pyright: ignore
    forget()


def shorten(patch: pytest.MonkeyPatch) -> None:
    for family in list(FAMILIES):
        if family not in TWO:
            patch.delitem(FAMILIES, family)
    # one softmax stands for all: it has rotations and tables
    patch.setitem(FAMILIES, TWO[1], Family(SoftmaxRopePositions()))
    patch.setattr(choose, "RIVALS", TWO[1:])
    patch.setattr(stages, "MATCHED", TWO[1])
    patch.setattr(stages, "ROTARY", TWO[1])
    for module in (alike, choose, tables):
        patch.setattr(module, "TRIED", TWO)
    patch.setattr(choose, "RATES", RATES)
    for family in TWO:
        given = protocol()["families"][family]
        small = {"seeds": [0]} | ({"d_osc": 4} if family == OURS else {})
        patch.setitem(given, "trials", [trial | small for trial in given["trials"][:2]])
    for name, seeds in SEEDS.items():
        stage = STAGES[name]
        cut = trials.Stage(1, stage.seeds[:seeds], test=stage.test)  # the CPU has no tf32
        patch.setitem(STAGES, name, cut)
    for name, dimensions in {"ASKED": (), "FITTED": (2, 4), "HELD_OUT": (8,)}.items():
        patch.setattr(stages, name, dimensions)
    patch.setattr(large, "LARGE_RATES", RATES)
    patch.setattr(large, "LARGE_FIRST", 0)
    patch.setattr(stages, "LARGE", {"layers": 3, "d_model": 32, "heads": 2, "d_ff": 64})
    forget()


def forget() -> None:
    for remembered in (trials.trials, trials.trial_runs):
        remembered.cache_clear()
