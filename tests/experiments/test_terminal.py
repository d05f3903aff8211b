"""Bars in a terminal, lines elsewhere; both say the same."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

import fakes
from lohe.experiments import terminal
from lohe.experiments.runner import Pack
from lohe.experiments.tables import Table

PACK = Pack(fakes.run(), [0, 1])


def bars(*, disable: bool) -> tuple[terminal.Bars, io.StringIO]:
    out = io.StringIO()
    console = Console(file=out, force_terminal=not disable, width=60)
    return terminal.Bars(terminal.drawn(console, disable=disable)), out


@pytest.mark.parametrize(("term", "lines"), [("dumb", True), ("xterm", False)])
def test_a_terminal_that_cannot_draw_gets_lines(term, lines, monkeypatch):
    """Bars would appear there when all is done, and nothing before."""
    out = io.StringIO()
    monkeypatch.setattr(out, "isatty", lambda: True)
    monkeypatch.setattr("sys.stderr", out)
    monkeypatch.setenv("TERM", term)
    with terminal.bars() as shown:
        shown.training("training", PACK, 0, epochs(PACK))
        assert (out.getvalue() == f"training 0/{epochs(PACK)} {PACK.name}\n") == lines


def tasks(shown: terminal.Bars) -> list[tuple[str, float, float | None]]:
    return [(t.description, t.completed, t.total) for t in shown.progress.tasks]


def epochs(pack: Pack) -> int:
    return pack.run.epochs


def test_a_bar_for_all_packs_and_one_for_the_pack_in_training():
    shown, out = bars(disable=False)
    other, of = Pack(fakes.run(), [5]), epochs(PACK)
    shown.expect([PACK, other])
    shown.training("cached", Pack(fakes.run(), [7, 8]), of, of)  # nobody waits for it
    assert tasks(shown) == [("0 of 3 runs, in epochs", 0, 3 * of)]
    shown.training("loading", PACK, 0, of)
    for done in range(2):
        shown.training("training", PACK, done, of)
    assert tasks(shown) == [
        ("0 of 3 runs, in epochs", 2, 3 * of),
        ("SVA, Softmax, d_model=8, d_ff=8, seeds 0-1", 1, of),
    ]
    shown.finished(PACK)  # early, perhaps
    assert tasks(shown) == [("2 of 3 runs, in epochs", 2 * of, 3 * of)]
    shown.training("cached", other, of, of)  # by someone else, meanwhile
    assert tasks(shown) == [("3 of 3 runs, in epochs", 3 * of, 3 * of)]
    assert out.getvalue() == ""


def test_what_is_left_to_others_is_not_waited_for():
    shown, _ = bars(disable=False)
    of = epochs(PACK)
    shown.expect([PACK])
    shown.training("left to others: x", Pack(PACK.run, [1]), 0, of)
    assert tasks(shown) == [("0 of 1 runs, in epochs", 0, of)]
    shown.training("training", Pack(PACK.run, [0]), 0, of)
    shown.training("left to others: taken over", PACK, 0, of)
    assert tasks(shown) == []


def test_that_others_train_a_pack_is_said_once():
    shown, out = bars(disable=True)
    again = terminal.Bars(shown.progress, shown.told)  # of the next look
    for listener in (shown, shown, again):
        listener.expect([PACK])
        listener.training("left to others: heartbeat 1 s ago", PACK, 0, epochs(PACK))
        assert listener.expected == set()
    assert out.getvalue().count("left to others") == 1
    again.training("left to others: x", Pack(PACK.run, [0, 2]), 0, epochs(PACK))
    assert out.getvalue().count("left to others") == 2


def test_the_pack_in_training_is_seen_among_many():
    """40 packs on 24 rows: the first 20 were trained before, ten are now, one is running."""
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=80, height=24)
    packs = [Pack(fakes.run(), [n]) for n in range(40)]
    of = epochs(packs[0])
    with terminal.drawn(console) as progress:
        shown = terminal.Bars(progress)
        shown.expect(packs[20:])
        for pack in packs[:20]:
            shown.training("cached", pack, of, of)
        for pack in packs[20:30]:
            for done in range(of + 1):
                shown.training("training", pack, done, of)
            shown.finished(pack)
        shown.training("training", packs[30], 0, of)
        out.seek(out.truncate(0))
        progress.refresh()
        said = out.getvalue()
    assert "10 of 20 runs" in said
    assert "seeds 30" in said
    assert "seeds 29" not in said
    assert said.count("\n") == 1  # two bars


def test_resumed_epochs_say_nothing_about_the_time_left():
    shown, _ = bars(disable=False)
    now, of = [0.0], 100
    shown.progress.get_time = lambda: now[0]
    run = replace(PACK.run, epochs=of)
    first, second = Pack(run, [0, 1]), Pack(run, [2, 3])
    shown.expect([first, second])
    for pack, epochs in ((first, (0, 1, 2)), (second, (0, 81, 82, 83))):  # continued after 80
        for done in epochs:
            shown.training("training", pack, done, of)
            now[0] += 20.0  # seconds an epoch
        if pack is first:
            shown.finished(pack)
    assert [task.time_remaining for task in shown.progress.tasks] == [340, 340]
    shown.training("training", Pack(run, [7]), 0, of)
    assert shown.progress.tasks[1].time_remaining is None  # of another pack nothing is known


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
        "training 0/4 SVA, Softmax, d_model=8, d_ff=8, seeds 0-1",
        "training 4/4 SVA, Softmax, d_model=8, d_ff=8, seeds 0-1",
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
    assert (
        "SVA, Softmax, d_model=8, d_ff=8, seeds 0-1: left to others: seeds [1] of x [held]\n"
        in said
    )
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
    for long, width in ((many, len(many)), (f"at T = 30 to 5000: {many}", terminal.CELL)):
        table = Table("t", ("line", "paper", "ours"), [(LONG, "1", "2"), (LONG, many, long)])
        terminal.show(table)
        said = capsys.readouterr().out.splitlines()
        assert said[5] == f"  {'1':>{width}}  {'2':>{width}}"
        below = "\n".join(said[7:])  # each whole, on one line or on two
        assert many in below
        assert long in below


def test_names_of_columns_are_broken_before_cells_are(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    row = ("d_osc = 2, as published", "107.35 ± 0.39")
    terminal.show(Table("t", ("mechanism", "perplexity, published protocol"), [row]))
    said = capsys.readouterr().out.splitlines()
    assert [line.split() for line in said[1:4]] == [
        ["perplexity,"],
        ["published"],
        ["mechanism", "protocol"],
    ]
    assert said[5] == "  ".join(row)


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
