"""Import from whatever the user has, and nothing but what belongs to the corpus."""

import hashlib
import io
import lzma
import os
import sys
import tarfile
import zipfile
from dataclasses import replace

import pytest
from corpora import STORIES
from sound import WORDS

from lohe.tasks import KeywordSpotting, TinyStories, WikiText2, archives, manifest
from lohe.tasks.archives import import_corpus
from lohe.tasks.atomic import staging, write_text
from lohe.tasks.sources import SOURCES, find_source
from lohe.tasks.verify import list_corpora, verify_corpus

TEXTS = {f"TinyStories-{split}.txt": STORIES.encode() for split in ("train", "valid")}


def write_zip(path, members):
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def write_tar(path, members):
    with tarfile.open(path, "w:gz") as archive:
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return path


def write_folder(path, members):
    for name, content in members.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(content)
    return path


def state(root, name):
    return next(c.state for c in list_corpora(root) if c.source.name == name)


@pytest.mark.parametrize(
    ("write", "name"), [(write_zip, "a.zip"), (write_tar, "a.tar.gz"), (write_folder, "a")]
)
@pytest.mark.parametrize("prefix", ["", "./", "some/where/"])
def test_import(tmp_path, write, name, prefix):
    copy = write(tmp_path / name, {prefix + k: v for k, v in TEXTS.items()})
    root = tmp_path / "root"
    assert state(root, "tinystories") == "absent"
    items = import_corpus("tinystories", copy, root)
    assert [item.name for item in items] == list(TEXTS)
    assert state(root, "tinystories") == "complete"
    assert [check.state for check in verify_corpus("tinystories", root)] == ["ok", "ok"]
    assert len(TinyStories().load(root).train) == 2


def test_import_of_single_files(tmp_path):
    write_folder(tmp_path, TEXTS)
    root = tmp_path / "root"
    with pytest.raises(FileNotFoundError, match=r"still lacks TinyStories-valid\.txt"):
        import_corpus("tinystories", tmp_path / "TinyStories-train.txt", root)
    assert state(root, "tinystories") == "incomplete"
    import_corpus("tinystories", tmp_path / "TinyStories-valid.txt", root)
    assert state(root, "tinystories") == "complete"


def test_import_of_clips(tmp_path, speech):
    clips = {
        f"./{path.parent.name}/{path.name}": path.read_bytes()
        for path in (speech / "speech_commands_v0.02").rglob("*.wav")
    }
    noise = {"./_background_noise_/doing_the_dishes.wav": b"RIFF", "./testing_list.txt": b"yes/"}
    archive = write_tar(tmp_path / "speech.tar.gz", clips | noise)
    root = tmp_path / "root"
    import_corpus("speech-commands", archive, root)
    loaded = KeywordSpotting(WORDS).load(root)
    assert loaded.checksum == KeywordSpotting(WORDS).load(speech).checksum
    assert not (root / "speech_commands_v0.02" / "_background_noise_").exists()


def test_import_of_one_words_folder(tmp_path, speech):
    root = tmp_path / "root"
    import_corpus("speech-commands", speech / "speech_commands_v0.02" / "yes", root)
    assert KeywordSpotting(("yes",)).load(root).names == ("yes",)


def test_compressed_texts_stay_compressed(tmp_path):
    packed = {f"{name}.xz": lzma.compress(text) for name, text in TEXTS.items()}
    root = tmp_path / "root"
    import_corpus("tinystories", write_zip(tmp_path / "a.zip", packed), root)
    folder = root / "tinystories"
    assert {p.name for p in folder.iterdir()} == {*packed, "manifest.json"}
    # the plain text takes the place of the compressed one: there is never an older twin
    import_corpus("tinystories", write_folder(tmp_path / "plain", TEXTS), root)
    assert {p.name for p in folder.iterdir()} == {*TEXTS, "manifest.json"}


@pytest.mark.parametrize(
    "name", ["../../escape/wiki.train.raw", "/abs/wiki.train.raw", "..\\wiki.train.raw", "wiki.."]
)
def test_no_archive_writes_outside_of_its_folder(tmp_path, name):
    members = {f"x/wiki.{s}.raw": b"the cat sat" for s in ("train", "valid", "test")}
    root = tmp_path / "deep" / "root"
    import_corpus("wikitext2-raw", write_tar(tmp_path / "a.tar.gz", members | {name: b"no"}), root)
    written = {p for p in tmp_path.rglob("*") if p.is_file()} - {tmp_path / "a.tar.gz"}
    assert {p.parent for p in written} == {root / "wikitext-2-raw"}


def test_links_in_an_archive_are_left_alone(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("secret", encoding="utf-8")
    archive = tmp_path / "a.tar"
    with tarfile.open(archive, "w") as tar:
        link = tarfile.TarInfo("TinyStories-train.txt")
        link.type, link.linkname = tarfile.SYMTYPE, str(secret)
        tar.addfile(link)
    with pytest.raises(FileNotFoundError, match="holds nothing that belongs to tinystories"):
        import_corpus("tinystories", archive, tmp_path / "root")


def test_pinned_checksum(tmp_path):
    texts = {f"wiki.{s}.tokens": b"not the release" for s in ("train", "valid", "test")}
    archive = write_zip(tmp_path / "wikitext-2-v1.zip", texts)
    match = r"wikitext-2-v1\.zip: wiki\.valid\.tokens has the wrong checksum.*release has f0737ed3"
    with pytest.raises(ValueError, match=match):
        import_corpus("wikitext2", archive, tmp_path / "root")
    assert not (tmp_path / "root" / "wikitext-2" / "wiki.valid.tokens").exists()


def test_shared_wikitext_has_the_pinned_checksums(shared_root, tmp_path):
    items = import_corpus("wikitext2", shared_root / "wikitext-2", tmp_path)
    assert len(items) == 3
    assert {c.state for c in verify_corpus("wikitext2", tmp_path)} == {"ok"}
    states = {c.item: c.state for c in verify_corpus("wikitext2", shared_root)}
    assert states["wiki.test.tokens"] == "ok"  # by its pin, without having been imported
    assert states["wiki.train.tokens"] == "new"


@pytest.mark.parametrize("suffix", [".tar.gz", ".zip"])
def test_archive_cut_short(tmp_path, suffix):
    write = write_tar if suffix == ".tar.gz" else write_zip
    whole = write(tmp_path / f"a{suffix}", {k: v * 5_000 for k, v in TEXTS.items()})
    cut = tmp_path / f"cut{suffix}"
    cut.write_bytes(whole.read_bytes()[:-600])
    with pytest.raises((ValueError, FileNotFoundError), match=rf"cut\{suffix}.*cut short.*again"):
        import_corpus("tinystories", cut, tmp_path / "root")


def test_nothing_of_the_corpus(tmp_path):
    (tmp_path / "notes.txt").write_text("notes", encoding="utf-8")
    with pytest.raises(FileNotFoundError, match=r"expected were files called TinyStories-train"):
        import_corpus("tinystories", tmp_path, tmp_path / "root")
    with pytest.raises(FileNotFoundError, match=r"gone is not there"):
        import_corpus("tinystories", tmp_path / "gone", tmp_path / "root")


def test_unknown_corpus(tmp_path):
    with pytest.raises(ValueError, match=r"No corpus is called 'ptb'.*wikitext2-raw.*generated"):
        import_corpus("ptb", tmp_path)


def test_verify_and_record(wikitext):
    folder = wikitext / "wikitext-2-raw"
    assert {c.state for c in verify_corpus("wikitext2-raw", wikitext)} == {"new"}
    assert {c.state for c in verify_corpus("wikitext2-raw", wikitext, record=True)} == {"ok"}
    (folder / "wiki.test.raw").write_text("other words " * 20, encoding="utf-8")
    (folder / "wiki.valid.raw").unlink()
    states = {c.item: c.state for c in verify_corpus("wikitext2-raw", wikitext)}
    assert states == {
        "wiki.train.raw": "ok",
        "wiki.test.raw": "changed",
        "wiki.valid.raw": "missing",
    }


@pytest.mark.parametrize(
    "text",
    ["{", "[]", '{"TinyStories-train.txt": {"origin": "x"}}', '{"TinyStories-train.txt": 3}'],
)
def test_damaged_manifest(stories, text):
    (stories / "tinystories" / manifest.NAME).write_text(text, encoding="utf-8")
    with pytest.raises(
        ValueError, match=r"manifest\.json is not what lohe writes.*verify --record"
    ):
        TinyStories().load(stories)


def test_import_then_load_wikitext(wikitext, tmp_path):
    root = tmp_path / "root"
    import_corpus("wikitext2-raw", wikitext / "wikitext-2-raw", root)
    assert WikiText2(tokens=10).load(root).checksum == WikiText2(tokens=10).load(wikitext).checksum


def test_what_cannot_be_read_replaces_nothing(tmp_path):
    """Neither half of a compressed text nor an empty file takes the place of a good one."""
    import_corpus("tinystories", write_folder(tmp_path / "good", TEXTS), tmp_path / "root")
    cut = lzma.compress(STORIES.encode())[:-20]
    for content, message in ((cut, "cut short or damaged"), (b"", "is empty")):
        name = "TinyStories-train.txt" + (".xz" if content else "")
        bad = write_folder(tmp_path / f"bad{len(content)}", {name: content})
        with pytest.raises(ValueError, match=message):
            import_corpus("tinystories", bad, tmp_path / "root")
    assert {c.state for c in verify_corpus("tinystories", tmp_path / "root")} == {"ok"}


def test_a_bad_member_replaces_none_of_the_others(tmp_path, monkeypatch):
    """Not the train text that came before the broken one, nor its compressed twin."""
    splits = ("test", "train", "valid")
    texts = {f"wiki.{split}.tokens": f"the {split} text".encode() for split in splits}
    pinned = {name: hashlib.sha256(text).hexdigest() for name, text in texts.items()}
    del pinned["wiki.train.tokens"]
    source = replace(find_source("wikitext2"), pinned=pinned)
    monkeypatch.setitem(SOURCES, "wikitext2", source)
    root = tmp_path / "root"
    packed = {f"{name}.xz": lzma.compress(text) for name, text in texts.items()}
    import_corpus("wikitext2", write_folder(tmp_path / "good", packed), root)
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    bad = {"wiki.train.tokens": b"the tr", "wiki.valid.tokens": b"the broken text"}
    bad["wiki.test.tokens.xz"] = packed["wiki.test.tokens.xz"]
    with pytest.raises(ValueError, match=r"wiki\.valid\.tokens has the wrong checksum"):
        import_corpus("wikitext2", write_folder(tmp_path / "bad", bad), root)
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before


def test_what_is_written_may_be_read_by_whom_the_umask_lets(tmp_path):
    before = os.umask(0o027)
    try:
        import_corpus("tinystories", write_folder(tmp_path / "good", TEXTS), tmp_path / "root")
        TinyStories().load(tmp_path / "root")
    finally:
        os.umask(before)
    written = [path for path in (tmp_path / "root").rglob("*") if path.is_file()]
    assert {path.suffix for path in written} == {".txt", ".json", ".safetensors"}
    assert {path.stat().st_mode & 0o777 for path in written} == {0o640}


@pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX file locks")
def test_what_a_killed_import_left_is_swept_by_the_next(tmp_path):
    good, root = write_folder(tmp_path / "good", TEXTS), tmp_path / "root"
    killed = write_folder(root / "tinystories" / ".part-abc", {"TinyStories-train.txt": b"hal"})
    with staging(root / "tinystories") as other:  # of someone who is still at work
        assert not killed.exists()
        import_corpus("tinystories", good, root)
        assert other.exists()
    assert not list(root.rglob(".part-*"))
    write_folder(root / "tinystories", {".part-q.json": b"{"})
    write_text(root / "tinystories" / "a.json", "{}")
    assert not list(root.rglob(".part-*"))


def test_bytes_are_reported_while_they_are_copied_and_checked(tmp_path, speech, monkeypatch):
    monkeypatch.setattr(archives, "BLOCK", 50)
    heard = []
    copy, size = write_folder(tmp_path / "copy", TEXTS), len(STORIES.encode())
    import_corpus("tinystories", copy, tmp_path / "root", lambda *report: heard.append(report))
    for name in TEXTS:
        said = [report for report in heard if report[0] == f"importing {name}"]
        assert said[0] == (f"importing {name}", 50, size)
        assert said[-1] == (f"importing {name}", size, size)
        assert (f"checking {name}", size, size) in heard
    clips, heard = speech / "speech_commands_v0.02", []
    import_corpus("speech-commands", clips, tmp_path, lambda *report: heard.append(report))
    size = sum(clip.stat().st_size for clip in clips.rglob("*.wav"))
    assert ("importing speech-commands", size, None) in heard
    assert heard[-1] == ("checking speech_commands_v0.02", size, size)


def test_half_of_a_word_is_not_taken_for_the_word(tmp_path, speech, monkeypatch):
    clips, place = speech / "speech_commands_v0.02", archives._place

    def stops(brought, target):
        place(brought, target)
        if "yes" in str(target):
            raise KeyboardInterrupt

    monkeypatch.setattr(archives, "_place", stops)
    with pytest.raises(KeyboardInterrupt):
        import_corpus("speech-commands", clips, tmp_path)
    assert "end of an import" in find_source("speech-commands").missing(tmp_path)
    with pytest.raises(ValueError, match=r"is not complete: an import .* Run it again"):
        KeywordSpotting(WORDS).load(tmp_path)
    monkeypatch.undo()
    import_corpus("speech-commands", clips, tmp_path)
    KeywordSpotting(WORDS).load(tmp_path)
    assert "end of an import" not in find_source("speech-commands").missing(tmp_path)


def test_some_words_are_not_all_of_speech_commands(tmp_path, speech):
    import_corpus("speech-commands", speech / "speech_commands_v0.02", tmp_path)
    (corpus,) = [c for c in list_corpora(tmp_path) if c.source.name == "speech-commands"]
    assert corpus.state == "incomplete"
    assert "zero" in corpus.missing
