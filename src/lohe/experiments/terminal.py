"""What is said while it runs and when it is done: bars in a terminal, plain lines elsewhere."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table as RichTable

from lohe.experiments.deadline import Deadline
from lohe.experiments.measures import Bench, Measure, measure_name, take
from lohe.experiments.report import Headline, by_statement
from lohe.experiments.runner import LATER, Pack
from lohe.experiments.tables import Table
from lohe.train import Run

LINE_EVERY_S = 30.0  # of progress, where there is no terminal to draw a bar in
PACE_OVER_S = 3600.0  # by which the time left is told: an epoch may take many minutes
CELL = 18  # what stands below a long line is aligned up to this width
COLOUR = {"holds": "green", "does not hold": "red", "undecided": "yellow"}


class Bars:
    """Listeners for `runner.complete` and `measures.take`.

    That others train a pack is said once; `told` remembers of which runs it was.
    """

    def __init__(self, progress: Progress, told: set[Run] | None = None):
        self.progress, self.out = progress, progress.console
        self.told = set() if told is None else told
        self.ids: dict[str, TaskID] = {}
        self.at: dict[str, int] = {}
        self.expected: set[Run] = set()
        self.left: set[Run] = set()  # of those expected
        self.now: Pack | None = None
        self.begun: set[str] = set()  # what is being loaded
        self.said = time.monotonic()

    def expect(self, packs: Iterable[Pack]) -> None:
        """What is to be trained, for a bar of all of it."""
        self.expected = {run for pack in packs for run in pack.runs}
        self.left = set(self.expected)
        self._remove("all")
        self._all()

    def training(self, what: str, pack: Pack, done: int, of: int) -> None:
        """A bar for all packs, and one for the pack in training, gone when it has ended."""
        rare = what != "training" or done in (0, of)
        if what == "loading":  # of which `loading` says more
            return
        if ": " in what or what == LATER:  # a remark: left to others or for later, starts over
            others = what.startswith("left to others")
            known = others and self.told.issuperset(pack.runs)
            if what != LATER and not known:  # LATER is what the command tells in the end
                self._line(f"{pack.name}: {what}")
            self.told.update(pack.runs if others else ())
            if what.startswith("left"):
                self.expected -= self.left.intersection(pack.runs)
                self._gone(pack)
        elif self.progress.disable:
            if rare or time.monotonic() - self.said > LINE_EVERY_S:
                self._line(f"{what} {done}/{of} {pack.name}")
        elif what == "cached":
            self._gone(pack)
        else:
            if pack != self.now:
                self._remove("pack")
                self.now = pack
            self._bar("pack", pack.name, done, of, step=1)
            seeds = len(self.left.intersection(pack.runs))
            self._all(done * seeds, step=seeds)

    def finished(self, pack: Pack) -> None:
        """Its records are written."""
        self._gone(pack, step=pack.run.epochs * len(pack.seeds))  # it may have ended early

    def _gone(self, pack: Pack, step: int = 0) -> None:
        self.left.difference_update(pack.runs)
        self._remove("pack")
        self.now = None
        self._all(step=step)

    def _all(self, running: int = 0, step: int = 0) -> None:
        """One bar for all that is expected, in epochs, `running` of them in this pack."""
        if self.progress.disable:
            return
        if not self.expected:
            self._remove("all")
            return
        of = sum(run.epochs for run in self.expected)
        done = of - sum(run.epochs for run in self.left) + running
        runs = f"{len(self.expected) - len(self.left)} of {len(self.expected)} runs, in epochs"
        self._bar("all", runs, done, of, step)

    def measuring(self, what: str, measure: Measure, done: int, of: int) -> None:
        """One bar for all measurements, `done` of which are; it is named after the current one."""
        name = measure_name(measure)
        if ": " in what:  # left to others, or failed
            self._line(f"{name}: {what}")
        elif not self.progress.disable:
            self._bar("measuring", name, done, of)
        elif what != "measured":
            self._line(f"{what} {done + 1}/{of} {name}")

    def loading(self, what: str, done: int, of: int | None) -> None:
        """A bar while data is loaded; elsewhere a line when something begins."""
        if not self.progress.disable:
            self._bar("loading", what, done, of)
            if done == of:
                self._remove("loading")
        elif done == of:
            self.begun.discard(what)
        elif what not in self.begun:
            self.begun.add(what)
            self._line(what)

    def _bar(self, key: str, text: str, done: int, of: int | None, step: int | None = None) -> None:
        """`step` is as much as can be done at once: what exceeds it says nothing about speed."""
        if key not in self.ids:
            self.ids[key] = self.progress.add_task(escape(text), total=of)
        elif step is not None and done > self.at[key] + step:
            self.progress.reset(self.ids[key], completed=done)
        self.at[key] = done
        self.progress.update(self.ids[key], description=escape(text), total=of, completed=done)

    def _remove(self, key: str) -> None:
        if key in self.ids:
            self.progress.remove_task(self.ids.pop(key))

    def _line(self, text: str) -> None:
        self.said = time.monotonic()
        self.out.print(text, markup=False, highlight=False, soft_wrap=True)


@contextmanager
def bars(told: set[Run] | None = None) -> Iterator[Bars]:
    """Bars on stderr while inside."""
    console = Console(stderr=True)
    # a dumb terminal draws bars at the end only
    lines = not console.file.isatty() or console.is_dumb_terminal
    with drawn(console, disable=lines) as progress:
        yield Bars(progress, told)


def drawn(console: Console, *, disable: bool = False) -> Progress:
    """Name, bar, count and time left."""
    shown = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    return Progress(
        *shown,
        TimeRemainingColumn(),
        console=console,
        disable=disable,
        speed_estimate_period=PACE_OVER_S,
    )


def take_aloud(
    measures: Sequence[Measure],
    bench: Bench,
    deadline: Deadline,
    failed: Callable[[Measure], object] | None = None,
) -> None:
    """Take what is not in the store yet, with a bar, until the time is up; `failed`: of `take`."""
    if deadline.over:
        return
    with bars() as shown:
        heard, bench.progress = 0, shown.loading

        def listen(what: str, measure: Measure) -> None:
            nonlocal heard
            shown.measuring(what, measure, heard, len(measures))
            heard += not what.startswith("failed")  # it has been counted as it began

        for measure in take(measures, bench, listen, failed):
            shown.measuring("measured", measure, heard, len(measures))
            if deadline.over:
                return


def show(table: Table) -> None:
    """A table and its notes on stdout; where its cells do not fit side by side, the first of each
    row stands above the others.

    The screen decides; where there is none, 80 columns do.
    """
    console = Console(highlight=False, markup=False)
    columns = list(zip(table.columns, *table.rows, strict=True))
    whole = [max(map(len, column)) for column in columns]
    # names of columns may be broken between words, cells not at all
    cells = [max(map(len, (*name.split(), *column)), default=0) for name, *column in columns]
    capped = [min(width, CELL) for width in whole]
    gaps = 2 * (len(columns) - 1)
    room = console.width - gaps
    if sum(whole) <= room:
        _show_grid(console, table, whole)
    elif sum(cells) <= room + gaps // 2:
        _show_grid(console, table, cells, tight=sum(cells) > room)
    else:
        _show_stacked(console, table, (whole if sum(whole[1:]) <= room else capped)[1:])
    for note in table.notes:
        console.print(f"- {note}", soft_wrap=True)
    console.print()


def _show_stacked(console: Console, table: Table, widths: Sequence[int]) -> None:
    """First cells on lines of their own, the others below them."""

    def cells(row: Sequence[str]) -> str:
        lines = [""]
        for text, width in zip(row[1:], widths, strict=True):
            cell = f"  {text:>{width}}"
            if lines[-1] and len((lines[-1] + cell).rstrip()) > console.width:
                lines.append("")  # between cells: a verdict is not to be broken
            lines[-1] += cell
        return "\n".join(line.rstrip() for line in lines)

    console.print(table.title, style="italic")
    console.print(f"{table.columns[0]}\n{cells(table.columns)}", style="bold")
    console.print("─" * min(sum(widths) + 2 * len(widths), console.width))
    for row in table.rows:
        console.print(row[0])
        console.print(cells(row))


def _show_grid(
    console: Console, table: Table, widths: Sequence[int], *, tight: bool = False
) -> None:
    """Columns side by side; `tight`: closer together."""
    # no frame: Table 2 fits in 80 columns
    shown = RichTable(
        title=table.title,
        title_justify="left",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, 0, 0, int(not tight)),
    )
    for n, (column, width) in enumerate(zip(table.columns, widths, strict=True)):
        shown.add_column(column, justify="right" if n else "left", overflow="fold", width=width)
    for row in table.rows:
        shown.add_row(*row)
    console.print(shown)


def show_headlines(headlines: Sequence[Headline]) -> None:
    """Each headline, and what our runs say about it in each reading."""
    console = Console(highlight=False, markup=False)
    console.print("The paper's headlines in our runs\n", style="italic")
    for n, headline in enumerate(headlines, 1):
        console.print(f"{n}. {headline.title}", style="bold")
        for statement, findings in by_statement(headline.findings).items():
            console.print(statement)
            for finding in findings:
                console.print("- ", end="")
                console.print(finding.verdict, style=COLOUR.get(finding.verdict), end="")
                item = f" [{finding.item}]" if finding.item else ""
                console.print(f"{finding.said}{item}", soft_wrap=True)
    console.print()
