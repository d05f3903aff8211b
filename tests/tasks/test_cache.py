"""What is kept is of the files that it was made from, or it is made again."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from lohe.tasks import cache


def entry(path: Path, key: str) -> list:
    """What is stored under the key, or made: two numbers that say for which key that was."""
    tensors, facts = cache.cached(path, key, lambda: ({"of": torch.tensor(int(key))}, {"of": key}))
    return [tensors["of"].item(), facts["of"]]


def test_it_is_made_once_for_a_key(tmp_path):
    assert entry(tmp_path / "x", "1") == [1, "1"]
    note = tmp_path / "x.json"
    note.write_text(note.read_text().replace('"of": "1"', '"of": "stored"'))
    assert entry(tmp_path / "x", "1") == [1, "stored"]
    assert entry(tmp_path / "x", "2") == [2, "2"]


def test_tensors_of_another_key_are_never_paired_with_the_note(tmp_path, monkeypatch):
    """Of equal shape, from a writer that was stopped between its two files."""
    assert entry(tmp_path / "x", "1") == [1, "1"]

    def stopped(*args):
        raise KeyboardInterrupt

    with monkeypatch.context() as m:
        m.setattr(cache, "write_text", stopped)
        with pytest.raises(KeyboardInterrupt):
            entry(tmp_path / "x", "2")
    assert json.loads((tmp_path / "x.json").read_text())["key"] == "1"
    assert entry(tmp_path / "x", "1") == [1, "1"]


def test_tensors_that_do_not_tell_their_key_are_made_again(tmp_path):
    """As they were kept before it was written into them."""
    entry(tmp_path / "x", "1")
    stored = tmp_path / "x.safetensors"
    save_file({name: x + 1 for name, x in load_file(stored).items()}, stored)
    assert entry(tmp_path / "x", "1") == [1, "1"]
