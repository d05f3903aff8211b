"""The paper, item by item: runs and measures -> records -> tables, figures and verdicts."""

import difflib
from collections.abc import Iterable

from lohe.experiments.item import Item
from lohe.experiments.measures import Measure
from lohe.experiments.setting import Setting
from lohe.experiments.studies import antipodal, counts, illustration, monotonicity
from lohe.experiments.studies.kws import keyword_spotting
from lohe.experiments.studies.lm import (
    alternatives,
    couplings,
    design_rule,
    language_modeling,
    scaling_law,
    sharpening,
)
from lohe.experiments.studies.rank import bottleneck
from lohe.experiments.studies.robust import robustness
from lohe.experiments.studies.settle import convergence
from lohe.experiments.studies.sva import agreement
from lohe.train import Run

STUDIES = (
    antipodal,
    keyword_spotting,
    agreement,
    language_modeling,
    scaling_law,
    design_rule,
    sharpening,
    couplings,
    alternatives,
    bottleneck,
    convergence,
    robustness,
    monotonicity,
    counts,
    illustration,
)
_NUMBERED = [f"table{n}" for n in range(1, 12)] + [f"figure{n}" for n in range(2, 11)]
_FOUND: dict[str, Item] = {name: item for study in STUDIES for name, item in study.ITEMS.items()}

# Tables, figures, then the statements that stand only in prose.
PAPER: dict[str, Item] = {name: _FOUND[name] for name in _NUMBERED if name in _FOUND} | _FOUND


def item(name: str) -> Item:
    """An item by name, or a ValueError that lists them and names the nearest."""
    if name not in PAPER:
        near = difflib.get_close_matches(name.lower(), PAPER, n=1, cutoff=0.8)
        meant = f" Did you mean {near[0]}?" if near else ""
        raise ValueError(f"{name!r} is no item of the paper. There are: {', '.join(PAPER)}.{meant}")
    return PAPER[name]


def chosen(names: Iterable[str]) -> dict[str, Item]:
    """Items by name, in the order given; `all` is every one."""
    return {n: item(n) for name in names for n in (PAPER if name == "all" else [name])}


def all_runs(items: Iterable[Item], setting: Setting) -> list[Run]:
    """What the items need trained, each run once."""
    return list(dict.fromkeys(run for item in items for run in item.runs(setting)))


def all_measures(items: Iterable[Item], setting: Setting) -> list[Measure]:
    """What the items need measured, each once."""
    return list(dict.fromkeys(m for item in items for m in item.measures(setting)))
