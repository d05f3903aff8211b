"""Whatever is wrong with a file, the error names the file and says what to do."""

import lzma
import math
import re
import sys

import pytest
from sound import WORDS, speakers, tone, write_wav

from lohe.tasks import KeywordSpotting, TinyStories, WikiText2, manifest


@pytest.mark.parametrize("split", ["train", "valid", "test"])
def test_missing_split_of_wikitext(wikitext, split):
    (wikitext / "wikitext-2-raw" / f"wiki.{split}.raw").unlink()
    remedy = r"lohe data fetch wikitext2-raw.*lohe data import wikitext2-raw PATH.*\$LOHE_DATA"
    with pytest.raises(FileNotFoundError, match=rf"wiki\.{split}\.raw is missing.*{remedy}"):
        WikiText2(tokens=10).load(wikitext)


def test_missing_split_of_tinystories(stories):
    (stories / "tinystories" / "TinyStories-valid.txt").unlink()
    with pytest.raises(FileNotFoundError, match=r"TinyStories-valid\.txt is missing.*lohe data"):
        TinyStories().load(stories)


def test_nothing_there_at_all(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"that folder is not there.*lohe data fetch"):
        WikiText2().load(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"words there: none.*lohe data fetch speech-com"):
        KeywordSpotting().load(tmp_path)


def test_the_other_release_is_pointed_out(wikitext):
    (wikitext / "wikitext-2-raw").rename(wikitext / "wikitext-2")
    with pytest.raises(FileNotFoundError, match=r'release="tokens"'):
        WikiText2().load(wikitext)


def test_wrong_checksum_of_a_text(stories):
    folder = stories / "tinystories"
    manifest.record(folder, sorted(folder.glob("*.txt")), origin="an archive")
    TinyStories().load(stories)
    with (folder / "TinyStories-train.txt").open("a", encoding="utf-8") as file:
        file.write("Someone was here.\n<|endoftext|>\n")
    match = r"TinyStories-train\.txt has the wrong checksum.*from an archive.*verify --record"
    for _ in range(2):  # the second time the text is in the cache
        with pytest.raises(ValueError, match=match):
            TinyStories().load(stories)


def test_wrong_checksum_of_wikitext(wikitext):
    folder = wikitext / "wikitext-2-raw"
    manifest.record(folder, sorted(folder.iterdir()), origin="an archive")
    (folder / "wiki.test.raw").write_text("the cat sat on the hat . " * 9, encoding="utf-8")
    with pytest.raises(ValueError, match=r"wiki\.test\.raw has the wrong checksum.*fetch it again"):
        WikiText2(tokens=10).load(wikitext)


def test_wrong_checksum_of_clips(speech):
    folder = speech / "speech_commands_v0.02"
    manifest.record(folder, sorted(folder.iterdir()), origin="an archive")
    KeywordSpotting(WORDS).load(speech)
    write_wav(next((folder / "yes").glob("*.wav")), tone(900))
    with pytest.raises(ValueError, match=r"yes has the wrong checksum.*fetch it again"):
        KeywordSpotting(WORDS).load(speech)


def test_empty_story(stories):
    path = stories / "tinystories" / "TinyStories-train.txt"
    path.write_text(
        "One two three.\n<|endoftext|>\n\n<|endoftext|>\nFour five six.\n", encoding="utf-8"
    )
    match = rf"{re.escape(str(path))} has an empty story.*line 4.*TinyStories\(empty=\"skip\"\)"
    with pytest.raises(ValueError, match=match):
        TinyStories().load(stories)
    assert TinyStories(empty="skip").load(stories).facts["stories"]["train"] == 2


def test_stories_without_ends(stories):
    path = stories / "tinystories" / "TinyStories-valid.txt"
    path.write_text("One two three.\n\nFour five six.\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"TinyStories-valid\.txt marks no story ends: 3 lines"):
        TinyStories().load(stories)


@pytest.mark.parametrize("content", ["", "<|endoftext|>\n"])
def test_no_stories(stories, content):
    path = stories / "tinystories" / "TinyStories-valid.txt"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match=r"TinyStories-valid\.txt has (no story|an empty story)"):
        TinyStories().load(stories)


def test_text_without_words(wikitext):
    (wikitext / "wikitext-2-raw" / "wiki.valid.raw").write_text(" \n\n", encoding="utf-8")
    with pytest.raises(
        ValueError, match=r"wiki\.valid\.raw has 0 words.*lohe data fetch wikitext2"
    ):
        WikiText2(tokens=10).load(wikitext)


@pytest.mark.parametrize(
    ("encoding", "said"),
    [
        ("latin1", r"line 2 has the byte 0xe9 at column 7\..*`iconv -f latin1 "),
        ("utf-16", r"it begins with a mark of UTF-16\..*`iconv -f utf-16 "),
        ("utf-16-le", r"line 1 has the byte 0x00 at column 2.*`iconv -f utf-16le "),
    ],
)
def test_wrong_encoding(wikitext, encoding, said):
    path = wikitext / "wikitext-2-raw" / "wiki.train.raw"
    path.write_text("a cat\nun café\n" * 40, encoding=encoding)
    with pytest.raises(ValueError, match=rf"wiki\.train\.raw is not UTF-8: {said}"):
        WikiText2(tokens=10).load(wikitext)


def test_a_mark_at_the_start_is_no_part_of_a_word(wikitext):
    path = wikitext / "wikitext-2-raw" / "wiki.train.raw"
    words = WikiText2(tokens=10).load(wikitext).names
    path.write_text("\ufeff" + path.read_text(encoding="utf-8"), encoding="utf-8")
    assert WikiText2(tokens=10).load(wikitext).names == words


@pytest.mark.parametrize("story", ["...\n", '" ! "'])
def test_a_story_of_punctuation_is_empty(stories, story):
    path = stories / "tinystories" / "TinyStories-train.txt"
    end = "\n<|endoftext|>\n"
    path.write_text(f"One two three.{end}{story}{end}Four five six.{end}", encoding="utf-8")
    with pytest.raises(ValueError, match=r"TinyStories-train\.txt has an empty story: no word"):
        TinyStories().load(stories)
    assert TinyStories(empty="skip").load(stories).facts["stories"]["train"] == 2


def test_a_clip_in_two_formats(speech):
    path = next((speech / "speech_commands_v0.02" / "yes").glob("*.wav"))
    path.with_suffix(".flac").write_bytes(path.read_bytes())
    twins = rf"{path.stem}\.flac and {path.stem}\.wav"
    with pytest.raises(ValueError, match=rf"yes has the same clip twice, {twins}.* Delete"):
        KeywordSpotting(WORDS).load(speech)


def test_xz_cut_short(wikitext):
    path = wikitext / "wikitext-2-raw" / "wiki.train.raw"
    packed = lzma.compress(path.read_bytes())
    path.with_name("wiki.train.raw.xz").write_bytes(packed[: len(packed) // 2])
    path.unlink()
    with pytest.raises(ValueError, match=r"wiki\.train\.raw\.xz cannot be decompressed.*again"):
        WikiText2(tokens=10).load(wikitext)


def test_empty_wav(speech):
    path = next((speech / "speech_commands_v0.02" / "yes").glob("*.wav"))
    path.write_bytes(b"")
    with pytest.raises(ValueError, match=rf"{path.name} is empty \(0 bytes\).*fetch it again"):
        KeywordSpotting(WORDS).load(speech)


def test_wav_cut_short(speech):
    path = next((speech / "speech_commands_v0.02" / "yes").glob("*.wav"))
    path.write_bytes(path.read_bytes()[:-2_000])
    with pytest.raises(ValueError, match=rf"{path.name} is cut short: 2,000 bytes fewer"):
        KeywordSpotting(WORDS).load(speech)


@pytest.mark.parametrize("size", [2**31 - 1, 2**32 - 1])
def test_wav_of_a_length_that_was_not_known_yet(speech, size):
    path = next((speech / "speech_commands_v0.02" / "yes").glob("*.wav"))
    content = path.read_bytes()
    whole = KeywordSpotting(WORDS).load(speech)
    path.write_bytes(content[:4] + size.to_bytes(4, "little") + content[8:])
    found = KeywordSpotting(WORDS).load(speech)
    assert {name: len(x) for name, x in found.splits.items()} == {
        name: len(x) for name, x in whole.splits.items()
    }


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_wav_of_no_numbers(speech, value):
    soundfile = pytest.importorskip("soundfile")
    path = next((speech / "speech_commands_v0.02" / "yes").glob("*.wav"))
    samples = tone(440) / 32_768
    samples[70] = value
    soundfile.write(path, samples, 16_000, subtype="FLOAT")
    with pytest.raises(ValueError, match=rf"{path.name} has samples that are no finite numbers"):
        KeywordSpotting(WORDS).load(speech)


def test_wav_without_samples(speech):
    path = next((speech / "speech_commands_v0.02" / "yes").glob("*.wav"))
    write_wav(path, tone(440, samples=0))
    with pytest.raises(ValueError, match=rf"{path.name} has no samples"):
        KeywordSpotting(WORDS).load(speech)


def test_8_khz_wav(speech):
    path = next((speech / "speech_commands_v0.02" / "yes").glob("*.wav"))
    write_wav(path, tone(440), rate=8_000)
    with pytest.raises(ValueError, match=rf"{path.name} is sampled at 8000 Hz.*16000 Hz.*sox"):
        KeywordSpotting(WORDS).load(speech)


def test_stereo_wav(speech):
    path = next((speech / "speech_commands_v0.02" / "yes").glob("*.wav"))
    write_wav(path, tone(440), channels=2)
    with pytest.raises(ValueError, match=rf"{path.name} has 2 channels.*Mix it to mono"):
        KeywordSpotting(WORDS).load(speech)


def test_text_called_wav(speech):
    path = next((speech / "speech_commands_v0.02" / "yes").glob("*.wav"))
    path.write_text("no sound", encoding="utf-8")
    with pytest.raises(ValueError, match=rf"{path.name} is no audio that can be read.*again"):
        KeywordSpotting(WORDS).load(speech)


def test_word_without_clips(speech):
    with pytest.raises(FileNotFoundError, match=r"no clips of 'stop'.*words there: no, yes.*data"):
        KeywordSpotting(("yes", "stop")).load(speech)


def test_clips_without_a_split(speech):
    for word in WORDS:
        for speaker in speakers("valid", 3):
            (speech / "speech_commands_v0.02" / word / f"{speaker}_nohash_0.wav").unlink()
    with pytest.raises(ValueError, match=r"falls into the split valid.*names of the release"):
        KeywordSpotting(WORDS).load(speech)


def test_without_soundfile(speech, monkeypatch):
    monkeypatch.setitem(sys.modules, "soundfile", None)
    with pytest.raises(ImportError, match=r'pip install "lohe\[audio\]"'):
        KeywordSpotting(WORDS).load(speech)
