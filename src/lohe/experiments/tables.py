"""A table as data: what `lohe show` prints and reports embed."""

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Table:
    """Rows of text under columns; notes say what a number is and is not."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]
    notes: list[str] = field(default_factory=list)


def plus_minus(mean: float, std: float, digits: int = 2) -> str:
    """95.78 ± 6.82; without a spread, the mean alone."""
    shown = f"{mean:.{digits}f}"
    return shown if std != std else f"{shown} ± {std:.{digits}f}"


def seed_ranges(seeds: Sequence[int]) -> str:
    """0-4, 7: what --seeds takes.

    >>> seed_ranges([0, 1, 2, 5, 7, 8])
    '0-2,5,7-8'
    """
    parts: list[list[int]] = []
    for seed in sorted(seeds):
        if parts and seed == parts[-1][-1] + 1:
            parts[-1].append(seed)
        else:
            parts.append([seed])
    return ",".join(f"{p[0]}-{p[-1]}" if len(p) > 1 else str(p[0]) for p in parts)
