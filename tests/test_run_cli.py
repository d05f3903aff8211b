"""lohe run | show | compare: what they print, what they leave behind, how they refuse."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

import fakes
import short_sva
from commands import lohe
from lohe import cli, run_cli
from lohe.experiments import PAPER
from lohe.experiments.evidence import seeded
from lohe.experiments.measures import measure_recipe
from lohe.experiments.runner import complete, missing
from lohe.experiments.setting import SCALES, Setting
from lohe.experiments.store.checkpoints import Checkpoint
from lohe.experiments.store.records import key
from lohe.experiments.store.store import Store
from lohe.experiments.studies.sva import agreement
from lohe.models import Oscillator
from lohe.tasks import SVA

SRC = Path(cli.__file__).parents[1]
PACKS = 5  # mechanisms of Table 2, at smoke scale one pack each


def smoke_runs(*seeds: int):
    """The runs of Table 2 at smoke scale."""
    return seeded(agreement.runs(Setting("smoke")), seeds)


def process(*arguments: object) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", "lohe", *map(str, arguments)],
        env=os.environ | {"PYTHONPATH": str(SRC), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A store after `lohe run table2 --scale smoke`, and what that printed."""
    store = tmp_path_factory.mktemp("store")
    return store, lohe("run", "table2", "--scale", "smoke", "--seeds", "0-1", "--store", store)


def test_another_precision_is_recorded_and_shown_apart(tmp_path):
    how = ["table2", "--scale", "smoke", "--store", tmp_path]
    found = lohe("run", *how, "--seeds", "0", "--precision", "float64")
    assert found.exit_code == 0, found.output
    assert {r.recipe["precision"] for r in Store(tmp_path).all()} == {"float64"}
    shown, usual = lohe("show", *how, "--precision", "float64"), lohe("show", *how)
    assert shown.stdout == found.stdout != usual.stdout
    refused = lohe("run", *how, "--precision", "half")
    assert refused.exit_code == 2
    assert "precision='half' is not known" in " ".join(refused.stderr.split())


def test_the_cpu_is_got_ready_where_something_may_be_trained(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(run_cli.cpu, "get_ready", lambda: asked.append(1))
    how = ["run", "table2", "--scale", "smoke", "--store", tmp_path, "--device", "cpu"]
    lohe(*how, "--dry-run")
    assert asked == []
    lohe(*how, "--minutes", 0)
    assert asked == [1]


def test_seeds_that_others_train_are_counted_in_the_end(tmp_path):
    """Not all that was asked for is recorded: whoever waits for it must not go on."""
    held = smoke_runs(0, 1)[0].recipe()
    how = ["run", "table2", "--scale", "smoke", "--seeds", "0-2", "--store", tmp_path]
    with Store(tmp_path).claim(held, [1, 2]):
        result = lohe(*how)
    assert result.exit_code == 1
    said = "2 seeds are left to others, who have not recorded them yet: the same command continues."
    assert said in " ".join(result.stderr.split())
    again = lohe(*how)
    assert again.exit_code == 0
    assert "who have not recorded" not in again.stderr


def test_when_the_minutes_are_up_nothing_is_begun(tmp_path):
    result = lohe("run", "table2", "--scale", "smoke", "--store", tmp_path, "--minutes", 0)
    assert result.exit_code == 0, result.output
    assert f"{PACKS} packs may not end in 0 minutes" in " ".join(result.stderr.split())
    assert not list(tmp_path.glob("*.json"))


@pytest.mark.parametrize("command", ["run", "show", "compare"])
def test_help_explains_the_scales(command):
    assert all(f"{scale}:" in lohe(command, "--help").output for scale in SCALES)


@pytest.mark.parametrize("name", PAPER)
def test_quick_is_full_at_two_to_five_seeds(name):
    full, quick = (PAPER[name].runs(Setting(scale)) for scale in ("full", "quick"))
    assert set(quick) <= set(full)
    recipes, few = ({replace(run, seed=0) for run in runs} for runs in (full, quick))
    assert recipes == few
    seeds = Counter(replace(run, seed=0) for run in set(quick))
    assert all(2 <= n <= 5 for n in seeds.values())


def test_run_trains_records_and_prints_the_table(trained):
    store, result = trained
    assert result.exit_code == 0
    assert missing(smoke_runs(0, 1), Store(store), 10) == []
    for name in agreement.MECHANISMS:
        assert re.search(rf"^{name} .* \d/2 ", result.stdout, re.MULTILINE)
    assert "softmax (paper)" in result.stdout
    assert max(len(line) for line in result.stdout.splitlines()) <= 80
    # not a terminal: plain lines, and no drawing
    assert result.stderr.splitlines()[0] == "loading SVA"
    assert result.stderr.count("training 0/2 SVA, ") == PACKS
    assert result.stderr.count("training 2/2 SVA, ") == PACKS
    assert "\x1b" not in result.output


def test_run_again_trains_nothing(trained):
    store, first = trained
    before = {path: path.stat().st_mtime_ns for path in store.glob("*.json")}
    result = lohe("run", "table2", "--scale", "smoke", "--seeds", "0-1", "--store", store)
    assert result.stdout == first.stdout
    assert result.stderr.count("cached 2/2 SVA, ") == PACKS
    assert "training" not in result.stderr
    assert {path: path.stat().st_mtime_ns for path in store.glob("*.json")} == before


def test_a_dry_run_says_what_is_there_and_what_is_not(trained):
    store, _ = trained
    result = lohe(
        "run", "table2", "--scale", "smoke", "--seeds", "0-1,4", "--store", store, "--dry-run"
    )
    assert result.exit_code == 0
    first, *rest = result.stdout.splitlines()
    assert first == "15 runs, 10 cached, 5 to train"
    assert len(rest) == PACKS + 1
    assert rest[-1].startswith("In all about ")
    assert re.fullmatch(r"  SVA, Softmax, seeds 4: 2 epochs, about \d+ (?:s|min)", rest[0])
    assert sorted(Store(store).load(smoke_runs(0)[0].recipe())) == [0, 1]


def test_a_dry_run_into_a_new_store_goes_by_the_times_of_results(trained, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(trained[0], "results")
    ask = ("run", "table2", "--scale", "smoke", "--seeds", "0", "--dry-run")
    first, said, *rest = lohe(*ask, "--store", "new", "--device", "cpu").stdout.splitlines()
    assert first == f"{PACKS} runs, 0 cached, {PACKS} to train"
    assert said == "new has no times on cpu: by those of results"
    assert re.fullmatch(r"  SVA, Softmax, seeds 0: 2 epochs, about \d+ (?:s|min)", rest[0])
    assert not (tmp_path / "new").exists()


def test_a_dry_run_on_nothing_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = lohe("run", "table2", "--store", tmp_path / "new", "--dry-run")
    assert result.exit_code == 0
    assert result.stdout.startswith("1000 runs, 0 cached, 1000 to train\n")
    assert "  SVA, Softmax, seeds 0-9: 20 epochs, time unknown\n" in result.stdout
    assert result.stdout.endswith("In all runs of unknown time: 1000\n")
    assert not (tmp_path / "new").exists()


def test_unknown_times_are_not_summed_as_nothing(trained):
    store, _ = trained  # of agreement alone
    result = lohe("run", "all", "--scale", "smoke", "--seeds", "0", "--store", store, "--dry-run")
    *rest, last = result.stdout.splitlines()
    unknown = sum(line.endswith("time unknown") for line in rest)  # one seed a pack
    said = rf"In all at least \d+ (?:s|min) on \w+, runs or measurements of unknown time: {unknown}"
    assert re.fullmatch(said, last)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "table0"], "'table0' is no item of the paper. There are: table"),
        (["run", "table2", "--corpus", "mine"], "--corpus takes auto, paper, compact; got 'mine'."),
        (["run", "table2", "--scale", "big"], "scale='big' is not known. Choose from smoke,"),
        (["run", "table2", "--seeds", "x"], "--seeds takes numbers and ranges, 0-4,7; got 'x'."),
        (["run", "table2", "--seeds", "4-2"], "--seeds takes numbers and ranges, 0-4,7; got"),
        (["run", "table2", "--seeds", "0,5-3"], "--seeds takes numbers and ranges, 0-4,7; got"),
        (["run", "table2", "--seeds", "1-"], "--seeds takes numbers and ranges, 0-4,7; got '1-'"),
        (
            ["run", "table2", "--seeds", "9" * 20],
            "--seeds takes seeds below 2^63, and at most 100,000",
        ),
        (["run", "table2", "--seeds", "0-99999999999"], "at most 100,000 of them; got '0-9999"),
        (["run", "table2", "--seeds", "0-2,1"], "--seeds takes each seed once; got '0-2,1'."),
        (["run", "table2", "--device", "tpu"], "--device takes cpu, cuda, cuda:N or auto; got"),
        (["run", "table2", "--device", "cuda:x"], "--device takes cpu, cuda, cuda:N or auto; got"),
        (["run", "table2", "--device", "cuda:99"], "but torch sees"),
        (["run", "table2", "--pack", "0"], "Invalid value for '--pack'"),
        (["run", "table2", "--device", "cpu", "--precision", "tf32"], "is of NVIDIA GPUs"),
        (["run", "table2", "--minutes", "-3"], "Invalid value for '--minutes'"),
        (["show", "table2", "table0"], "'table0' is no item of the paper."),
        (["show", "table2", "figure2", "--figure", "x.png"], "x.png takes one item, got 2"),
        (["show", "figure2", "--figure", "x.foo"], "x.foo: choose a name that ends in .png"),
        (["show", "table2", "--scale", "big"], "scale='big' is not known."),
    ],
    ids=lambda x: " ".join(x) if isinstance(x, list) else "",
)
def test_what_cannot_be_is_refused_in_one_line(tmp_path, arguments, message):
    dry = ["--dry-run"] if arguments[0] == "run" else []
    result = lohe(*arguments, *dry, "--store", tmp_path / "store")
    assert result.exit_code == 2
    (error,) = [line for line in result.stderr.splitlines() if line.startswith("Error: ")]
    assert message in error
    assert result.stderr.splitlines()[-1] == error
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("command", ["run table2", "show table2", "compare", "contest choose"])
def test_a_store_that_is_a_file_is_said_to_be_one(tmp_path, command):
    (tmp_path / "store").touch()
    result = lohe(*command.split(), "--store", tmp_path / "store")
    assert result.exit_code == 2
    assert "is a file" in " ".join(result.stderr.split())


def test_data_that_is_not_there_is_named(tmp_path):
    result = lohe(
        "run", "table4", "--scale", "quick", "--store", tmp_path / "store", "--data", tmp_path
    )
    assert result.exit_code == 1
    assert "Usage" not in result.stderr
    said = " ".join(result.stderr.split("Error: ")[-1].split())
    assert "Invalid value" not in said
    assert "wiki.train.tokens is missing" in said
    assert "lohe data fetch wikitext2" in said
    assert "Traceback" not in result.output


def test_a_store_that_cannot_be_written_is_named(tmp_path):
    store = tmp_path / "store"
    store.mkdir()
    (store / "PUBLISHED").touch()
    result = lohe("run", "table2", "--scale", "smoke", "--store", store)
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: ")
    assert str(store) in result.stderr


def test_show_prints_the_records_without_training(trained):
    store, first = trained
    how = ["--scale", "smoke", "--store", store]
    assert lohe("show", "table2", *how).stdout == first.stdout
    both = lohe("show", "figure2", "table2", *how).stdout
    assert both == lohe("show", "figure2", *how).stdout + first.stdout


def test_smoke_records_do_not_land_beside_full_ones(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first = lohe("run", "figure2", "--scale", "smoke")
    assert first.exit_code == 0
    assert [folder.name for folder in tmp_path.iterdir()] == ["results-smoke"]
    assert list((tmp_path / "results-smoke").glob("*.json"))
    assert lohe("show", "figure2", "--scale", "smoke").stdout == first.stdout


@pytest.mark.parametrize("which", ["smoke records", "no records"])
def test_compare_prints_every_item(trained, tmp_path, which):
    store = trained[0] if which == "smoke records" else tmp_path
    result = lohe("compare", "--store", store)
    assert result.exit_code == 0
    numbered = {name.removeprefix("table") for name in PAPER if re.fullmatch(r"table\d+", name)}
    assert set(re.findall(r"^Table (\d+)", result.stdout, re.MULTILINE)) >= numbered
    assert "None of ours yet at scale full: lohe run table2 --scale full." in result.stdout
    tables = [line for line in result.stdout.splitlines() if not line.startswith("- ")]
    assert max(len(line) for line in tables) <= 80


@pytest.mark.parametrize("command", [["show", "table2"], ["compare"]], ids=["show", "compare"])
def test_a_store_that_is_not_there_is_named(tmp_path, monkeypatch, command):
    result = lohe(*command, "--store", tmp_path / "typo")
    assert result.exit_code == 2
    assert f"--store {tmp_path / 'typo'} is no folder" in result.stderr
    monkeypatch.chdir(tmp_path)  # without the default one: nothing was asked for that is not there
    result = lohe(*command)
    assert result.exit_code == 0
    assert result.stderr.startswith(f"No records in {tmp_path / 'results'}: ")


@pytest.mark.parametrize("command", [["show", "table2"], ["compare"]], ids=["show", "compare"])
def test_a_damaged_file_is_named_and_the_rest_shown(tmp_path, command):
    foreign = tmp_path / "sva-0123456789abcdef.json"
    foreign.write_text("{")
    result = lohe(*command, "--store", tmp_path)
    assert result.exit_code == 0
    assert "Table 2" in result.stdout
    assert f"left alone: {foreign}" in result.stderr
    assert foreign.read_text() == "{"


@pytest.mark.parametrize("dry", [False, True], ids=["run", "dry run"])
@pytest.mark.parametrize("damage", ["cut short", "two of one recipe"])
def test_a_damaged_file_stops_nothing_else(tmp_path, monkeypatch, dry, damage):
    """Of three mechanisms, one with records that cannot be read: the others are trained."""
    bad, fine, new = fakes.run(0), fakes.run(0, Oscillator()), fakes.run(0, Oscillator(sharpness=2))
    tosses = fakes.Tosses()
    records = Store(tmp_path / "store")
    records.add([fakes.record(run) for run in (bad, fine)], name="sva")
    path = tmp_path / "store" / f"sva-{key(bad.recipe())}.json"
    if damage == "cut short":
        path.write_bytes(path.read_bytes()[:-40])
    else:
        shutil.copy(path, path.with_name(f"two-{key(bad.recipe())}.json"))
    (tmp_path / "store" / f"measure-{key(measure_recipe(tosses))}.json").write_text("{")
    left = {one: one.read_bytes() for one in (tmp_path / "store").glob("*.json")}
    runs = [bad, replace(bad, seed=1), fine, new]
    made_up = replace(fakes.items()["table2"], runs=lambda s: runs, measures=lambda s: [tosses])
    monkeypatch.setitem(PAPER, "table2", made_up)
    monkeypatch.setattr(SVA, "load", lambda *asked: short_sva.data())
    options = ["--store", tmp_path / "store", "--corpus", "compact", *["--dry-run"][: int(dry)]]
    result = lohe("run", "table2", *options)
    assert result.exit_code == 1  # not all that was asked for
    assert result.stderr.count("left alone: ") == 2
    assert result.stderr.count(f"left alone: {path}: ") == 1
    if dry:
        assert result.stdout.startswith("2 runs, 1 cached, 1 to train\n")
        assert "measurements" not in result.stdout
    else:
        assert "A table at full" in result.stdout
        assert sorted(records.load(new.recipe())) == [0]
    assert {one: one.read_bytes() for one in left} == left


def test_stopped_by_hand_it_says_so_and_goes_on_later(trained, tmp_path, monkeypatch):
    """Ctrl-C in the middle of the second pack of two."""
    two = smoke_runs(0, 1)[:4]
    monkeypatch.setitem(PAPER, "table2", replace(PAPER["table2"], runs=lambda setting: two))
    command = ["run", "table2", "--scale", "smoke", "--seeds", "0-1", "--store", tmp_path]
    epochs = 0

    def impatient(*args, listen, **how):
        def heard(what, pack, done, of):
            nonlocal epochs
            epochs += what == "training" and done > 0
            if epochs == 3:
                raise KeyboardInterrupt
            listen(what, pack, done, of)

        return complete(*args, listen=heard, **how)

    with monkeypatch.context() as patched:
        patched.setattr(run_cli, "complete", impatient)
        result = lohe(*command)
    assert result.exit_code == 130
    assert "Stopped. The same command continues." in result.stderr
    assert len(list(tmp_path.glob("*.json"))) == 1
    assert lohe(*command).exit_code == 0
    for run in two:
        ours, undisturbed = (Store(s).load(run.recipe())[run.seed] for s in (tmp_path, trained[0]))
        assert (ours.result, ours.curve) == (undisturbed.result, undisturbed.curve)


def test_sigint_leaves_a_checkpoint_and_no_claim(tmp_path):
    running = process("run", "table2", "--seeds", "0", "--device", "cpu", "--store", tmp_path)
    folder = tmp_path / ".lohe" / "checkpoints"
    deadline = time.monotonic() + 60
    while not list(folder.glob("*/step-*.json")):
        assert running.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    running.send_signal(signal.SIGINT)
    _, said = running.communicate(timeout=30)
    assert running.returncode == 130
    assert said.endswith("Stopped. The same command continues.\n")
    assert "Traceback" not in said
    (kept,) = folder.iterdir()
    found = Checkpoint(kept).load()
    assert found is not None
    assert len(found[1]["outcomes"][0]["curve"]) >= 1
    assert list((tmp_path / ".lohe" / "claims").iterdir()) == []


def test_two_commands_on_one_store_train_each_pack_once(tmp_path):
    command = ["run", "table2", "--scale", "smoke", "--seeds", "3"]
    both = [process(*command, "--store", tmp_path) for _ in range(2)]
    said = [one.communicate(timeout=120)[1] for one in both]
    # who was done first may have left a pack to the other
    assert [one.returncode for one in both] == [int("not recorded" in text) for text in said]
    assert 0 in [one.returncode for one in both]
    trained = re.findall(r"training 2/2 (.*)", "".join(said))
    assert len(trained) == len(set(trained)) == PACKS
    assert missing(smoke_runs(3), Store(tmp_path), 10) == []


def test_seeds_are_those_of_measurements_too(tmp_path):
    plan = lohe("run", "table6", "--seeds", "3", "--store", tmp_path, "--dry-run")
    assert plan.exit_code == 0
    assert "seed 0" not in plan.output
    assert "seeds 0" not in plan.output
