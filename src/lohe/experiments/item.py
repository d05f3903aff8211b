"""One table, figure or statement of the paper: what it needs, and how it follows from records."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lohe.experiments.evidence import Evidence
from lohe.experiments.measures import Measure
from lohe.experiments.setting import Setting
from lohe.experiments.tables import Table
from lohe.experiments.verdicts import Line
from lohe.train import Run

Figure = Any  # matplotlib's, which is not imported before something is drawn


@dataclass(frozen=True, kw_only=True)
class Item:
    """runs and measures -> records -> table, figure, and a verdict for every line.

    `lines`, `table` and `figure` are pure functions of the evidence. They work on whatever there
    is: what is missing is said to be missing.
    """

    title: str
    lines: Callable[[Evidence], list[Line]]
    runs: Callable[[Setting], list[Run]] = lambda setting: []
    measures: Callable[[Setting], list[Measure]] = lambda setting: []
    table: Callable[[Evidence], Table] | None = None
    figure: Callable[[Evidence], Figure] | None = None
