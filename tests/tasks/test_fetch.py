"""Fetching, against a server on this machine that can be made to misbehave."""

import errno
import hashlib
import re
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from corpora import STORIES
from test_archives import write_zip

from lohe.tasks import TinyStories, fetch, manifest
from lohe.tasks.fetch import fetch_corpus
from lohe.tasks.sources import SOURCES, Download

TEXT = (STORIES * 4_000).encode()  # 340 kB: more than one block


class Server(ThreadingHTTPServer):
    """Serves `files` with ranges; `cut` ends the next answers after so many bytes."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.tag: str | None = '"one"'
        self.ranges = True
        self.cut: list[int] = []
        self.status: list[int] = []
        self.asked: list[tuple[str, str | None]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    def log_message(self, format, *args):
        pass

    def do_GET(self):
        rules = self.server
        assert isinstance(rules, Server)
        wanted = self.headers.get("Range")
        rules.asked.append((self.path, wanted))
        body = rules.files.get(self.path.lstrip("/"))
        if rules.status or body is None:
            self.send_error(rules.status.pop(0) if rules.status else 404)
            return
        start = 0
        if wanted and rules.ranges and self.headers.get("If-Range") == rules.tag:
            start = int(wanted.removeprefix("bytes=").removesuffix("-"))
            if start >= len(body):
                self.send_error(416)
                return
        self.send_response(206 if start else 200)
        if rules.tag:
            self.send_header("ETag", rules.tag)
        self.send_header("Content-Length", str(len(body) - start))
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        self.end_headers()
        end = start + rules.cut.pop(0) if rules.cut else len(body)
        self.wfile.write(body[start:end])


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    server = Server()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def source(server):
    """TinyStories, served by this machine."""
    server.files = {f"TinyStories-{split}.txt": TEXT for split in ("train", "valid")}
    local = tuple(Download(f"{server.url}/{name}") for name in server.files)
    return replace(SOURCES["tinystories"], downloads=local)


def ranges(server):
    return [wanted for path, wanted in server.asked if "train" in path]


def test_fetch(server, source, tmp_path):
    heard = []
    items = fetch_corpus(source, tmp_path, progress=lambda *report: heard.append(report))
    assert [item.read_bytes() for item in items] == [TEXT, TEXT]
    for what in ("fetching", "checking", "importing"):
        assert (f"{what} TinyStories-train.txt", len(TEXT), len(TEXT)) in heard
    assert not any((tmp_path / "downloads").iterdir())  # nothing is kept twice
    entry = manifest.read(tmp_path / "tinystories")["TinyStories-train.txt"]
    assert entry["sha256"] == hashlib.sha256(TEXT).hexdigest()
    assert len(TinyStories().load(tmp_path).train) == 8_000


def test_what_is_there_is_not_fetched_again(server, source, tmp_path):
    fetch_corpus(source, tmp_path)
    server.asked.clear()
    fetch_corpus(source, tmp_path)
    assert server.asked == []


@pytest.mark.parametrize("content", [b"something else", b""])
def test_what_has_changed_is_fetched_again(server, source, tmp_path, content):
    first, _ = fetch_corpus(source, tmp_path)
    first.write_bytes(content)
    assert fetch_corpus(source, tmp_path)[0].read_bytes() == TEXT


def test_a_broken_connection_is_taken_up_where_it_broke(server, source, tmp_path):
    server.cut = [100_000, 50_000]
    items = fetch_corpus(source, tmp_path)
    assert ranges(server) == [None, "bytes=100000-", "bytes=150000-"]
    assert items[0].read_bytes() == TEXT


def test_a_later_call_goes_on(server, source, tmp_path, monkeypatch):
    monkeypatch.setattr(fetch, "ATTEMPTS", 1)
    server.cut = [100_000]
    with pytest.raises(ConnectionError, match=r"TinyStories-train\.txt.*same command goes on"):
        fetch_corpus(source, tmp_path)
    assert fetch_corpus(source, tmp_path)[0].read_bytes() == TEXT
    assert ranges(server) == [None, "bytes=100000-"]


def test_a_full_disk(server, source, tmp_path, monkeypatch):
    def full(what, done, of):
        if done > 200_000:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(fetch, "BLOCK", 100_000)
    part = re.escape(str(tmp_path / "downloads" / "TinyStories-train.txt.part"))
    needed = f"{len(TEXT):,}"
    match = rf"No space left on the disk for {part}, which needs {needed} bytes.*\$LOHE_DATA"
    with pytest.raises(OSError, match=match):
        fetch_corpus(source, tmp_path, progress=full)
    assert source.missing(tmp_path) == list(source.files)
    assert fetch_corpus(source, tmp_path)[0].read_bytes() == TEXT
    assert ranges(server) == [None, "bytes=300000-"]  # what had arrived was kept


@pytest.mark.parametrize("change", ["other file", "no ranges", "no validator"])
def test_parts_of_two_files_are_never_joined(server, source, tmp_path, monkeypatch, change):
    monkeypatch.setattr(fetch, "ATTEMPTS", 1)
    if change == "no validator":
        server.tag = None
    server.cut = [100_000]
    with pytest.raises(ConnectionError):
        fetch_corpus(source, tmp_path)
    if change == "other file":
        server.tag = '"two"'
        server.files["TinyStories-train.txt"] = TEXT[::-1][:-7] + b"<|endoftext|>\n"
    if change == "no ranges":
        server.ranges = False
    assert fetch_corpus(source, tmp_path)[0].read_bytes() == server.files["TinyStories-train.txt"]


def test_a_part_that_is_already_whole(server, source, tmp_path):
    # killed after the last byte and before the renaming: the server has nothing more to send
    downloads = tmp_path / "downloads"
    downloads.mkdir()
    (downloads / "TinyStories-train.txt.part").write_bytes(TEXT)
    note = f'{{"url": "{source.downloads[0].url}", "validator": "\\"one\\""}}'
    (downloads / "TinyStories-train.txt.part.json").write_text(note, encoding="utf-8")
    assert fetch_corpus(source, tmp_path)[0].read_bytes() == TEXT


def test_pinned_checksum(server, source, tmp_path):
    right, wrong = hashlib.sha256(TEXT).hexdigest(), "0" * 64
    first, second = source.downloads
    pinned = (replace(first, sha256=right), replace(second, sha256=wrong))
    match = rf"TinyStories-valid\.txt sent .* wrong checksum: sha256 {right}, but 0+ is pinned"
    with pytest.raises(ValueError, match=match):
        fetch_corpus(replace(source, downloads=pinned), tmp_path)
    assert not (tmp_path / "downloads" / "TinyStories-valid.txt").exists()
    assert fetch_corpus(source, tmp_path)


def test_unpinned_files_must_stay_what_they_were(server, source, tmp_path):
    fetch_corpus(source, tmp_path)
    (tmp_path / "tinystories" / "TinyStories-train.txt").unlink()
    server.files["TinyStories-train.txt"] = TEXT + TEXT
    with pytest.raises(ValueError, match=r"came the first time.*lohe data import tinystories"):
        fetch_corpus(source, tmp_path)


def test_an_archive_is_unpacked(server, tmp_path):
    texts = {f"wikitext-2-raw/wiki.{s}.raw": "the cat sat" for s in ("train", "valid", "test")}
    path = write_zip(tmp_path / "a.zip", texts)
    server.files["a.zip"] = path.read_bytes()
    source = replace(SOURCES["wikitext2-raw"], downloads=(Download(f"{server.url}/a.zip"),))
    items = fetch_corpus(source, tmp_path / "root")
    assert [item.name for item in items] == ["wiki.train.raw", "wiki.valid.raw", "wiki.test.raw"]


def test_unpacking_that_was_interrupted_is_done_again(server, speech, tmp_path):
    clips = sorted((speech / "speech_commands_v0.02").rglob("*.wav"))
    members = {f"{clip.parent.name}/{clip.name}": clip.read_bytes() for clip in clips}
    server.files["a.zip"] = write_zip(tmp_path / "a.zip", members).read_bytes()
    source = replace(SOURCES["speech-commands"], downloads=(Download(f"{server.url}/a.zip"),))

    half = sum(map(len, members.values())) // 2

    def interrupted(what, done, of):
        if what.startswith("importing") and done > half:
            raise KeyboardInterrupt

    root = tmp_path / "root"
    with pytest.raises(KeyboardInterrupt):
        fetch_corpus(source, root, progress=interrupted)
    fetch_corpus(source, root)
    assert len(list(root.rglob("*.wav"))) == len(clips)
    assert len(server.asked) == 1  # the archive had arrived


def test_a_server_error_is_tried_again(server, source, tmp_path):
    server.status = [503, 502]
    assert fetch_corpus(source, tmp_path)[0].read_bytes() == TEXT


def test_a_file_that_has_gone(server, source, tmp_path):
    server.files.clear()
    with pytest.raises(ConnectionError, match=r"HTTP 404.*lohe data import tinystories PATH"):
        fetch_corpus(source, tmp_path)
    assert len(server.asked) == 1


def test_offline(source, server, tmp_path):
    server.shutdown()
    server.server_close()
    match = r"Could not fetch http://127.*Without a network.*lohe data import tinystories PATH"
    with pytest.raises(ConnectionError, match=match):
        fetch_corpus(source, tmp_path)


def test_every_official_address_is_https():
    for source in SOURCES.values():
        assert all(download.url.startswith("https://") for download in source.downloads)
