"""A table as data: what `lohe show` prints and reports embed."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean

from lohe.experiments.verdicts import NO_RECORDS, Agreement, Judged, rules
from lohe.measure.significance import mean_std

NOT_REPORTED = (  # a verdict that is easily misread, and what it means
    "not reported",
    "the paper prints no number there that ours could be compared with: nothing, words, several "
    "numbers at once, or one of another corpus",
)


@dataclass(frozen=True)
class Table:
    """Rows of text under columns; notes say what a number is and is not."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]
    notes: list[str] = field(default_factory=list)


def verdict_table(title: str, judged: Sequence[Judged], about: Sequence[str] = ()) -> Table:
    """Every line of an item with its two verdicts; the notes give the numbers behind them.

    `about` is noted below these.
    """
    columns, rows = verdict_rows(judged)
    notes = []
    for j, (what, *_) in zip(judged, rows, strict=True):
        if j.line.claim:
            said = j.claim_said.capitalize() + (f": {j.note}" if j.note else "")
            notes.append(f"{what}: {j.line.claim.statement} {said}.")
        elif j.note:
            notes.append(f"{what}: {j.note}.")
    compared = sum(isinstance(j.line.value, Agreement) for j in judged)
    notes += brackets(notes) + unreported(judged)
    if compared:
        notes.append(f"{compared} values compared, Holm-corrected together.")
    return Table(f"{title}: verdicts", columns, rows, [*notes, *about])


def brackets(notes: Sequence[str]) -> list[str]:
    """What the brackets behind a difference are, where there are any."""
    if not any(" [" in note for note in notes):
        return []
    level = rules()["levels"]["reproduced"]
    said = f"{100 * level:.0f} % interval"
    return [f"difference: ours minus the paper's. Brackets behind it, or behind pp: its {said}."]


def unreported(judged: Sequence[Judged]) -> list[str]:
    """What `not reported` means, where it is said."""
    return (
        [": ".join(NOT_REPORTED) + "."] if any(j.value == NOT_REPORTED[0] for j in judged) else []
    )


def verdict_rows(judged: Sequence[Judged]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Columns and rows: what the paper prints, what we find, whether they agree."""
    rows = []
    for j in judged:
        what = f"{j.line.what} ({j.line.reading})" if j.line.reading else j.line.what
        ours = j.line.ours or (NO_RECORDS if j.value == NO_RECORDS else "")
        rows.append((what, j.line.paper, ours, j.value, j.claim_said))
    return ("line", "paper", "ours", "value", "claim"), rows


def shown(values: Sequence[float], digits: int = 2) -> str:
    """Mean ± standard deviation, or that there is none."""
    return plus_minus(*mean_std(values), digits=digits) if values else NO_RECORDS


def shown_gap(a: Sequence[float], b: Sequence[float], digits: int = 2) -> str:
    """mean a - mean b, with its sign."""
    return f"{fmean(a) - fmean(b):+.{digits}f}" if a and b else NO_RECORDS


def printed_gap(a: Sequence[float], b: Sequence[float]) -> str:
    """As the paper prints it: the difference of the means that it prints, of two decimals.

    >>> printed_gap([10.2757], [8.6715]), shown_gap([10.2757], [8.6715])
    ('+1.61', '+1.60')
    """
    return f"{round(fmean(a), 2) - round(fmean(b), 2):+.2f}"


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
