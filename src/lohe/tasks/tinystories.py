"""TinyStories (Sec. 4.2): stories that a child would follow, one after the other in one file.

The official text is 2 GB, so it is read as a stream, twice: once to count words and chunks, once
to fill the chunks, which are then kept in the cache. Only ids sit in memory, 1.2 GB of them, and
twice that while they are being stored.
"""

import hashlib
import string
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from jaxtyping import Int16
from torch import Tensor

from lohe.tasks import language, manifest
from lohe.tasks.cache import Entry, cached, fingerprint
from lohe.tasks.dataset import Data, at_least, checksum, one_of
from lohe.tasks.language import BOS, EOS, PAD, UNK
from lohe.tasks.progress import Progress, silent
from lohe.tasks.root import data_root
from lohe.tasks.textfile import TextFile, find_text

FOLDER = "tinystories"
FILES = {"train": "TinyStories-train.txt", "valid": "TinyStories-valid.txt"}
END_OF_STORY = "<|endoftext|>"
REPORT = 2_000  # stories or chunks from one report of progress to the next
VERSION = 2  # of the reading; raised where the same text gives other chunks
SHORTEST = 5  # a chunk of four tokens or fewer is dropped

# every ASCII punctuation mark becomes a space: the models see words only
_WORDS_ONLY = str.maketrans(dict.fromkeys(string.punctuation, " "))


@dataclass(frozen=True)
class TinyStories(language.NextWord):
    """TinyStories as in App. B: `vocab` words and four specials, chunks of `tokens`.

    A story is BOS + words + EOS, cut into consecutive chunks: only the first has the BOS, only the
    last the EOS. `empty` says what a story without words is: an error, or nothing. The release has
    no test split: `halves` makes one of the second half of the validation stories, for those who
    select on the first.
    """

    tokens: int = 128
    vocab: int = 8_000
    empty: Literal["refuse", "skip"] = "refuse"
    halves: bool = False

    def __post_init__(self) -> None:
        one_of("TinyStories", "empty", self.empty, ("refuse", "skip"))
        at_least("TinyStories", "tokens", self.tokens, SHORTEST)
        language.check_vocabulary("TinyStories", self.vocab)

    def load(self, root: Path | None = None, progress: Progress = silent) -> Data:
        root = data_root(root)
        paths = {s: find_text(root / FOLDER, name, FOLDER) for s, name in FILES.items()}
        entry = root / "cache" / FOLDER / f"tokens{self.tokens}-vocab{self.vocab}-{self.empty}"
        key = fingerprint((replace(self, halves=False), VERSION), paths.values())
        chunks, made = cached(entry, key, lambda: self._encode(paths, progress))
        for split, path in paths.items():
            manifest.check(path, made["sources"][FILES[split]])
        if self.halves:
            valid, test = halved(chunks["valid"])
            if not len(test):
                raise ValueError(
                    f"{paths['valid']} has one story, which has no halves: load with halves=False."
                )
            chunks |= {"valid": valid, "test": test}
        splits = {split: language.next_token(rows) for split, rows in chunks.items()}
        facts = {"task": asdict(self)} | {k: made[k] for k in ("sources", "stories")}
        facts["chunks"] = {split: len(rows) for split, rows in chunks.items()}
        named = made["checksum"]
        if self.halves:  # records of 2026-11-16 and before have that of the whole
            halves = checksum({split: splits[split] for split in ("valid", "test")})
            named = hashlib.sha256(f"{named} {halves}".encode()).hexdigest()
        return Data(splits, tuple(made["names"]), named, facts)

    def _encode(self, paths: dict[str, Path], progress: Progress) -> Entry:
        texts = {split: TextFile(path) for split, path in paths.items()}
        counts, sizes, stories = Counter[str](), dict.fromkeys(texts, 0), dict.fromkeys(texts, 0)
        for split, text in texts.items():
            for words in self._stories(text):
                stories[split] += 1
                if stories[split] % REPORT == 0:
                    progress(f"counting {text.path.name}", stories[split], None)
                sizes[split] += sum(1 for _ in chunk_lengths(len(words) + 2, self.tokens))
                if split == "train":
                    counts.update(words)
            if not sizes[split]:
                raise ValueError(
                    f"{text.path} has no story of {SHORTEST - 2} words or more: the {split} split "
                    f"would be empty. Import or fetch it again: `lohe data fetch tinystories`."
                )
        names = language.vocabulary(counts, self.vocab)
        chunks = {s: self._fill(text, sizes[s], names, progress) for s, text in texts.items()}
        facts = {
            "names": names,
            "checksum": checksum({s: language.next_token(c) for s, c in chunks.items()}),
            "sources": {FILES[split]: text.sha256 for split, text in texts.items()},
            "stories": stories,
            "chunks": sizes,
        }
        return chunks, facts

    def _fill(
        self, text: TextFile, size: int, names: tuple[str, ...], progress: Progress
    ) -> Int16[Tensor, "chunk token"]:
        ids = language.word_ids(names)
        rows = np.full((size, self.tokens), PAD, dtype=np.int16)
        row = 0
        for words in self._stories(text):
            story = [BOS, *(ids.get(word, UNK) for word in words), EOS]
            for k, length in enumerate(chunk_lengths(len(story), self.tokens)):
                rows[row, :length] = story[k * self.tokens : k * self.tokens + length]
                row += 1
                if row % REPORT == 0 or row == size:
                    progress(f"encoding {text.path.name}", row, size)
        return torch.from_numpy(rows)

    def _stories(self, text: TextFile) -> Iterator[list[str]]:
        for last_line, story in read_stories(text):
            if words := tokenize(story):
                yield words
            elif self.empty == "refuse":
                raise ValueError(
                    f"{text.path} has an empty story: no word stands before the {END_OF_STORY} in "
                    f'line {last_line}. Delete that story, or load with TinyStories(empty="skip").'
                )


def halved(
    chunks: Int16[Tensor, "chunk token"],
) -> tuple[Int16[Tensor, "first token"], Int16[Tensor, "second token"]]:
    """The chunks of the first half of the stories, and of the second; no story is in both.

    >>> first, second = halved(torch.tensor([[BOS, 5], [6, EOS], [BOS, 7]], dtype=torch.int16))
    >>> len(first), len(second)
    (2, 1)
    """
    story = (chunks[:, 0] == BOS).cumsum(0)  # a story's first chunk begins with BOS
    first = story <= (story[-1] + 1) // 2
    return chunks[first], chunks[~first]


def read_stories(text: TextFile) -> Iterator[tuple[int, str]]:
    """Each story of a text in the official layout, with the number of the line it ends in."""
    story: list[str] = []
    number, ends = 0, 0
    for number, line in enumerate(text.lines(), start=1):
        *finished, rest = line.split(END_OF_STORY)
        for piece in finished:
            yield number, "".join([*story, piece])
            story = []
            ends += 1
        story.append(rest)
    if number and not ends:
        raise ValueError(
            f"{text.path} marks no story ends: {number} lines without {END_OF_STORY}. Use the "
            f"text files of the release ({', '.join(FILES.values())}), or add the marks."
        )
    if remainder := "".join(story).strip():
        yield number, remainder


def tokenize(story: str) -> list[str]:
    """Lower-case words.

    >>> tokenize('"Look!" said Tom\\'s cat.')
    ['look', 'said', 'tom', 's', 'cat']
    """
    return story.lower().translate(_WORDS_ONLY).split()


def chunk_lengths(story: int, tokens: int) -> Iterator[int]:
    """Lengths of the chunks of a story of `story` tokens, without a last one that is too short.

    >>> list(chunk_lengths(300, 128)), list(chunk_lengths(260, 128))
    ([128, 128, 44], [128, 128])
    """
    for start in range(0, story, tokens):
        length = min(tokens, story - start)
        if length >= SHORTEST:
            yield length
