"""Rows as lines, tables, a file and a picture."""

import io
import json

import matplotlib.pyplot as plt
import pytest
from rich.console import Console

from lohe.bench import report, rows
from lohe.bench.rows import Case, Row, Spread
from lohe.viz.style import drawing, save

HEADER = {"gpu": None, "processor": "abacus", "date": "2026-11-15"}


def row(name="relu", measure="forward", tokens=1024, causal=True, ratio=1.5, **more) -> Row:
    kind = "sdpa" if name == "flash" else "ours"
    case = Case(16384 // tokens, 32, tokens, 64, "bfloat16", causal)
    spread = Spread(ratio, 0.9 * ratio, 1.2 * ratio)
    seconds = Spread(1e-3 / ratio, 0.9e-3 / ratio, 1.1e-3 / ratio)
    told = {"seconds": seconds, "ratio": spread, "rival": "flash", "rounds": 7} | more
    return Row("table", measure, name, kind, case, **told)


def some_rows() -> list[Row]:
    lengths = {1024: 1.2, 4096: 1.7, 16384: 2.0}
    ours = [
        row(name, measure, tokens, causal, ratio * faster)
        for tokens, ratio in lengths.items()
        for causal in (True, False)
        for measure in ("forward", "both")
        for name, faster in (("relu", 1.0), ("softplus", 0.5))
    ]
    best = [
        row("flash", m, t, c, 1.0) for m in ("forward", "both") for t in lengths for c in (0, 1)
    ]
    return [*ours, *best, absent()]


def absent() -> Row:
    case = Case(1, 32, 16384, 64, "bfloat16", True)
    return Row("table", "", "cudnn", "sdpa", case, "left out", note="no such kernel")


def test_a_file_gives_back_what_was_written(tmp_path):
    path = tmp_path / "new" / "folder.jsonl"
    told = [
        *some_rows(),
        row(errors={"output": 2e-3, "f": 1e-3}, peak_bytes=123, cache_bytes=456, note="a note"),
    ]
    rows.start(path, HEADER)
    for one in told:
        rows.append(path, one)
        assert rows.read(path)[1][-1] == one  # after every row the file is whole
    assert rows.read(path) == (HEADER, told)
    assert all(json.loads(line) for line in path.read_text().splitlines())
    rows.start(path, HEADER)
    assert rows.read(path) == (HEADER, [])


def test_another_file_is_refused(tmp_path):
    path = tmp_path / "other.jsonl"
    path.write_text('{}\n{"case": {}, "answer": 42}\n')
    with pytest.raises(ValueError, match=r"other\.jsonl was not written by `lohe bench --json`"):
        rows.read(path)


def test_a_line_tells_what_there_is():
    line = report.line(row(peak_bytes=16384 * 3000, errors={"output": 2e-3, "f": 1e-3}))
    assert "667 (600-733) µs" in line
    assert "1.50 (1.35-1.80) x flash" in line
    assert "peak 49.2 MB, 3 kB a token" in line
    assert "error 2e-03" in line
    decoded = report.line(row(measure="decode", cache_bytes=5_000_000))
    assert "24,000 tokens/s" in decoded
    assert "cache 5 MB" in decoded
    assert report.line(absent()) == "cudnn             left out: no such kernel"


def test_a_table_has_a_line_for_each_mechanism_and_a_column_for_each_case():
    (table,) = report.tables(some_rows())
    out = io.StringIO()
    Console(file=out, width=160).print(table)
    lines = {line.strip().split("  ")[0]: line for line in out.getvalue().splitlines()}
    assert lines["forward, relu"].split()[2:] == ["1.20", "1.20", "1.70", "1.70", "2.00", "2.00"]
    assert lines["both, softplus"].split()[2:] == ["0.60", "0.60", "0.85", "0.85", "1.00", "1.00"]
    assert lines["both, fastest rival"].count("flash 1 ms") == 6
    assert "cudnn" not in out.getvalue()


def test_the_figure_shows_every_ratio(tmp_path):
    with drawing():
        figure = report.figure(some_rows(), "abacus")
        assert len(figure.axes) == 4
        assert [ax.get_title() for ax in figure.axes[:2]] == [
            "forward, causal",
            "forward, bidirectional",
        ]
        for ax in figure.axes:
            relu, softplus = ax.containers
            assert list(relu.lines[0].get_xdata()) == [1024, 4096, 16384]
            assert list(relu.lines[0].get_ydata()) == pytest.approx([1.2, 1.7, 2.0])
            assert list(softplus.lines[0].get_ydata()) == pytest.approx([0.6, 0.85, 1.0])
            (whiskers,) = relu.lines[2]
            low, high = whiskers.get_segments()[0][:, 1]
            assert (low, high) == pytest.approx((0.9 * 1.2, 1.2 * 1.2))
        (legend,) = figure.legends
        assert [text.get_text() for text in legend.get_texts()] == ["relu", "softplus"]
        assert save(figure, tmp_path / "a.png").stat().st_size > 10_000
        plt.close("all")


def test_there_must_be_something_to_draw():
    with pytest.raises(ValueError, match="Nothing to draw"):
        report.figure([absent()], "abacus")
