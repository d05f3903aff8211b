"""`lohe data` from the outside."""

import errno
import hashlib
from dataclasses import replace

import pytest
from corpora import STORIES
from typer.testing import CliRunner

from lohe.data_cli import app
from lohe.tasks import archives
from lohe.tasks.sources import ARCHIVES, SOURCES


@pytest.fixture
def lohe_data(tmp_path, monkeypatch):
    monkeypatch.setenv("LOHE_DATA", str(tmp_path / "root"))
    return lambda *arguments: CliRunner().invoke(app, list(arguments))


@pytest.fixture
def copy(tmp_path):
    folder = tmp_path / "copy"
    folder.mkdir()
    for split in ("train", "valid"):
        (folder / f"TinyStories-{split}.txt").write_text(STORIES, encoding="utf-8")
    return folder


def test_list_import_verify(lohe_data, copy, tmp_path):
    assert "absent" in lohe_data("list").output
    imported = lohe_data("import", "tinystories", str(copy))
    assert imported.exit_code == 0
    assert "tinystories: 2 items" in imported.output
    assert "complete" in lohe_data("list").output
    assert lohe_data("verify").exit_code == 0
    (tmp_path / "root" / "tinystories" / "TinyStories-train.txt").write_text("x", encoding="utf-8")
    changed = lohe_data("verify", "tinystories")
    assert changed.exit_code == 1
    assert "TinyStories-train.txt  CHANGED" in changed.output
    assert lohe_data("verify", "tinystories", "--record").exit_code == 0
    assert lohe_data("verify").exit_code == 0


def test_what_is_not_the_official_release_is_said(lohe_data, copy):
    """Texts of one's own are allowed, but nobody takes them for the release."""
    own = hashlib.sha256(STORIES.encode()).hexdigest()
    remarks = [
        f"{name}  {{}} {own}; not the official release, which has {ARCHIVES[name]}"
        for name in ("TinyStories-train.txt", "TinyStories-valid.txt")
    ]
    for command, word in (
        (("import", "tinystories", str(copy)), "sha256"),
        (("verify",), "ok"),
        (("verify", "--record"), "ok"),
    ):
        result = lohe_data(*command)
        assert result.exit_code == 0
        for remark in remarks:
            assert remark.format(word) in result.output


def test_the_official_release_needs_no_remark(lohe_data, copy, monkeypatch):
    own = hashlib.sha256(STORIES.encode()).hexdigest()
    files = SOURCES["tinystories"].downloads
    official = replace(
        SOURCES["tinystories"], downloads=tuple(replace(f, sha256=own) for f in files)
    )
    monkeypatch.setitem(SOURCES, "tinystories", official)
    assert "not the official" not in lohe_data("import", "tinystories", str(copy)).output
    assert "not the official" not in lohe_data("verify").output


def test_a_full_disk(lohe_data, copy, tmp_path, monkeypatch):
    """The second text does not fit: the error names it, and neither is there."""
    copied = archives._copy

    def until_full(content, to, *how):
        copied(content, to, *how)
        if "valid" in to.name:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(archives, "_copy", until_full)
    result = lohe_data("import", "tinystories", str(copy))
    assert result.exit_code == 1
    path = tmp_path / "root" / "tinystories" / "TinyStories-valid.txt"
    assert (
        f"No space left on the disk for {path}, which needs {len(STORIES):,} bytes" in result.output
    )
    assert "$LOHE_DATA" in result.output
    assert not path.parent.exists()
    assert "absent" in lohe_data("list").output


def test_the_root_is_shown(lohe_data, tmp_path):
    assert f"data root: {tmp_path / 'root'}" in lohe_data("list").output
    assert f"data root: {tmp_path}\n" in lohe_data("list", "--root", str(tmp_path)).output


def test_nothing_to_verify(lohe_data):
    assert "holds no corpus" in lohe_data("verify").output


@pytest.mark.parametrize("command", ["import", "fetch", "verify"])
def test_errors_are_messages(lohe_data, command):
    arguments = [command, "ptb"] + (["somewhere"] if command == "import" else [])
    result = lohe_data(*arguments)
    assert result.exit_code == 1
    assert "Error: No corpus is called 'ptb'" in result.output


def test_fetch_of_what_is_there(lohe_data, copy):
    lohe_data("import", "tinystories", str(copy))
    result = lohe_data("fetch", "tinystories")
    assert result.exit_code == 0
    assert "tinystories: 2 items" in result.output
