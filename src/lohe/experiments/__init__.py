"""The paper, item by item: runs -> records -> tables."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from lohe.experiments import agreement, language_modeling
from lohe.experiments.records import Record
from lohe.experiments.tables import Table
from lohe.train import Run


@dataclass(frozen=True)
class Item:
    """A table of the paper: what must be trained for it, and how it follows from the records."""

    runs: Callable[..., list[Run]]  # (scale, seeds=None)
    table: Callable[[Iterable[Record], str], Table]  # (records, scale)


# In paper order. Items join as their studies do.
PAPER: dict[str, Item] = {
    "table2": Item(agreement.runs, agreement.table_2),
    "table4": Item(language_modeling.runs, language_modeling.table_4),
}


def item(name: str) -> Item:
    """An item by name, or a ValueError that lists them."""
    if name not in PAPER:
        raise ValueError(f"{name!r} is not an item here yet. There are: {', '.join(PAPER)}.")
    return PAPER[name]
