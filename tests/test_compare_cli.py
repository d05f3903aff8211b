"""lohe compare, and what lohe run says about measures and time, on items that are made up."""

import re
from dataclasses import dataclass, replace

import pytest

import fakes
from commands import lohe
from lohe import experiments, run_cli
from lohe.experiments.item import Item
from lohe.experiments.measures import Taken, measure_recipe
from lohe.experiments.setting import Setting
from lohe.experiments.store.store import Store
from lohe.models import Oscillator


@pytest.fixture
def paper(monkeypatch) -> dict[str, Item]:
    """A paper of made-up items."""
    made_up = fakes.items(fakes.two_mechanisms)
    for module in (experiments, run_cli):
        monkeypatch.setattr(module, "PAPER", made_up)
    return made_up


@pytest.fixture
def store(tmp_path, paper) -> Store:
    """Four of six runs recorded."""
    store = Store(tmp_path / "store")
    store.add([fakes.record(run) for run in fakes.two_mechanisms(Setting())[:4]])
    return store


def lines(result) -> list[str]:
    return [line.rstrip() for line in result.stdout.splitlines()]


def test_compare_begins_with_the_summary_then_the_headlines_then_every_item(store):
    result = lohe("compare", "--store", store.root)
    assert result.exit_code == 0
    said = result.stdout
    order = [
        "10 lines: not reported 4",
        "Values: ours beside the printed ones",
        "Claims: do they hold in our runs?",
        "The paper's headlines in our runs",
        "2. Training failures on subject-verb agreement",
        "\nTraining fails in fewer seeds with the oscillator than with softmax.\n",
        "\n- holds, as published, failures: 5/200 against 58/200, p = 3e-14. [table2]\n",
        "\n- does not hold, as defined, failures: 60/200",
        "Training and measuring",
        "A table at full",
        "Table 2. Something & more: verdicts",
    ]
    places = [said.index(text) for text in order]
    assert places == sorted(places)
    assert max(len(line) for line in lines(result) if not line.startswith("- ")) <= 80


def test_a_summary_of_the_longest_names_fits_a_terminal(paper, tmp_path):
    name = "claim-kws-permutation"
    paper[name] = paper.pop("claim-budget")
    result = lohe("compare", "--brief", "--store", tmp_path)
    assert re.search(rf"^{name} +0 +· +· +· +· +·$", result.stdout, re.MULTILINE)
    assert " lines reproduced differs inconclusive comparable records\n" in result.stdout


def test_records_of_several_data_under_one_recipe_are_said(store, tmp_path):
    """Averaged in silence they would look like one experiment."""
    said = "subject-verb agreement has 2 checksums of its data (ab"
    for command in ("show table2", "compare", "compare --brief"):
        assert said not in lohe(*command.split(), "--store", store.root).stdout
    other = fakes.record(fakes.two_mechanisms(Setting())[4])
    store.add([replace(other, data_checksum="cd" * 32)])
    for command in ("show table2", "show figure6", "compare", "compare --brief"):
        found = lohe(*command.split(), "--store", store.root)
        assert said in found.stdout, command
    lohe("compare", "--store", store.root, "--html", tmp_path / "page")
    page = (tmp_path / "page" / "index.html").read_text(encoding="utf-8")
    assert page.count(said) == 3  # below the records, and in each of the two items with runs


def test_brief_is_the_summary_alone(store):
    whole, brief = (lohe("compare", *o, "--store", store.root) for o in ([], ["--brief"]))
    assert whole.stdout.startswith(brief.stdout)
    assert "headlines" in brief.stdout
    assert "A table at full" not in brief.stdout


def test_items_can_be_chosen(store):
    result = lohe("compare", "figure6", "claim-budget", "--store", store.root)
    assert result.stdout.startswith("1 lines: not reported 1. 1 claims: holds 1.")
    assert result.stdout.count("- holds") == 1  # of the headlines, the one that is reached
    assert "Something & more" not in result.stdout
    assert "Figure 6. A curve: verdicts" in result.stdout
    refused = lohe("compare", "figure0", "--store", store.root)
    assert refused.exit_code == 2
    assert "'figure0' is no item of the paper." in refused.stderr


def test_html_writes_a_page_and_the_figures(store, tmp_path):
    result = lohe("compare", "--html", tmp_path / "out", "--store", store.root)
    assert result.exit_code == 0
    assert result.stderr == f"wrote {tmp_path / 'out' / 'index.html'}\n"
    assert (tmp_path / "out" / "figures" / "table2.png").stat().st_size > 1000
    assert "Table 2. Something" in (tmp_path / "out" / "index.html").read_text(encoding="utf-8")


def test_html_that_cannot_be_written_is_said(store, tmp_path):
    (tmp_path / "file").touch()
    result = lohe("compare", "--html", tmp_path / "file" / "out", "--store", store.root)
    assert result.exit_code == 1
    assert "Traceback" not in result.output


def test_a_dry_run_estimates_by_similar_runs(store):
    result = lohe("run", "figure6", "--device", "cpu", "--store", store.root, "--dry-run")
    assert lines(result) == [
        "6 runs, 4 cached, 2 to train",
        "  SVA, Oscillator, seeds 1-2: 20 epochs, about 60 s",
        "1 measurements to take",
        "  Tosses: time unknown",
        "In all at least 60 s on cpu, runs or measurements of unknown time: 1",
    ]


def test_a_dry_run_says_where_an_estimate_comes_from(store, paper):
    other = Setting().agreement(Oscillator(coupling="relu"))
    paper["figure6"] = Item(title="", lines=lambda e: [], runs=lambda setting: [other])
    result = lohe("run", "figure6", "--device", "cpu", "--store", store.root, "--dry-run")
    assert lines(result)[1] == (
        "  SVA, Oscillator(coupling='relu'), seeds 0: 20 epochs, about 30 s, by a similar run"
    )


@dataclass(frozen=True)
class Interrupted:
    """Somebody presses Ctrl-C while this is measured."""

    run: None = None

    def take(self, bench) -> Taken:
        raise KeyboardInterrupt


def measuring(*measures) -> Item:
    return Item(title="", lines=lambda evidence: [], measures=lambda setting: list(measures))


def test_measures_are_counted_and_recorded(tmp_path, paper):
    paper["figure6"] = measuring(fakes.Tosses(10), fakes.Tosses(20))
    command = ["run", "figure6", "--scale", "smoke", "--store", tmp_path]
    result = lohe(*command)
    assert result.exit_code == 0
    assert result.stderr == "measuring 1/2 Tosses(tosses=10)\nmeasuring 2/2 Tosses(tosses=20)\n"
    assert lohe(*command).stderr == ""


def test_measurements_that_others_take_are_counted_in_the_end(tmp_path, paper):
    store, tosses = Store(tmp_path), fakes.Tosses()
    paper["table2"] = measuring(tosses)
    with store.claim(measure_recipe(tosses), [0]):
        result = lohe("run", "table2", "--store", store.root)
    assert result.exit_code == 1
    assert "1 measurements are left to others" in " ".join(result.stderr.split())


def test_stopped_in_a_measure_what_is_recorded_stays(tmp_path, paper):
    first = fakes.Tosses()
    paper["figure6"] = measuring(first, Interrupted(), fakes.Tosses(20))
    result = lohe("run", "figure6", "--scale", "smoke", "--store", tmp_path)
    assert result.exit_code == 130
    assert result.stderr.endswith("\nStopped. The same command continues with this measurement.\n")
    assert "Traceback" not in result.output
    assert len(list(tmp_path.glob("*.json"))) == 1
    assert Store(tmp_path).missing(measure_recipe(first), [0]) == []
    assert list((tmp_path / ".lohe" / "claims").iterdir()) == []


def test_tensorboard_that_is_not_there_is_named_before_anything_is_trained(
    tmp_path, paper, monkeypatch
):
    monkeypatch.setitem(__import__("sys").modules, "torch.utils.tensorboard", None)
    result = lohe(
        "run", "table2", "--scale", "smoke", "--store", tmp_path / "s", "--tensorboard", tmp_path
    )
    assert result.exit_code == 2
    assert "pip install tensorboard" in re.sub(r"\s+", " ", result.stderr)
    assert not (tmp_path / "s").exists()
