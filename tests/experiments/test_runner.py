"""What a store lacks is trained, once, in packs."""

from dataclasses import replace

import pytest
import torch
import trainers

import lohe
import short_sva
from lohe.experiments import runner
from lohe.experiments.runner import Pack, complete, missing, packs
from lohe.experiments.store.store import Store
from lohe.models import Amplified, Oscillator, Softmax
from lohe.train import Run, Trained
from lohe.version import code_version

TINY = {"d_model": 8, "d_ff": 8}


@pytest.fixture
def store(tmp_path) -> Store:
    return Store(tmp_path / "results")


def seeds(*numbers: int, attention=None, **changes) -> list[Run]:
    run = short_sva.run(attention or Softmax(), **TINY | changes)
    return [replace(run, seed=seed) for seed in numbers]


def finished(runs, store, **how) -> list[list[int]]:
    how = {"load": short_sva.load, "size": 2} | how
    return [pack.seeds for pack in complete(runs, store, **how)]


def test_runs_of_a_recipe_are_packed_in_the_order_they_come():
    runs = seeds(4, 0) + seeds(7, attention=Oscillator()) + seeds(1, 2, 3)
    found = packs(runs, 2)
    assert [pack.seeds for pack in found] == [[4, 0], [7], [1, 2], [3]]
    kinds = [Softmax, Oscillator, Softmax, Softmax]
    assert [type(pack.run.model.attention) for pack in found] == kinds
    assert {pack.run.seed for pack in found} == {0}


def test_only_what_is_missing_is_trained(store):
    assert finished(seeds(0, 1, 4), store) == [[0, 1], [4]]
    before = Store(store.root).load(seeds(0)[0].recipe())
    wanted = seeds(*range(6))
    assert [pack.seeds for pack in missing(wanted, store, 3)] == [[2], [3, 5]]
    assert finished(wanted, store, size=3) == [[2], [3, 5]]
    after = store.load(wanted[0].recipe())
    assert sorted(after) == [0, 1, 2, 3, 4, 5]
    assert {seed: after[seed] for seed in before} == before
    assert missing(wanted, store, 3) == []
    assert finished(wanted, store, load=None) == []  # nor is anything loaded


def test_records_are_there_when_a_pack_is_yielded(store):
    done = complete(seeds(0, 1, 2), store, size=2, load=short_sva.load)
    assert next(done).seeds == [0, 1]
    assert sorted(store.load(seeds(0)[0].recipe())) == [0, 1]
    done.close()  # left here, the rest stays free for others
    with store.claim(seeds(0)[0].recipe(), [0, 1, 2]):
        pass


def test_data_is_loaded_once_for_a_task_and_as_told(store):
    loaded = []

    def load(task):
        loaded.append(task)
        return short_sva.data()

    finished(seeds(0, 1, 2) + seeds(0, attention=Oscillator()), store, load=load)
    assert loaded == [seeds(0)[0].task]


def test_the_trained_models_can_be_kept(store):
    kept: list[tuple[Pack, Trained]] = []
    finished(seeds(0, 1), store, keep=lambda pack, trained: kept.append((pack, trained)))
    ((pack, trained),) = kept
    model = trained.model(short_sva.data(), seed=1)
    every = short_sva.data().valid.take(slice(None))
    right = (model(**every.inputs) > 0) == (every.targets["label"] == 1)
    record = store.load(pack.run.recipe())[1]
    assert record.result["valid.overall"] == pytest.approx(100 * right.double().mean().item())


def test_a_record_says_what_was_trained_where_and_on_what(store):
    finished(seeds(4, 6, 5, precision="bf16"), store, size=10)
    found = store.load(seeds(0, precision="bf16")[0].recipe())
    assert sorted(found) == [4, 5, 6]
    record = found[5]
    assert record.recipe["precision"] == "bf16"
    assert record.recipe["model"]["d_model"] == 8
    assert record.code_version == code_version()
    assert record.code_version.startswith(f"{lohe.__version__}+")
    assert record.data_checksum == short_sva.data().checksum
    assert record.environment["device"].startswith("cpu")
    assert record.environment["torch"] == torch.__version__
    assert record.environment["threads"] == torch.get_num_threads()
    assert record.notes == {"pack": "4-6", "epoch": 1, "data": {"sentences": 150, "cut": [1, 2]}}
    assert {name.split(".")[0] for name in record.result} == {"valid", "test"}
    assert [sorted(line) for line in record.curve] == [
        ["easy", "hard", "loss", "overall", "simple"]
    ] * 2
    assert record.wall_seconds == found[4].wall_seconds > 0
    (path,) = store.root.glob("*.json")
    assert path.name.startswith("sva-softmax-")


def test_the_listener_hears_of_every_step(store):
    heard = []

    def listen(what, pack, done, of):
        heard.append((what, pack.seeds, done, of))

    finished(seeds(0, 1), store, listen=listen)
    finished(seeds(0, 1), store, listen=listen)
    story = [("loading", 0), ("training", 0), ("training", 1), ("training", 2), ("cached", 2)]
    assert heard == [(what, [0, 1], done, 2) for what, done in story]


def test_seeds_that_others_train_are_left_to_them(store):
    heard = []
    recipe = seeds(0)[0].recipe()
    with store.claim(recipe, [1]):
        runs = seeds(0, 1, 2)
        listen = lambda what, pack, done, of: heard.append((what[:14], pack.seeds))  # noqa: E731
        assert finished(runs, store, listen=listen) == [[0], [2]]  # the free ones of their pack too
    assert ("left to others", [1]) in heard
    assert finished(seeds(0, 1, 2), store) == [[1]]


def test_seeds_that_are_taken_while_we_look_are_left_too(store, monkeypatch):
    """Busy again for the free ones of a pack: what remains gets smaller, and it ends."""
    recipe, claim, asked = seeds(0)[0].recipe(), store.claim, []

    def rival(wanted, numbers, *how):
        asked.append(list(numbers))
        return claim(wanted, numbers, *how)

    monkeypatch.setattr(store, "claim", rival)
    with claim(recipe, [0]), claim(recipe, [1]):
        assert finished(seeds(0, 1), store, size=2) == []
    assert asked == [[0, 1]]
    with claim(recipe, [3]):
        assert finished(seeds(2, 3, 4), store, size=3) == [[2, 4]]
    assert asked[1:] == [[2, 3, 4], [2, 4]]


@pytest.mark.parametrize("after", [0, 1])
def test_who_was_taken_for_dead_writes_nothing_more(store, after):
    """Its claim is taken over after the first or the last epoch; the next pack is trained."""
    heard, recipe = [], seeds(0)[0].recipe()
    theirs = store.checkpoint(recipe, [0, 1])

    def taken(pack, epoch, metrics):
        if (pack.seeds, epoch) == ([0, 1], after):
            for claim in (store.root / ".lohe" / "claims").iterdir():
                claim.unlink()
            theirs.save({"x": torch.ones(1)}, {"of": "others"})

    listen = lambda what, pack, done, of: heard.append((what[:24], pack.seeds))  # noqa: E731
    assert finished(seeds(0, 1, 2), store, log=taken, listen=listen) == [[2]]
    assert ("left to others: Our clai", [0, 1]) in heard
    assert sorted(store.load(recipe)) == [2]
    assert theirs.load()[1] == {"of": "others"}


def test_every_epoch_is_logged_with_the_metrics_of_each_seed(store):
    lines = []
    finished(seeds(3, 1), store, log=lambda *heard: lines.append(heard))
    assert [(pack.seeds, epoch) for pack, epoch, _ in lines] == [([3, 1], 0), ([3, 1], 1)]
    found = store.load(seeds(0)[0].recipe())
    for n, seed in enumerate([3, 1]):
        logged = [metrics[n]["overall"] for _, _, metrics in lines]
        assert logged == pytest.approx([line["overall"] for line in found[seed].curve], rel=1e-4)


def test_two_processes_train_every_seed_once(tmp_path, context, start, finish):
    log, ready = tmp_path / "log", context.Barrier(2)
    finish(*(start(trainers.train, tmp_path / "results", log, ready) for _ in range(2)))
    trained = [line for line in log.read_text().splitlines() if line.startswith("kept")]
    assert len(trained) == len(set(trained)) == 4
    assert missing(trainers.runs(), Store(tmp_path / "results"), 2) == []


def test_a_checkpoint_that_outlived_its_records_is_cleared(store):
    """Killed after the records were written and before the checkpoint was deleted."""
    (run,) = seeds(0)
    finished([run], store)
    checkpoint = store.checkpoint(run.recipe(), [0])
    checkpoint.save({"x": torch.zeros(1)}, {})
    finished([run], store)
    assert checkpoint.load() is None


def test_checkpoints_of_other_pack_sizes_go_with_their_last_record(store):
    """A pack of three was stopped; its seeds were then trained in another way."""
    recipe = seeds(0)[0].recipe()
    left = store.checkpoint(recipe, [0, 1, 2])
    left.save({"x": torch.zeros(1)}, {"outcomes": [{"seed": seed} for seed in range(3)]})
    finished(seeds(0, 1), store)
    assert left.load() is not None  # seed 2 still needs it
    with store.claim(recipe, [0]):
        finished(seeds(2), store)
    assert left.load() is not None  # someone may be training seed 0 again, for its weights
    finished(seeds(3), store)
    assert left.load() is None
    assert not left.folder.exists()


@pytest.mark.parametrize(("size", "times"), [(3, 0), (1, 3)], ids=["as before", "otherwise"])
def test_a_pack_begun_at_another_size_is_not_left_in_silence(store, size, times):
    def stop(pack, epoch, metrics):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        finished(seeds(0, 1, 2), store, size=3, log=stop)
    heard = []
    listen = lambda what, pack, done, of: heard.append(what)  # noqa: E731
    finished(seeds(0, 1, 2), store, size=size, listen=listen)
    said = "starts over: there is a checkpoint of seeds 0-2, trained at once."
    assert sum(what.startswith(said) for what in heard) == times


def test_a_pack_is_named_by_what_is_not_the_default():
    def name(attention) -> str:
        return Pack(short_sva.run(attention), [0, 1, 4]).name

    assert name(Softmax()) == "SVA, Softmax, seeds 0-1,4"
    assert name(Oscillator(anchors="free")) == "SVA, Oscillator(anchors='free'), seeds 0-1,4"
    nested = Amplified(Oscillator(coupling="relu", sharpness=2))
    assert name(nested) == (
        "SVA, Amplified(mechanism=Oscillator(coupling='relu', sharpness=2)), seeds 0-1,4"
    )


def test_records_name_the_code_that_they_began_with(store):
    """Its files may be edited while it trains."""
    code_version.cache_clear()
    known = lambda *heard: asked.append(code_version.cache_info().currsize)  # noqa: E731
    asked = []
    finished(seeds(0), store, log=known)
    assert asked == [1, 1]


def test_a_record_names_all_code_that_its_run_was_trained_by(store):
    """Stopped, and continued twice, by other code each time."""
    (run,), heard = seeds(0), []
    long = replace(run, epochs=3)

    def stop_after(epochs):
        def listen(what, pack, done, of):
            heard.append(what)
            if (what, done) == ("training", epochs):
                raise KeyboardInterrupt

        return listen

    for epochs, name in enumerate(["0.0.1+older", "0.0.2+old"], 1):
        with pytest.raises(KeyboardInterrupt):
            finished([long], store, listen=stop_after(epochs))
        for note in store.checkpoint(long.recipe(), [0]).folder.glob("*.json"):
            note.write_text(note.read_text().replace(code_version(), name))
    finished([long], store, listen=stop_after(99))
    said = [what for what in heard if what.startswith("continues: ")]
    assert said[0] == "continues: what 0.0.1+older began, which may compute otherwise"
    assert said[1].startswith("continues: what 0.0.1+older, 0.0.2+old began")
    record = store.load(long.recipe())[0]
    assert record.code_version == code_version()
    assert record.notes["begun_by"] == ["0.0.1+older", "0.0.2+old"]


def test_the_environment_names_the_very_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device=None: f"the GPU {device}")
    assert runner.environment("cuda:1")["device"] == "cuda:1 (the GPU cuda:1)"


def test_curves_are_short_and_results_exact():
    assert runner._short(0.123456789) == 0.12346
    assert runner._short(98.76543) == 98.765
