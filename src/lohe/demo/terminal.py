"""What the demo says while it runs: bars in a terminal, plain lines elsewhere."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table as RichTable

from lohe.experiments.tables import Table


def console() -> Console:
    """Tables are not wrapped in a pipe: a program or a log reads them."""
    width = None if sys.stdout and sys.stdout.isatty() else 150  # None where it was closed
    return Console(width=width, highlight=False, markup=False, emoji=False)


class Progresses:
    """Bars by name, with the time that is left."""

    def __init__(self, bars: Progress, out: Console, every: int):
        self.bars, self.out, self.every = bars, out, every
        self.ids: dict[str, TaskID] = {}
        self.at: dict[str, int] = {}
        self.started = time.perf_counter()

    def heard(self, name: str, what: str, done: int, of: int) -> None:
        """One more is done, or something happened that is worth a line."""
        if what not in ("training", "measuring"):
            if what not in ("loading", "cached"):
                self.out.print(f"{name}: {what}", soft_wrap=True)
            return
        before = self.at.get(name, 0)
        self.at[name] = done
        if self.bars.disable:
            if done // self.every > before // self.every or (done == of and done > before):
                seconds = time.perf_counter() - self.started
                self.out.print(f"{what} {name}: {done} of {of}, {seconds:.0f} s")
            return
        if name not in self.ids:
            self.ids[name] = self.bars.add_task(f"{what} {name}", total=of)
        if done > before + 1:  # a run that continues: what went before says nothing about speed
            self.bars.reset(self.ids[name], completed=done)
        self.bars.update(self.ids[name], completed=done)


@contextmanager
def progress(out: Console, every: int = 5) -> Iterator[Progresses]:
    """Bars in a terminal; elsewhere a line for every so many that are done."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    times = (TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn())
    lines = not out.is_terminal or out.is_dumb_terminal  # which draws bars at the end only
    with Progress(*columns, *times, console=out, disable=lines) as bars:
        yield Progresses(bars, out, every)


def show(out: Console, table: Table) -> None:
    shown = RichTable(title=table.title, title_justify="left")
    for n, column in enumerate(table.columns):
        shown.add_column(column, justify="right" if n else "left", overflow="fold")
    for row in table.rows:
        shown.add_row(*row)
    out.print(shown)
    for note in table.notes:
        out.print(f"- {note}", soft_wrap=True)
    out.print()
