"""Several `lohe contest` on one store: no model twice, nobody waits for what he can do."""

import contest_workers
import pytest

import short_contest
from lohe.experiments.contest import choose, large
from lohe.experiments.contest.stages import LATER_RUNS
from lohe.experiments.contest.trials import FAMILIES, OURS, protocol, trial_runs
from lohe.experiments.evidence import Evidence
from lohe.experiments.runner import packs
from lohe.experiments.setting import Setting
from lohe.experiments.store.store import Store


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return short_contest.write_corpus(tmp_path_factory.mktemp("data"))


@pytest.fixture
def short():
    with short_contest.shortened():
        yield


def evidence(store) -> Evidence:
    return Evidence(Store(store).all(), Setting())


def lines(log) -> list[list[str]]:
    return [line.split(" ", 1) for line in log.read_text().splitlines()] if log.exists() else []


@pytest.mark.parametrize("family", FAMILIES)
def test_a_setting_is_one_pack_however_often_it_was_dealt(family):
    """All its seeds are trained at once, and nothing else is with them."""
    dealt = protocol()["families"][family]["trials"]
    settings = {str({k: v for k, v in t.items() if k != "seeds"}) for t in dealt}
    found = packs(trial_runs(family), 10)
    assert len(found) == len(settings)
    assert sum(len(pack.seeds) for pack in found) == 48
    assert {len(p.seeds) for p in packs(trial_runs("softmax"), 10)} == {8}  # 6 settings, 4 times


def test_two_processes_share_the_choice(short, root, tmp_path, context, start, finish):
    store, log, ready = tmp_path / "store", tmp_path / "log", context.Barrier(2)
    finish(*(start(contest_workers.choose, store, root, log, ready) for _ in range(2)))
    trained = [what for _, what in lines(log)]
    assert len(trained) == len(set(trained)) == 10  # trials, rates and dropouts, each once
    assert len({who for who, _ in lines(log)}) == 2
    assert choose.chosen(evidence(store)) is not None
    assert list((store / ".lohe" / "claims").iterdir()) == []


def test_what_others_hold_is_left_and_what_follows_from_it_is_waited_for(
    short, root, tmp_path, start, finish, eventually
):
    """One trial of softmax is held: all else is done, the search of the other family too."""
    store, log = tmp_path / "store", tmp_path / "log"
    held = trial_runs("softmax")[0]
    with Store(store).claim(held.recipe(), [held.seed]):
        process = start(contest_workers.choose, store, root, log)
        eventually(lambda: choose.settled(evidence(store), OURS))
        assert process.is_alive()  # the search of softmax follows
        assert len(lines(log)) == 6
        assert not choose.searched(evidence(store), "softmax")
    finish(process)
    assert len(lines(log)) == 10
    assert choose.chosen(evidence(store)) is not None


def test_a_process_of_scale_waits_for_what_follows_from_anothers_search(
    short, tmp_path, start, finish, eventually
):
    """One learning rate of softmax is held: ours is searched, nothing scored before it is there."""
    root = short_contest.write_corpus(tmp_path / "data", words=140)
    store, log = tmp_path / "store", tmp_path / "log"
    finish(start(contest_workers.choose, store, root, log))
    won = choose.chosen(evidence(store))
    assert won is not None
    held = large.in_rates(large.searched(evidence(store), won, "softmax")[0].configuration)[0]
    with Store(store).claim(held.recipe(), [held.seed]):
        process = start(contest_workers.scale, store, root, log)
        # two rates and dropout of ours, one rate of softmax
        eventually(lambda: len(evidence(store).all()) == 10 + 4)
        process.join(1)
        assert process.is_alive()
    finish(process)
    assert len(large.best(evidence(store), won)) == 2
    assert not choose.missing(evidence(store), large.known_runs(evidence(store), won))


def test_all_waits_for_what_others_confirm_and_no_longer_than_it_may(
    short, root, tmp_path, start, finish, eventually
):
    """Ours is held: softmax is confirmed, controls open when it is let go. With minutes, none."""
    store, log = tmp_path / "store", tmp_path / "log"
    finish(start(contest_workers.choose, store, root, log))
    won = choose.chosen(evidence(store))
    assert won is not None
    held = LATER_RUNS["confirm"](won)[0]
    with Store(store).claim(held.recipe(), [held.seed]):
        process = start(contest_workers.whole, store, root, log)
        eventually(lambda: len(lines(log)) == 11)
        eventually(lambda: len(evidence(store).all()) == 11)
        finish(start(contest_workers.whole, store, root, log, 0.001))
        assert process.is_alive()
        assert len(lines(log)) == 11
    finish(process)
    assert len(lines(log)) == 13
    assert len(evidence(store).all()) == 13
