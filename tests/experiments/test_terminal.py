"""Bars in a terminal, lines elsewhere; both say the same."""

import io

import pytest
from rich.console import Console
from rich.progress import Progress

import fakes
from lohe.experiments import terminal
from lohe.experiments.runner import Pack
from lohe.experiments.tables import Table

PACK = Pack(fakes.run(), [0, 1])


def bars(*, disable: bool) -> tuple[terminal.Bars, io.StringIO]:
    out = io.StringIO()
    console = Console(file=out, force_terminal=not disable, width=60)
    return terminal.Bars(Progress(console=console, disable=disable)), out


def tasks(shown: terminal.Bars) -> list[tuple[str, float, float | None]]:
    return [(t.description, t.completed, t.total) for t in shown.progress.tasks]


def test_a_bar_for_each_pack():
    shown, out = bars(disable=False)
    shown.training("loading", PACK, 0, 20)
    shown.training("training", PACK, 3, 20)
    shown.training("cached", Pack(fakes.run(), [5]), 20, 20)
    assert tasks(shown) == [
        ("SVA, Softmax, seeds 0-1", 3, 20),
        ("SVA, Softmax, seeds 5", 20, 20),
    ]
    assert out.getvalue() == ""


def test_one_bar_for_all_measurements_and_it_ends_full():
    shown, _ = bars(disable=False)
    for n in range(2):
        shown.measuring("measuring", fakes.Tosses(n), n, 2)
        assert tasks(shown) == [(f"Tosses(tosses={n})", n, 2)]
        shown.measuring("measured", fakes.Tosses(n), n + 1, 2)
    assert tasks(shown) == [("Tosses(tosses=1)", 2, 2)]


def test_lines_where_there_is_no_terminal():
    shown, out = bars(disable=True)
    for done in range(5):
        shown.training("training", PACK, done, 4)
    shown.measuring("measuring", fakes.Tosses(), 0, 2)
    shown.measuring("measured", fakes.Tosses(), 1, 2)
    assert out.getvalue().splitlines() == [
        "training 0/4 SVA, Softmax, seeds 0-1",
        "training 4/4 SVA, Softmax, seeds 0-1",
        "measuring 1/2 Tosses",
    ]


def test_a_bar_while_data_is_loaded():
    shown, _ = bars(disable=False)
    shown.loading("loading KeywordSpotting", 0, None)
    assert tasks(shown) == [("loading KeywordSpotting", 0, None)]  # nobody knows how long
    shown.loading("decoding yes", 3, 8)
    assert tasks(shown) == [("decoding yes", 3, 8)]
    shown.loading("loading KeywordSpotting", 1, 1)
    assert tasks(shown) == []


def test_a_line_when_loading_begins_where_there_is_no_terminal():
    shown, out = bars(disable=True)
    for _ in range(2):
        shown.loading("loading KeywordSpotting", 0, None)
        for done in range(9):
            shown.loading("decoding yes", done, 8)
        shown.loading("loading KeywordSpotting", 1, 1)
    assert out.getvalue().splitlines() == ["loading KeywordSpotting", "decoding yes"] * 2


def test_a_line_now_and_then_while_it_trains(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(terminal.time, "monotonic", lambda: now[0])
    shown, out = bars(disable=True)
    for done in range(1, 9):
        now[0] += 20.0  # seconds an epoch
        shown.training("training", PACK, done, 100)
    assert [line.split()[1] for line in out.getvalue().splitlines()] == [
        "2/100",
        "4/100",
        "6/100",
        "8/100",
    ]


@pytest.mark.parametrize("disable", [True, False], ids=["pipe", "terminal"])
def test_what_others_do_is_always_said(disable):
    shown, out = bars(disable=disable)
    shown.training("left to others: seeds [1] of x [held]", PACK, 0, 4)
    shown.measuring("left to others: y", fakes.Tosses(), 0, 1)
    said = out.getvalue()
    assert "SVA, Softmax, seeds 0-1: left to others: seeds [1] of x [held]\n" in said
    assert "Tosses: left to others: y\n" in said
    assert tasks(shown) == []


def test_brackets_in_a_table_are_text(capsys):
    terminal.show(Table("t", ("a", "b"), [("[red]", "1.0 [0.5, 1.5]")], ["see [1]"]))
    said = capsys.readouterr().out
    assert "[red]" in said
    assert "1.0 [0.5, 1.5]" in said
    assert "- see [1]" in said


LONG = "d_osc = 2, as published: what a line of the paper can be about"


def test_long_lines_stand_by_themselves_where_a_table_is_too_wide(capsys, monkeypatch):
    row = (LONG, "84.3 %", "84.35 ± 0.10 %", "not comparable", "does not hold")
    table = Table("t", ("line", "paper", "ours", "value", "claim"), [row], ["note"])
    monkeypatch.setenv("COLUMNS", "80")
    terminal.show(table)
    said = capsys.readouterr().out.splitlines()
    assert said[4] == LONG
    assert said[5].split("  ")[1:] == list(row[1:])
    assert said[2].split() == list(table.columns[1:])
    assert said[6] == "- note"
    monkeypatch.setenv("COLUMNS", "150")
    terminal.show(table)
    assert f"{LONG}  84.3 %" in capsys.readouterr().out


def test_one_long_cell_does_not_spoil_the_others(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    many = "84.3, 91.3, 96.0, 97.3, 98.8 %"
    table = Table("t", ("line", "paper", "ours"), [(LONG, "1", "2"), (LONG, many, many)])
    terminal.show(table)
    said = capsys.readouterr().out.splitlines()
    assert said[5] == f"{'1':>20}{'2':>20}"
    assert said[7] == f"  {many}  {many}"


def test_a_verdict_is_not_broken(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    row = (LONG, "84.3, 91.3, 96.0, 97.3, 98.8 %", "84.35, 91.97, 97.27, 98.41, 99.46 %")
    short = (LONG, "1", "2", "not comparable", "does not hold")
    columns = ("line", "paper", "ours", "value", "claim")
    terminal.show(Table("t", columns, [short, (*row, "not comparable", "does not hold")]))
    said = capsys.readouterr().out.splitlines()
    assert said[-3:-1] == [f"  {row[1]}  {row[2]}", "  not comparable  does not hold"]


def test_a_table_of_many_wide_columns_is_folded_not_cut(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    terminal.show(Table("t", ("a", "b", "c"), [(LONG, LONG, LONG)]))
    said = capsys.readouterr().out
    assert max(map(len, said.splitlines())) <= 40
    assert "…" not in said


def test_a_table_without_rows_has_its_columns(capsys):
    terminal.show(Table("empty", ("a", "b"), []))
    assert "a  b" in capsys.readouterr().out
