"""What was measured, as lines, as tables of ratios, and as a picture. Nothing here computes."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from rich import box
from rich.table import Table

from lohe.bench.rows import Case, Row, Spread
from lohe.viz.style import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, RED, SKY

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))
LOOKS = tuple(zip((BLUE, RED, GREEN, ORANGE, PURPLE, SKY, BLACK), "osD^vP*", strict=True))
PANELS = {"forward": "forward", "both": "forward + backward"}


def line(row: Row) -> str:
    """One row, for a reader who waits."""
    if row.status != "timed":
        return f"{row.name:18}{row.status}: {row.note}"
    assert row.seconds is not None
    said = [f"{row.name:18}{row.measure:13}{duration(row.seconds):>22}"]
    if row.ratio is not None:
        said.append(f"{ratio(row.ratio):>20} x {row.rival:10}")
    if row.measure.startswith("decode"):
        said.append(f"{row.case.batch / row.seconds.median:,.0f} tokens/s")
    if row.cache_bytes:
        said.append(f"cache {size(row.cache_bytes)}")
    if row.peak_bytes:
        said.append(f"peak {size(row.peak_bytes)}, {size(row.bytes_per_token or 0)} a token")
    if row.errors:
        said.append(f"error {max(row.errors.values()):.0e}")
    return "  ".join([*said, row.note] if row.note else said)


def duration(spread: Spread) -> str:
    """Median and quartiles in a unit that suits.

    >>> duration(Spread(0.0123, 0.0120, 0.0130))
    '12.3 (12.0-13.0) ms'
    """
    scale, unit = next((u for u in UNITS if spread.median >= u[0]), UNITS[-1])
    low, middle, high = (
        f"{x / scale:#.3g}".rstrip(".")
        for x in (spread.quartile_1, spread.median, spread.quartile_3)
    )
    return f"{middle} ({low}-{high}) {unit}"


def ratio(spread: Spread) -> str:
    return f"{spread.median:.2f} ({spread.quartile_1:.2f}-{spread.quartile_3:.2f})"


def size(nbytes: float) -> str:
    """
    >>> size(3_400_000)
    '3.4 MB'
    """
    for unit in ("B", "kB", "MB"):
        if nbytes < 1000:
            return f"{nbytes:.3g} {unit}"
        nbytes /= 1000
    return f"{nbytes:.3g} GB"


def tables(rows: Iterable[Row]) -> Iterator[Table]:
    """For each set and width of heads, the ratios: a line for a mechanism, a column for a case."""
    groups: dict[tuple[str, int, int, str], list[Row]] = {}
    for row in rows:
        if row.status == "timed":
            key = (row.set, row.case.heads, row.case.d_h, row.case.dtype)
            groups.setdefault(key, []).append(row)
    for (name, heads, d_h, dtype), group in groups.items():
        title = f"{name}: {heads} heads x {d_h}, {dtype}; time of the fastest rival / ours"
        cases = list(dict.fromkeys(row.case for row in group))
        table = Table(title=title, box=box.SIMPLE, title_justify="left")
        table.add_column("")
        for case in cases:
            table.add_column(_heading(case), justify="right")
        for measure in dict.fromkeys(row.measure for row in group):
            of_measure = [row for row in group if row.measure == measure]
            for kept in dict.fromkeys(row.name for row in of_measure if row.kind != "sdpa"):
                found = {row.case: row for row in of_measure if row.name == kept}
                cells = [_cell(found.get(case)) for case in cases]
                table.add_row(f"{measure}, {kept}", *cells)
            best = {row.case: row for row in of_measure if row.name == row.rival}
            times = [
                f"{best[c].rival} {_short(best[c].seconds)}" if c in best else "" for c in cases
            ]
            table.add_row(f"{measure}, fastest rival", *times, style="dim", end_section=True)
        yield table


def _heading(case: Case) -> str:
    return f"{case.batch} x {case.tokens}\n{'causal' if case.causal else 'bidirectional'}"


def _cell(row: Row | None) -> str:
    return "" if row is None or row.ratio is None else f"{row.ratio.median:.2f}"


def _short(spread: Spread | None) -> str:
    return "" if spread is None else f"{1e3 * spread.median:.3g} ms"


def figure(rows: Sequence[Row], machine: str) -> "Figure":
    """Ratio against T, a line for each mechanism; whiskers are quartiles over the rounds."""
    from matplotlib.figure import Figure  # a third of a second, which no other command needs
    from matplotlib.ticker import NullLocator

    drawn = [r for r in rows if r.kind == "ours" and r.ratio is not None and r.measure in PANELS]
    if not drawn:
        raise ValueError("Nothing to draw: no forward or backward pass of ours was timed.")
    looks = dict(zip(dict.fromkeys(row.name for row in drawn), LOOKS, strict=False))
    down = list(dict.fromkeys(_panel(row) for row in drawn))
    picture = Figure(figsize=(8.4, 1.2 + 2.6 * len(down)), layout="constrained")
    axes = picture.subplots(len(down), 2, sharex=True, sharey="row", squeeze=False)
    for panel, pair in zip(down, axes, strict=True):
        measure, heads, d_h = panel
        for causal, ax in zip((True, False), pair, strict=True):
            inside = [r for r in drawn if _panel(r) == panel and r.case.causal == causal]
            ax.axhline(1, color=GREY, lw=1)
            for name, (color, marker) in looks.items():
                _line(ax, [row for row in inside if row.name == name], name, color, marker)
            ax.set_title(f"{PANELS[measure]}, {'causal' if causal else 'bidirectional'}")
        pair[0].set_ylabel(f"times as fast as SDPA\n({heads} heads x {d_h})")
        pair[0].set_ylim(bottom=0)
    lengths = sorted({row.case.tokens for row in drawn})
    for ax in axes[-1]:
        ax.set_xscale("log", base=2)
        ax.set_xticks(lengths, [f"{n // 1024}k" if n % 1024 == 0 else f"{n:,}" for n in lengths])
        ax.xaxis.set_minor_locator(NullLocator())
        ax.set_xlabel("tokens T")
    found = {name: h for ax in axes.flat for h in ax.containers if (name := h.get_label()) in looks}
    picture.legend(handles=list(found.values()), loc="outside upper center", ncols=4)
    picture.supxlabel(f"{machine}, {drawn[0].case.dtype}; SDPA: its fastest kernel", fontsize=9)
    return picture


def _panel(row: Row) -> tuple[str, int, int]:
    return row.measure, row.case.heads, row.case.d_h


def _line(ax: "Axes", rows: Sequence[Row], name: str, color: str, marker: str) -> None:
    points = sorted((r.case.tokens, r.ratio) for r in rows if r.ratio is not None)
    if points:
        tokens, ratios = zip(*points, strict=True)
        middle = [r.median for r in ratios]
        errors = [
            [r.median - r.quartile_1 for r in ratios],
            [r.quartile_3 - r.median for r in ratios],
        ]
        ax.errorbar(
            tokens, middle, errors, label=name, color=color, marker=marker, ms=5, capsize=2.5
        )
