"""Records keep their meaning: keys do not drift, old schemas keep loading."""

import inspect

import pytest
from workers import RECIPE, record

from lohe.experiments.store import records
from lohe.experiments.store.exact import dumps, loads
from lohe.experiments.store.records import Record, from_plain, key, to_plain

PINNED = "80eafa126925a3a6"


def test_keys_never_change():
    # changing the canonical form would orphan every record that exists
    assert key({}) == "44136fa355b3678a"
    assert key({"lr": 5e-4, "task": {"name": "sva", "σ": None}, "p": [1, 2.5, True]}) == PINNED


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": 1, "b": {"c": 2, "d": 3}}, {"b": {"d": 3, "c": 2}, "a": 1}),
        ({"lr": 1.0}, {"lr": 1}),
        ({"x": -0.0}, {"x": 0}),
        ({"betas": (0.9, 0.999)}, {"betas": [0.9, 0.999]}),
    ],
)
def test_equal_recipes_have_equal_keys(one, other):
    assert key(one) == key(other)


@pytest.mark.parametrize("other", [{"a": 2}, {"a": "1"}, {"a": True}, {"a": [1]}, {"b": 1}, {}])
def test_other_recipes_have_other_keys(other):
    assert key(other) != key({"a": 1})


def test_a_recipe_is_finite():
    with pytest.raises(ValueError, match=r"recipe\['clip'\] is inf; .* None"):
        key({"clip": float("inf")})


def test_round_trip():
    one = record(3, result={"loss": float("nan"), "ppl": float("inf"), "hard": 0.1 + 0.2})
    text = dumps(to_plain(one))
    again = from_plain(loads(text))
    assert dumps(to_plain(again)) == text
    assert again.result["hard"] == 0.1 + 0.2
    assert record(3) == from_plain(loads(dumps(to_plain(record(3)))))


def test_a_record_is_a_copy_of_what_it_was_given():
    curve = [{"loss": 1.0}]
    one = record(0, curve=curve)
    curve[0]["loss"] = 2.0
    assert one.curve == [{"loss": 1.0}]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"result": {"hard": None}}, "result 'hard' is None, not a number"),
        ({"recipe": {"f": len}}, r"recipe\['f'\] must be JSON"),
        ({"schema": 7}, "schema 1, got 7"),
    ],
)
def test_a_record_that_could_not_be_read_back_cannot_be_made(changes, message):
    # as in production, where no annotation is checked
    make = inspect.unwrap(Record.__init__)
    fields = to_plain(record(0)) | changes
    with pytest.raises(ValueError, match=message):
        make(object.__new__(Record), **fields)


# The file as schema 1 wrote it, once and for all; test_store.py reads another one from disk.
SCHEMA_1 = """
{"schema": 1, "recipe": {"lr": 0.001}, "seed": 4, "code_version": "0.1.0",
 "data_checksum": "sha256:ab", "environment": {"device": "cpu"}, "result": {"hard": 0.875},
 "wall_seconds": 2, "curve": [{"loss": {"float": "nan"}}], "notes": {}}
"""


def test_schema_1_keeps_loading():
    one = from_plain(loads(SCHEMA_1))
    assert (one.seed, one.result, one.recipe) == (4, {"hard": 0.875}, {"lr": 0.001})


def test_an_older_schema_is_upgraded_step_by_step(monkeypatch):
    # a schema 0 that might have been: seconds were called time, and there were no notes
    def from_0(raw):
        raw = dict(raw)
        return raw | {"wall_seconds": raw.pop("time"), "notes": {}}

    monkeypatch.setitem(records.UPGRADES, 0, from_0)
    old = loads(SCHEMA_1)
    del old["notes"]
    old |= {"schema": 0, "time": old.pop("wall_seconds")}
    assert from_plain(old).wall_seconds == 2
    assert from_plain(old).schema == records.SCHEMA
    assert "time" in old


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"schema": 2}, "schema 2; this lohe reads up to 1"),
        ({"schema": -1}, "no released lohe wrote"),
        ({"schema": "1"}, "must name its schema"),
        ({"seed": "4"}, "seed is a str"),
        ({"colour": "red"}, "unknown fields: colour"),
        ({"curve": [3]}, "curve holds a int"),
    ],
)
def test_anything_else_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        from_plain(loads(SCHEMA_1) | changes)


def test_the_recipe_is_not_part_of_the_seed():
    assert key(record(0).recipe) == key(record(1).recipe) == key(RECIPE)
