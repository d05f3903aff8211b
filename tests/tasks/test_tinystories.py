"""Stories, cut one by one and read as a stream."""

import itertools
import lzma
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lohe.tasks import TinyStories, tinystories
from lohe.tasks.language import BOS, EOS, PAD
from lohe.tasks.textfile import TextFile


@pytest.fixture(scope="module")
def data(shared_root):
    return TinyStories().load(shared_root)


def chunks(data, split="train"):
    inputs, targets = data.splits[split].inputs["tokens"], data.splits[split].targets["next"]
    return [[*i.tolist(), int(t[-1])] for i, t in zip(inputs, targets, strict=True)]


def test_counts_on_the_shared_stories(data):
    assert data.facts["stories"] == {"train": 12_254 + 2_886, "valid": 1_000}
    assert (len(data.train), len(data.valid)) == (27_096, 1_763)
    assert data.train.inputs["tokens"].shape[1] == 127
    assert len(data.names) == 8_004
    assert data.test is None


def test_a_story_begins_once_and_ends_once(data, shared_root):
    tokens = data.valid.inputs["tokens"]
    assert int((tokens[:, 0] == BOS).sum()) == data.facts["stories"]["valid"]
    assert not (tokens[:, 1:] == BOS).any()
    # an EOS is lost only with a last chunk that is too short to keep
    text = (shared_root / "tinystories" / "TinyStories-valid.txt").read_text(encoding="utf-8")
    lengths = [len(tinystories.tokenize(s)) + 2 for s in text.split("<|endoftext|>") if s.strip()]
    lost = sum(1 <= length % 128 <= 4 for length in lengths)
    assert int((data.valid.targets["next"] == EOS).sum()) == len(lengths) - lost


def test_halves_share_no_story(data, shared_root):
    halves = TinyStories(halves=True).load(shared_root)
    parts = [halves.valid.inputs["tokens"], halves.splits["test"].inputs["tokens"]]
    assert torch.equal(torch.cat(parts), data.valid.inputs["tokens"])
    assert [int((part[:, 0] == BOS).sum()) for part in parts] == [500, 500]
    assert all(part[0, 0] == BOS for part in parts)  # the second begins with a story
    assert torch.equal(halves.train.inputs["tokens"], data.train.inputs["tokens"])
    assert halves.facts["chunks"] == {name: len(split) for name, split in halves.splits.items()}


@given(st.lists(st.integers(1, 4), min_size=1, max_size=12))
def test_the_first_half_has_the_odd_story(lengths):
    """Stories of so many chunks each: as many stories in both halves, none in both."""
    story = torch.tensor([n for n, length in enumerate(lengths) for _ in range(length)])
    starts = torch.cat([torch.tensor([True]), story[1:] != story[:-1]])
    chunks = torch.stack([torch.where(starts, BOS, 9), story], dim=1).to(torch.int16)
    first, second = ({int(n) for n in half[:, 1]} for half in tinystories.halved(chunks))
    assert first | second == set(range(len(lengths)))
    assert not first & second
    assert len(first) - len(second) == len(lengths) % 2
    assert max(first) < min(second, default=len(lengths))


def test_halves_are_cut_from_the_same_cache(stories, monkeypatch):
    plain = TinyStories().load(stories)
    monkeypatch.setattr(tinystories, "read_stories", lambda text: pytest.fail("read again"))
    halves = TinyStories(halves=True).load(stories)
    assert (len(halves.valid), len(halves.splits["test"])) == (1, 1)
    assert halves.names == plain.names
    # records tell what they were selected and scored on
    assert halves.checksum != plain.checksum
    assert halves.checksum == TinyStories(halves=True).load(stories).checksum
    # and the cache is not changed by it
    assert len(TinyStories().load(stories).valid) == 2


def test_one_story_has_no_halves(stories):
    path = stories / "tinystories" / "TinyStories-valid.txt"
    path.write_text("Tom had a big red ball.\n<|endoftext|>\n")
    with pytest.raises(ValueError, match=r"TinyStories-valid.txt has one story.*halves=False"):
        TinyStories(halves=True).load(stories)


def test_chunks_follow_the_story(stories):
    data = TinyStories(tokens=6).load(stories)
    words = [[data.names[k] for k in row if k != PAD] for row in chunks(data)]
    assert words == [
        ["<bos>", "once", "upon", "a", "time", "there"],
        # "was a cat <eos>" is too short to keep, and so is "<eos>"
        ["<bos>", "the", "cat", "sat", "and", "sat"],
    ]


def test_a_chunk_of_four_tokens_is_dropped_and_one_of_five_is_kept():
    assert list(tinystories.chunk_lengths(128 + 4, 128)) == [128]
    assert list(tinystories.chunk_lengths(128 + 5, 128)) == [128, 5]


def test_reading_never_runs_ahead():
    class Endless(TextFile):
        def lines(self):
            for k in itertools.count():
                yield f"story {k}\n"
                yield "<|endoftext|>\n"

    first = itertools.islice(tinystories.read_stories(Endless(Path("endless.txt"))), 2)
    assert [story.strip() for _, story in first] == ["story 0", "story 1"]


def test_xz_makes_no_difference(stories):
    plain = TinyStories().load(stories)
    for path in (stories / "tinystories").iterdir():
        path.with_name(path.name + ".xz").write_bytes(lzma.compress(path.read_bytes()))
        path.unlink()
    assert TinyStories().load(stories).checksum == plain.checksum


def test_the_second_load_comes_from_the_cache(stories, monkeypatch):
    first = TinyStories().load(stories)
    monkeypatch.setattr(tinystories, "read_stories", lambda text: pytest.fail("read again"))
    second = TinyStories().load(stories)
    assert (second.checksum, second.names, second.facts) == (
        first.checksum,
        first.names,
        first.facts,
    )


def test_an_edited_text_is_read_again(stories):
    before = TinyStories().load(stories)
    path = stories / "tinystories" / "TinyStories-train.txt"
    path.write_text("A dog ran to the big red house.\n<|endoftext|>\n", encoding="utf-8")
    assert TinyStories().load(stories).checksum != before.checksum


def test_damage_to_the_cache_is_mended(stories):
    before = TinyStories().load(stories)
    (entry,) = (stories / "cache" / "tinystories").glob("*.safetensors")
    entry.write_bytes(entry.read_bytes()[:-5])
    assert TinyStories().load(stories).checksum == before.checksum


def test_a_root_that_cannot_be_written_to_still_serves(stories):
    (stories / "cache").write_text("in the way", encoding="utf-8")
    with pytest.warns(UserWarning, match=r"made again next time.*\$LOHE_DATA"):
        assert len(TinyStories().load(stories).train) == 2


def test_the_last_story_needs_no_mark(stories):
    path = stories / "tinystories" / "TinyStories-valid.txt"
    path.write_text("One two three.\n<|endoftext|>\nFour five six.\n", encoding="utf-8")
    assert TinyStories().load(stories).facts["stories"]["valid"] == 2


def test_progress_is_reported(stories, monkeypatch):
    monkeypatch.setattr(tinystories, "REPORT", 1)
    heard = []
    TinyStories().load(stories, progress=lambda *report: heard.append(report))
    assert ("counting TinyStories-train.txt", 2, None) in heard
    assert heard[-1] == ("encoding TinyStories-valid.txt", 2, 2)
