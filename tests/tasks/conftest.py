"""Small corpora in the official layouts, and the shared ones where they are to be had."""

from pathlib import Path

import pytest
from corpora import STORIES
from sound import write_words

import shared_data
from lohe.tasks import SVA, Data


@pytest.fixture(scope="session")
def shared_root(tmp_path_factory) -> Path:
    """A data root with the shared text corpora."""
    try:
        shared_data.find()
    except FileNotFoundError as reason:
        pytest.skip(str(reason))
    return shared_data.export(tmp_path_factory.mktemp("shared"))


@pytest.fixture(scope="session")
def agreement() -> Data:
    """The agreement task, generated once: not to be changed."""
    return SVA().load()


@pytest.fixture
def stories(tmp_path) -> Path:
    """A data root with two stories in each split."""
    folder = tmp_path / "tinystories"
    folder.mkdir()
    for split in ("train", "valid"):
        (folder / f"TinyStories-{split}.txt").write_text(STORIES, encoding="utf-8")
    return tmp_path


@pytest.fixture
def wikitext(tmp_path) -> Path:
    """A data root with a raw WikiText-2 of a hundred words a split."""
    folder = tmp_path / "wikitext-2-raw"
    folder.mkdir()
    for split in ("train", "valid", "test"):
        text = f" = {split} = \n\n" + " The cat , the hat , and the <unk> . \n" * 10
        (folder / f"wiki.{split}.raw").write_text(text, encoding="utf-8")
    return tmp_path


@pytest.fixture
def speech(tmp_path) -> Path:
    """A data root with a few tones as the words yes and no, in every split."""
    pytest.importorskip("soundfile")
    write_words(tmp_path)
    return tmp_path
