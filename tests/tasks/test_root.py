"""Where data lives, on each platform."""

from pathlib import Path

import pytest

from lohe.tasks import data_root
from lohe.tasks.root import default_root

HOME = Path("/home/ada")


@pytest.mark.parametrize(
    ("platform", "environ", "expected"),
    [
        ("linux", {}, "/home/ada/.cache/lohe"),
        ("linux", {"XDG_CACHE_HOME": "/scratch"}, "/scratch/lohe"),
        ("linux", {"XDG_CACHE_HOME": ""}, "/home/ada/.cache/lohe"),
        ("darwin", {"XDG_CACHE_HOME": "/scratch"}, "/home/ada/Library/Caches/lohe"),
        ("win32", {"LOCALAPPDATA": "C:/Local"}, "C:/Local/lohe"),
        ("win32", {}, "/home/ada/AppData/Local/lohe"),
        ("linux", {"LOHE_DATA": "/data", "XDG_CACHE_HOME": "/scratch"}, "/data"),
        ("win32", {"LOHE_DATA": "D:/data"}, "D:/data"),
    ],
)
def test_rule(platform, environ, expected):
    assert default_root(environ, platform, HOME).as_posix() == expected


def test_a_root_that_is_named_wins(monkeypatch, tmp_path):
    monkeypatch.setenv("LOHE_DATA", str(tmp_path / "elsewhere"))
    assert data_root() == tmp_path / "elsewhere"
    assert data_root(tmp_path) == tmp_path


def test_a_user_without_a_home_has_data_all_the_same(monkeypatch, tmp_path):
    def nobody():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", nobody)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for name in ("LOHE_DATA", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    assert data_root().is_relative_to(tmp_path)
    monkeypatch.setenv("LOHE_DATA", str(tmp_path / "elsewhere"))
    assert data_root() == tmp_path / "elsewhere"
