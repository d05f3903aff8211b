"""Records survive: concurrent writers, kills at any step, a full disk, damaged neighbours."""

import errno
import os
import shutil
from pathlib import Path

import pytest
import workers
from workers import RECIPE, record

from lohe.experiments.store import files, records
from lohe.experiments.store.exact import loads
from lohe.experiments.store.files import Damaged
from lohe.experiments.store.records import key
from lohe.experiments.store.store import Store

PATH = f"sva-{key(RECIPE)}.json"


@pytest.fixture
def store(tmp_path) -> Store:
    return Store(tmp_path / "results")


def visible(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir() if path.name != ".lohe")


def test_what_was_added_is_loaded(store):
    pack = [record(seed) for seed in (2, 0, 1)]
    assert store.add(pack, name="sva") == pack
    assert store.load(RECIPE) == {r.seed: r for r in pack}
    assert list(store.all()) == [record(0), record(1), record(2)]
    assert store.missing(RECIPE, range(5)) == [3, 4]
    assert visible(store.root) == [PATH]


def test_an_empty_store_is_empty_and_stays_so_when_read(store):
    assert store.load(RECIPE) == {}
    assert store.missing(RECIPE, [1, 0]) == [1, 0]
    assert list(store.all()) == store.problems() == []
    assert not store.root.exists()


def test_one_line_for_each_seed(store):
    store.add([record(10)], name="sva")
    before = (store.root / PATH).read_text().splitlines()
    store.add([record(2)])
    after = (store.root / PATH).read_text().splitlines()
    assert loads("\n".join(after))["records"][0]["seed"] == 2
    assert len(after) == len(before) + 1
    assert after[2] == before[1]
    assert (store.root / ".lohe" / ".gitignore").read_text() == "*\n"


def test_a_seed_that_is_there_stays_unless_replaced(store):
    store.add([record(0), record(1)], name="sva")
    before = (store.root / PATH).read_bytes()
    changed = record(0, wall_seconds=9.0)
    assert store.add([changed, record(1)]) == []
    assert (store.root / PATH).read_bytes() == before
    assert store.add([changed, record(2)]) == [record(2)]
    assert store.load(RECIPE)[0] == record(0)
    assert store.add([changed], replace=True) == [changed]
    assert store.load(RECIPE)[0] == changed


def test_two_records_for_one_seed_are_a_mistake(store):
    with pytest.raises(ValueError, match="Two records for seed 0"):
        store.add([record(0), record(0, wall_seconds=9.0)])


def test_recipes_have_files_of_their_own(store):
    other = record(0, recipe={"lr": 2})
    store.add([record(0), other], name="both")
    assert store.load({"lr": 2.0}) == {0: other}
    assert store.load(RECIPE) == {0: record(0)}
    assert len(list(store.all())) == len(visible(store.root)) == 2


@pytest.mark.parametrize("name", ["", "a/b", ".hidden", "../up"])
def test_a_name_must_do_for_a_file(store, name):
    with pytest.raises(ValueError, match="begins a file name"):
        store.add([record(0)], name=name)


def test_a_file_may_be_renamed_but_for_its_key(store):
    store.add([record(0)], name="sva")
    (store.root / PATH).rename(store.root / f"agreement-{key(RECIPE)}.json")
    store.add([record(1)], name="sva")
    assert visible(store.root) == [f"agreement-{key(RECIPE)}.json"]
    assert store.missing(RECIPE, range(2)) == []


def test_published_numbers_are_not_written_to(store):
    tree = store.root / "sva"
    tree.mkdir(parents=True)
    (store.root / "PUBLISHED").touch()
    for root in (store.root, tree):
        with pytest.raises(PermissionError, match=r"others published.*another root"):
            Store(root).add([record(0)])
        with pytest.raises(PermissionError), Store(root).claim(RECIPE, [0]):
            pass
        assert list(Store(root).all()) == []
    assert visible(store.root) == ["PUBLISHED", "sva"]
    assert not (store.root / ".lohe").exists()


# --- files that are not what they should be


def test_a_file_of_schema_1_keeps_loading(store):
    shutil.copytree(Path(__file__).parent / "schema1", store.root)
    first, second = store.all()
    assert (first.seed, second.seed) == (0, 3)
    assert first.result == {"hard": 0.9140625, "simple": 1.0}
    assert second.result["hard"] != second.result["hard"]
    assert store.missing(first.recipe, [0, 1, 2, 3]) == [1, 2]
    assert store.problems() == []


def test_old_lines_are_kept_to_the_letter(store, monkeypatch):
    monkeypatch.setitem(records.UPGRADES, 0, lambda raw: raw | {"code_version": "?"})
    store.add([record(0)], name="sva")
    path = store.root / PATH
    path.write_text(
        path.read_text().replace('"schema":1', '"schema":0').replace('"code_version":"0.1.0",', "")
    )
    assert store.load(RECIPE)[0] == record(0, code_version="?")
    old = path.read_text().splitlines()[1]
    store.add([record(1)])
    assert path.read_text().splitlines()[1] == old + ","
    assert store.load(RECIPE) == {0: record(0, code_version="?"), 1: record(1)}


def cut(text):
    return text[: len(text) // 2]


DAMAGE = {
    "cut short": (cut, r"not JSON, as if cut short .* Restore it"),
    "empty": (lambda text: "", r"0 bytes that are not JSON"),
    "conflict": (lambda text: "<<<<<<< HEAD\n" + text, r"not JSON"),
    "foreign": (lambda text: '{"accuracy": 0.9}', r"not a file of records.* Move it elsewhere"),
    "a list": (lambda text: "[1, 2]", r"not a file of records"),
    "newer": (lambda text: text.replace('"schema":1', '"schema":2', 1), r"schema 2.* Update lohe"),
    "field lost": (lambda text: text.replace('"wall_seconds"', '"wall"', 1), r"unknown fields"),
    "twice": (lambda text: text.replace('"seed":1', '"seed":0'), r"seed 0 appears twice"),
    "edited": (lambda text: text.replace('"lr":0.001', '"lr":0.01'), r"key .* name does not end"),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_file_is_reported_and_left_alone(store, kind):
    damage, message = DAMAGE[kind]
    other = record(7, recipe={"lr": 2})
    store.add([record(0), record(1), other], name="sva")
    path = store.root / PATH
    path.write_text(damage(path.read_text()))
    broken = path.read_bytes()

    with pytest.warns(UserWarning, match=message):
        assert list(store.all()) == [other]
    assert [problem.path for problem in store.problems()] == [path]
    with pytest.raises(Damaged, match=message):
        store.missing(RECIPE, [0])
    # the records that could be added wait with those that cannot
    with pytest.raises(Damaged, match=PATH):
        store.add([record(8, recipe={"lr": 2}), record(2)], replace=True)
    assert path.read_bytes() == broken
    assert store.load({"lr": 2}) == {7: other}


def test_two_files_for_one_recipe_are_reported(store):
    store.add([record(0)], name="a")
    shutil.copy(store.root / f"a-{key(RECIPE)}.json", store.root / f"b-{key(RECIPE)}.json")
    with pytest.raises(Damaged, match="same recipe as b-"):
        store.add([record(1)])


def test_what_an_editor_hides_beside_a_file_is_no_second_one(store):
    store.add([record(0)], name="a")
    (store.root / f".#a-{key(RECIPE)}.json").symlink_to("someone@somewhere")
    assert sorted(store.load(RECIPE)) == [0]
    assert store.problems() == []


def test_a_folder_in_disguise_is_reported(store):
    (store.root / "notes.json").mkdir(parents=True)
    assert "cannot be read" in str(store.problems()[0])


# --- other processes, sudden death, a full disk


def test_concurrent_writers_lose_nothing(store, start, finish, context):
    ready = context.Barrier(6)
    ranges = [range(i, 60, 6) for i in range(6)]
    finish(*[start(workers.add_one_by_one, store.root, seeds, ready) for seeds in ranges])
    assert store.load(RECIPE) == {seed: record(seed) for seed in range(60)}
    assert len(visible(store.root)) == 1


def test_killed_at_any_step_the_file_is_old_or_new(store, start):
    store.add([record(0)], name="sva")
    old = (store.root / PATH).read_bytes()
    outcomes = []
    for n in range(1, 50):
        (store.root / PATH).write_bytes(old)
        args = (n, store.root, workers.add, store.root, [1, 2])
        process = start(workers.killed_before, *args)
        process.join(30)
        outcomes.append(sorted(store.load(RECIPE)))
        if process.exitcode == 0:
            break
    # open the lock and a temporary, sync, rename, open the folder, sync: at least that many
    assert len(outcomes) > 6
    assert outcomes == sorted(outcomes, key=len)
    assert [0] in outcomes[:-2]
    assert outcomes[-2:] == [[0, 1, 2]] * 2
    store.add([record(3)])
    assert visible(store.root) == [PATH], "what the dead left behind is swept up"


def test_a_full_disk_is_explained_and_loses_nothing(small_disk, fill):
    store = Store(small_disk / "results")
    store.add([record(0)], name="sva")
    old = (store.root / PATH).read_bytes()
    ballast = fill(small_disk)
    pack = [record(seed, notes={"long": "x" * 9000}) for seed in range(1, 9)]
    with pytest.raises(OSError, match=rf"{PATH} was not written \(No space left .* Free some"):
        store.add(pack)
    assert (store.root / PATH).read_bytes() == old
    assert visible(store.root) == [PATH]
    os.unlink(ballast)
    store.add(pack)
    assert store.missing(RECIPE, range(9)) == []


def test_a_file_that_grows_too_large_is_explained_as_a_full_disk_is(tmp_path, monkeypatch):
    """By `ulimit -f`, or the file system."""

    def too_large(path, data):
        raise OSError(errno.EFBIG, "File too large")

    monkeypatch.setattr(files, "_put", too_large)
    with pytest.raises(OSError, match=r"File too large.*or choose another folder, and run again"):
        files.write(tmp_path / "x", b"")
