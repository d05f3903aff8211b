"""What is measured is recorded once, whoever asks, and survives being killed."""

import signal
from dataclasses import replace
from pathlib import Path

import pytest
from workers import Counted, take_all

import fakes
import short_sva
from lohe.experiments import measures
from lohe.experiments.measures import (
    Bench,
    Measure,
    measure_name,
    measure_recipe,
    model_runs,
    on_seeds,
    take,
    untaken,
)
from lohe.experiments.runner import complete
from lohe.experiments.store.store import Store
from lohe.models import Oscillator
from lohe.train import Run


class ShortBench(Bench):
    """On the few sentences that the runs here are trained on."""

    def data(self, run: Run):
        return short_sva.data()


def counted(tmp_path: Path, *numbers: int, deadly: int = 0) -> list[Measure]:
    log = str(tmp_path / "log")
    mark = str(tmp_path / "died")
    return [Counted(n, log, mark if n == deadly else "") for n in numbers]


def taken(tmp_path: Path) -> list[int]:
    return [int(line) for line in (tmp_path / "log").read_text().split()]


@pytest.fixture
def store(tmp_path) -> Store:
    return Store(tmp_path / "store")


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Store:
    """Two seeds with their weights."""
    store = Store(tmp_path_factory.mktemp("trained"))
    runs = [fakes.run(0), fakes.run(1)]
    for _ in complete(runs, store, load=short_sva.load, with_weights=runs):
        pass
    return store


def test_a_measure_is_taken_once(tmp_path, store):
    wanted, heard = counted(tmp_path, 1, 2), []
    done = take(wanted, Bench(store), lambda what, m: heard.append((what, m.number)))
    assert next(done) == wanted[0]
    assert store.missing(measure_recipe(wanted[0]), [0]) == []  # recorded when it is yielded
    assert untaken(wanted, store) == [wanted[1]]
    assert [m.number for m in done] == [2]
    assert list(take(wanted, Bench(store), lambda what, m: heard.append((what, m.number)))) == []
    assert taken(tmp_path) == [1, 2]
    assert heard == [("measuring", 1), ("measuring", 2), ("cached", 1), ("cached", 2)]
    assert untaken(wanted, store) == []


def test_a_measure_that_others_take_is_left_to_them(tmp_path, store):
    wanted, heard = counted(tmp_path, 1, 2), []
    with store.claim(measure_recipe(wanted[0]), [0]):
        took = list(take(wanted, Bench(store), lambda what, m: heard.append(what[:14])))
    assert took == [wanted[1]]
    assert heard == ["left to others", "measuring"]
    assert untaken(wanted, store) == [wanted[0]]


def test_who_was_taken_for_dead_in_a_measure_records_nothing(tmp_path, store):
    """Another process removed the claim meanwhile, and may have it; the next one is taken."""

    class Slow(fakes.Tosses):
        def take(self, bench):
            for claim in (store.root / ".lohe" / "claims").iterdir():
                claim.unlink()
            return super().take(bench)

    wanted, heard = [Slow(), *counted(tmp_path, 2)], []
    took = list(take(wanted, Bench(store), lambda what, m: heard.append(what[:24])))
    assert took == wanted[1:]
    assert heard == ["measuring", "left to others: Our clai", "measuring"]
    assert untaken(wanted, store) == wanted[:1]


def test_killed_in_a_measure_the_others_stay_and_it_is_taken_again(
    tmp_path, store, context, start, finish
):
    wanted = counted(tmp_path, 1, 2, 3, deadly=2)
    process = start(take_all, store.root, wanted)
    process.join(30)
    assert process.exitcode == -signal.SIGKILL
    assert untaken(wanted, store) == wanted[1:]
    finish(start(take_all, store.root, wanted))
    assert taken(tmp_path) == [1, 2, 2, 3]
    assert untaken(wanted, store) == []
    assert store.problems() == []


def test_an_error_in_a_measure_leaves_no_claim_and_no_record(store):
    class Broken(fakes.Tosses):
        def take(self, bench):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(take([Broken()], Bench(store)))
    assert list((store.root / ".lohe" / "claims").iterdir()) == []
    assert list(store.root.glob("*.json")) == []


def test_a_record_says_what_was_measured_on_which_model(trained):
    measure = fakes.Size(fakes.run(1))
    assert list(take([measure], ShortBench(trained))) == [measure]
    record = trained.load(measure_recipe(measure))[1]
    assert record.recipe["type"] == "Size"
    assert record.recipe["run"] == fakes.run().recipe()
    assert "seed" not in record.recipe["run"]
    assert record.data_checksum == short_sva.data().checksum
    model = trained.load(fakes.run().recipe())[1]
    assert record.notes["model"] == model.result
    assert record.wall_seconds > 0
    (path,) = trained.root.glob("measure-*")
    assert path.name.startswith("measure-sva-size-")


def test_seeds_share_a_file_and_differ(trained):
    both = on_seeds(fakes.Size(fakes.run(), examples=20), [0, 1])
    assert [m.run.seed for m in both] == [0, 1]
    assert len(list(take(both, ShortBench(trained)))) == 2
    found = trained.load(measure_recipe(both[0]))
    assert sorted(found) == [0, 1]
    assert found[0].result["size"] != found[1].result["size"]
    assert measure_recipe(both[0]) == measure_recipe(both[1])


def test_without_weights_the_model_is_asked_for(store):
    with pytest.raises(FileNotFoundError, match=r"No weights of SVA with Softmax, seed 3 in"):
        ShortBench(store).model(fakes.run(3))


def test_a_model_is_not_measured_on_other_data(trained):
    class OtherBench(ShortBench):
        def data(self, run: Run):
            return replace(short_sva.data(), checksum="ef" * 32)

    with pytest.raises(ValueError, match="trained on data with checksum"):
        OtherBench(trained).model(fakes.run(1))
    with pytest.raises(ValueError, match="trained on data with checksum"):
        list(take([fakes.Size(fakes.run(1), examples=5)], OtherBench(trained)))


def test_a_model_that_others_still_train_is_left_to_them(store):
    heard = []
    measure = fakes.Size(fakes.run(3))
    assert list(take([measure], ShortBench(store), lambda what, m: heard.append(what))) == []
    assert heard == ["left to others: its model is not trained yet"]
    assert untaken([measure], store) == [measure]


def test_data_is_loaded_once_and_cut_as_the_run_saw_it(store, monkeypatch):
    loads = []

    def load(self, root, progress):
        loads.append(1)
        return short_sva.data()

    monkeypatch.setattr(type(fakes.run().task), "load", load)
    heard, bench = [], Bench(store)
    bench.progress = lambda what, done, of: heard.append((what, done, of))
    assert len(bench.data(fakes.run()).train) == 150
    assert len(bench.data(replace(fakes.run(), limit=7)).train) == 7
    assert loads == [1]
    assert heard == [("loading SVA", 0, None), ("loading SVA", 1, 1)]


def test_what_measures_need(store):
    sizes = on_seeds(fakes.Size(fakes.run()), [0, 1])
    other = fakes.Size(fakes.run(0, Oscillator()))
    wanted = [fakes.Tosses(), *sizes, other, replace(other, examples=3)]
    assert model_runs(wanted) == [fakes.run(0), fakes.run(1), fakes.run(0, Oscillator())]
    assert untaken([*wanted, *wanted], store) == wanted


def test_names_for_people():
    assert measure_name(fakes.Tosses()) == "Tosses"
    assert measure_name(fakes.Tosses(7)) == "Tosses(tosses=7)"
    assert measure_name(fakes.Size(fakes.run(2))) == "Size of SVA with Softmax, seed 2"
    assert measures._file_name(fakes.Tosses()) == "measure-tosses"
