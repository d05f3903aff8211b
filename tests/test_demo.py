"""`lohe demo` from end to end at a tiny scale; killed, robbed of its files, refused a folder."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from html.parser import HTMLParser
from pathlib import Path

import pytest
import torch
from rich.console import Console

import short_sva
from lohe import demo
from lohe.demo import nine, terminal, training, verdicts
from lohe.demo.plan import OSCILLATOR, SOFTMAX, Plan
from lohe.experiments.products import quick_products
from lohe.experiments.reported import published
from lohe.experiments.studies.robust.physics import GRID, HORIZONS, Measured
from lohe.experiments.verdicts import Estimate
from lohe.tasks import SVA
from lohe.train import train

TINY = Plan(seeds=(0, 1), draws=1, epochs=2, limit=256, sentences=200)


@pytest.fixture(scope="module")
def out(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("demo")
    demo.main(folder, plan=TINY)
    return folder


@pytest.fixture
def copy(out, tmp_path) -> Path:
    """A demo of one's own, to break."""
    subprocess.run(["cp", "-r", str(out), str(tmp_path / "copy")], check=True)
    return tmp_path / "copy"


def job(folder: Path, name: str = OSCILLATOR) -> training.Job:
    (found,) = (job for job in training.jobs(TINY, folder) if job.name == name)
    return found


def silent(name: str, what: str, done: int, of: int) -> None: ...


@pytest.fixture
def one_thread():
    """As in the processes of a demo, so that the same numbers come out here."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


# The path as a whole


def test_it_leaves_a_report_with_numbers_models_and_records(out):
    results = json.loads((out / "results.json").read_text())
    assert set(results["accuracy"]) == {SOFTMAX, OSCILLATOR}
    assert len(results["physics"]) == len(GRID) * len(TINY.seeds) * TINY.draws
    assert {len(t["rows"]) for t in results["tables"].values()} == {4, 6, 9}
    for name in (SOFTMAX, OSCILLATOR):
        assert job(out, name).finished
        assert not list((out / "store" / ".lohe" / "checkpoints").iterdir())
    assert len(list((out / "figures").glob("*.png"))) == 12


class Reader(HTMLParser):
    """What a page refers to, and whether its tags close."""

    VOID = ("meta", "img", "br")

    def __init__(self):
        super().__init__()
        self.open: list[str] = []
        self.references: list[str] = []
        self.alternatives: list[str] = []

    def handle_starttag(self, tag, attrs):
        named = dict(attrs)
        self.references += [named[name] for name in ("src", "href", "srcset") if name in named]
        if tag == "img":
            self.alternatives.append(named.get("alt", ""))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_report_refers_to_nothing_outside(out):
    page = (out / "report.html").read_text(encoding="utf-8")
    reader = Reader()
    reader.feed(page)
    assert reader.open == []
    assert len(reader.references) == 12
    assert all(r.startswith("data:image/png;base64,") for r in reader.references)
    assert all(reader.alternatives)
    assert not re.search(r"https?://|url\(|@import|<script", page)


def test_the_report_says_what_it_is(out):
    page = (out / "report.html").read_text(encoding="utf-8")
    for said in (
        "Cut short for a test",
        "cannot test",
        "0-49",
        "false alarms",
        "Wall time",
        "Versions",
    ):
        assert said in page
    assert page.count("Made by <code>lohe demo") == 5  # every caption names its command


def test_a_second_call_trains_nothing_and_says_the_same(out, monkeypatch, capsys):
    before = json.loads((out / "results.json").read_text())
    monkeypatch.setattr(training, "side_by_side", None)
    demo.main(out, plan=TINY)
    assert capsys.readouterr().out.count("trained before, loaded from") == 2
    after = json.loads((out / "results.json").read_text())
    assert all(before[name] == after[name] for name in ("accuracy", "physics", "tables"))


# What can go wrong


@pytest.mark.parametrize("damage", ["lost", "cut short"])
def test_a_model_that_is_gone_is_trained_again_to_the_same_numbers(copy, one_thread, damage):
    mine, whole = job(copy), job(copy).file.read_bytes()
    mine.file.unlink() if damage == "lost" else mine.file.write_bytes(whole[:-100])
    assert not mine.finished
    quick_products()  # as in the process that had trained it
    training.finish(mine)
    assert mine.finished
    assert mine.file.read_bytes() == whole


@pytest.mark.parametrize("after", [1, 2])
def test_who_was_taken_for_dead_keeps_no_models(tmp_path, monkeypatch, after):
    """Another process removed the claim while the lost models were trained again."""
    monkeypatch.setattr(SVA, "load", short_sva.load)
    mine, heard = job(tmp_path), []

    def listen(what, pack, done, of):
        heard.append(what[:24])
        if done == after:
            for claim in (mine.store.root / ".lohe" / "claims").iterdir():
                claim.unlink()

    assert not training._again(mine, listen)
    assert heard[-1] == "left to others: Our clai"
    assert not mine.file.exists()


def test_part_of_a_pack_is_not_taken_for_the_pack(tmp_path):
    mine, first = job(tmp_path), Plan(seeds=(0,), epochs=2, limit=256)
    (alone,) = (j for j in training.jobs(first, tmp_path) if j.name == OSCILLATOR)
    training.finish(alone)
    assert not mine.finished
    training.finish(mine)
    assert training.learned(mine, SVA().load()).models.keys() == {0, 1}


def test_models_that_are_not_those_of_the_records_are_refused(copy):
    mine, data = job(copy), SVA().load()
    other = train(mine.run, [7, 8], data)
    other.parameters["head.bias"].fill_(100.0)  # whatever the sentence, the verb agrees
    mine.keep(other)
    with pytest.raises(RuntimeError, match="trained anew"):
        training.learned(mine, data)


def test_a_failure_in_a_process_is_told(tmp_path):
    (tmp_path / "store").write_text("not a folder")
    with pytest.raises(RuntimeError, match=r"Training softmax stopped: .*Error"):
        training.side_by_side([job(tmp_path, SOFTMAX)], silent)


@pytest.mark.slow
def test_killed_without_warning_it_continues_to_the_same_models(tmp_path, one_thread):
    plan = Plan(seeds=(0, 1), epochs=20, limit=256)
    mine, undisturbed = (training.jobs(plan, tmp_path / name)[1] for name in ("killed", "whole"))
    code = (
        "from pathlib import Path; from lohe.demo import training; "
        "from lohe.demo.plan import Plan; "
        f"jobs = training.jobs({plan}, Path({str(mine.out)!r})); "
        "training.side_by_side(jobs[1:], print)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.DEVNULL) as parent:
        checkpoints = mine.out / "store" / ".lohe" / "checkpoints"
        wait_until(lambda: len(list(checkpoints.glob("*/step-3.json"))) > 0)
        children = [int(pid) for pid in children_of(parent.pid)]
        os.kill(parent.pid, signal.SIGKILL)
    assert children
    wait_until(lambda: not any(alive(pid) for pid in children))
    assert not mine.finished
    quick_products()  # as in the process that was killed
    epochs = []
    training.finish(mine, lambda name, what, done, of: epochs.append(done))
    assert min(done for done in epochs if done) > 3  # it did not begin again
    training.finish(undisturbed)
    assert mine.file.read_bytes() == undisturbed.file.read_bytes()


def test_a_pack_that_another_process_trains_is_waited_for(tmp_path, monkeypatch):
    mine, heard, slept = job(tmp_path), [], []
    claim = mine.store.claim(mine.recipe, mine.seeds)

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            claim.__exit__(None, None, None)

    monkeypatch.setattr(training.time, "sleep", sleep)
    claim.__enter__()
    training.finish(mine, lambda *said: heard.append(said[1]))
    assert len(slept) == 3
    assert sum("left to others" in what for what in heard) == 1
    assert mine.finished


def wait_until(condition, timeout_s: float = 60.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def children_of(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


# Its parts


def test_quick_settles_draws_and_counts_only(tmp_path, capsys):
    demo.main(tmp_path, quick=True)
    said = capsys.readouterr().out
    assert "agree to" in said
    assert "11.9 x" in said
    assert (tmp_path / "settling.png").stat().st_size > 20_000
    assert [path.name for path in tmp_path.iterdir()] == ["settling.png"]


def test_a_disagreement_of_the_three_routes_is_not_hidden(monkeypatch, tmp_path):
    monkeypatch.setattr(nine, "flow", lambda z0, h, t: z0)
    with pytest.raises(SystemExit, match="disagree"):
        demo.main(tmp_path, quick=True)


def test_the_plan_is_the_published_recipe():
    data = SVA().load()
    for run in Plan().runs().values():
        assert (run.epochs, run.limit, run.steps(data)) == (20, None, 625)
    assert Plan().published
    assert not TINY.published


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(-1.0, 1.0, "consistent"), (0.1, 1.0, "differs"), (-1.0, -0.1, "differs")],
)
def test_verdicts(low, high, expected):
    half = Estimate(0.0, 1.0).interval(0.95)[1]
    assert verdicts.verdict(Estimate((low + high) / 2, (high - low) / 2 / half)) == expected


@pytest.mark.parametrize(
    ("off", "expected"),
    [
        ((-0.1, 0.0, 0.1), "reproduced"),
        ((-6.0, 0.0, 6.0), "inconclusive"),  # the published value is in the middle, by luck
        ((2.9, 3.0, 3.1), "differs"),
    ],
    ids=["near", "wide", "apart"],
)
def test_a_wide_interval_is_no_agreement(off, expected):
    """At horizon 0.5 seeds are points apart: any published value lies in such an interval."""
    printed = published("table9")["sva_pp"]
    measured = [
        Measured("settling", horizon, seed, 0, {"overall": x + off[seed], "hard": x})
        for horizon, x in zip(HORIZONS, printed, strict=True)
        for seed in range(3)
    ]
    table = verdicts.settling(measured, Plan())
    assert [row[table.columns.index("verdict")] for row in table.rows] == [expected] * 6


@pytest.mark.parametrize(
    ("mean", "std", "text"),
    [(-7.21, 0.3, "-7.21 ± 0.30"), (-0.001, float("nan"), "0.00"), (0.5, float("nan"), "+0.50")],
)
def test_changes_carry_their_sign_and_zero_none(mean, std, text):
    assert verdicts.signed(mean, std) == text


def test_keyword_spotting_as_published():
    # Figure 8: flat within 0.1 pp under frequency disorder; state noise at 0.5 costs 0.75 pp
    assert max(abs(x) for x in verdicts.keyword_spotting("frequency")) < 0.1
    assert verdicts.keyword_spotting("state")[-1] == pytest.approx(-0.75, abs=0.01)


def test_progress_in_a_pipe_is_a_few_lines(capsys):
    with terminal.progress(Console()) as bars:
        bars.heard("softmax", "loading", 0, 20)
        for epoch in range(21):
            bars.heard("softmax", "training", epoch, 20)
        bars.heard("softmax", "left to others: pid 7", 0, 20)
    said = capsys.readouterr().out.splitlines()
    assert len(said) == 5
    assert said[0].startswith("training softmax: 5 of 20")
    assert said[-1] == "softmax: left to others: pid 7"


def test_progress_in_a_terminal_is_a_bar_that_may_start_late():
    console = Console(force_terminal=True, file=open(os.devnull, "w"))  # noqa: SIM115
    with console.file, terminal.progress(console) as bars:
        bars.heard("softmax", "training", 0, 20)
        bars.heard("softmax", "training", 12, 20)
        (task,) = bars.bars.tasks
        assert (task.completed, task.total) == (12, 20)
        assert task.speed is None  # twelve epochs in no time say nothing about the next
