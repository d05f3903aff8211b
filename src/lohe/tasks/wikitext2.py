"""WikiText-2 (Sec. 4.2), word level, under two protocols that are always named.

*published*, as the paper's numbers were made: the text is cut into pieces of 48 words, each
wrapped as BOS + 48 + EOS. The EOS always comes last, costs nothing to predict, and is one of the
49 scored targets.

*strict*: the same stream in windows of 49 that overlap by one word. Every word but the first is
scored once, and nothing is inserted.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from jaxtyping import Int16
from torch import Tensor

from lohe.tasks import language, manifest
from lohe.tasks.dataset import Data, Split, at_least, checksum, one_of
from lohe.tasks.language import BOS, EOS, PAD, UNK
from lohe.tasks.progress import Progress, silent
from lohe.tasks.root import data_root
from lohe.tasks.textfile import TextFile, find_text

FOLDERS = {"raw": "wikitext-2-raw", "tokens": "wikitext-2"}
SOURCES = {"raw": "wikitext2-raw", "tokens": "wikitext2"}  # what `lohe data` calls them

# each of these stands alone; the tokens release then has "@", "," and "@" where it wrote "@,@"
PUNCTUATION = re.compile(r"""([.,!?;:()\[\]{}"'])""")

Protocol = Literal["published", "strict"]
PROTOCOLS: tuple[Protocol, ...] = ("published", "strict")
Lines = dict[str, list[str]]
Streams = dict[str, Int16[Tensor, " word"]]


@dataclass(frozen=True)
class WikiText2(language.NextWord):
    """WikiText-2 as in App. B; `protocol` is what the model trains on and is selected by.

    Whatever the protocol, `load` also gives `valid_published`, `valid_strict` and the same of
    `test`: one trained model can be scored both ways. The authors used the raw release.

    >>> WikiText2(release="tokens", protocol="strict")
    WikiText2(tokens=48, vocab=9996, release='tokens', protocol='strict')
    """

    tokens: int = 48
    vocab: int = 9_996  # words; with the four specials, 10,000 ids
    release: Literal["raw", "tokens"] = "raw"
    protocol: Protocol = "published"

    def __post_init__(self) -> None:
        one_of("WikiText2", "release", self.release, tuple(FOLDERS))
        one_of("WikiText2", "protocol", self.protocol, PROTOCOLS)
        at_least("WikiText2", "tokens", self.tokens, 1)
        language.check_vocabulary("WikiText2", self.vocab)

    def load(self, root: Path | None = None, progress: Progress = silent) -> Data:
        _, names, streams, facts = self._read(data_root(root))
        splits = cut(streams, self.tokens, self.protocol)
        facts["chunks"] = {name: len(split) for name, split in splits.items()}
        return Data(splits, names, checksum(splits), facts)

    def _read(self, root: Path) -> tuple[Lines, tuple[str, ...], Streams, dict[str, Any]]:
        """The lines of each split, the vocabulary, the lines' words as ids, and what they are."""
        texts = self._texts(root)
        lines = {name: list(text.lines()) for name, text in texts.items()}
        words = {name: list(tokenize(rows)) for name, rows in lines.items()}
        for name, text in texts.items():
            if len(words[name]) < self.tokens:
                raise ValueError(
                    f"{text.path} has {len(words[name])} words, too few for one chunk of "
                    f"{self.tokens}: the {name} split would be empty. Import or fetch it again: "
                    f"`lohe data fetch {SOURCES[self.release]}`."
                )
            manifest.check(text.path, text.sha256)
        names = language.vocabulary(Counter(words["train"]), self.vocab)
        streams = {name: encode(stream, names) for name, stream in words.items()}
        facts = {
            "task": asdict(self),
            "sources": {text.path.name.removesuffix(".xz"): text.sha256 for text in texts.values()},
            "words": {name: len(stream) for name, stream in words.items()},
        }
        return lines, names, streams, facts

    def _texts(self, root: Path) -> dict[str, TextFile]:
        folder, source = root / FOLDERS[self.release], SOURCES[self.release]
        other = "tokens" if self.release == "raw" else "raw"
        if not folder.is_dir() and (root / FOLDERS[other]).is_dir():
            raise FileNotFoundError(
                f"{folder} is missing, but the other release is there: use it with "
                f'WikiText2(release="{other}"), or get this one with `lohe data fetch {source}`.'
            )
        return {
            split: TextFile(find_text(folder, f"wiki.{split}.{self.release}", source))
            for split in ("train", "valid", "test")
        }


def cut(
    streams: dict[str, Int16[Tensor, " word"]], tokens: int, protocol: Protocol
) -> dict[str, Split]:
    """Train, valid and test by `protocol`, and the last two by each protocol under its name."""
    splits = {
        f"{name}_{way}": language.next_token(chunks(streams[name], tokens, way))
        for name in ("valid", "test")
        for way in PROTOCOLS
    }
    chosen = {name: splits[f"{name}_{protocol}"] for name in ("valid", "test")}
    train = language.next_token(chunks(streams["train"], tokens, protocol))
    return {"train": train} | chosen | splits


def chunks(
    stream: Int16[Tensor, " word"], tokens: int, protocol: Protocol
) -> Int16[Tensor, "chunk token"]:
    """The stream in pieces, by `protocol`."""
    return (wrapped_chunks if protocol == "published" else overlapping_windows)(stream, tokens)


def tokenize(lines: Iterable[str]) -> Iterator[str]:
    """Words of the lines: lower case, punctuation marks apart, split at white space.

    >>> list(tokenize([" = Title = ", "Don't <unk> !"]))
    ['=', 'title', '=', 'don', "'", 't', '<unk>', '!']
    """
    for line in lines:
        yield from PUNCTUATION.sub(r" \1 ", line.lower()).split()


def encode(words: list[str], names: tuple[str, ...]) -> Int16[Tensor, " word"]:
    """Ids of the words; whatever is no word of the vocabulary is UNK, the literal `<unk>` too."""
    ids = language.word_ids(names)
    return torch.tensor([ids.get(word, UNK) for word in words], dtype=torch.int16)


def wrapped_chunks(stream: Int16[Tensor, " word"], tokens: int) -> Int16[Tensor, "chunk token"]:
    """*published*: BOS + `tokens` words + EOS; the words left over at the end are dropped.

    Reading: the authors keep a remainder of 2 words or more as one padded chunk more. Without it
    there are the 43,465 and 4,533 chunks that we compare with, and every EOS comes last.

    >>> wrapped_chunks(torch.tensor([4, 5, 6, 7, 8], dtype=torch.int16), tokens=2).tolist()
    [[1, 4, 5, 2], [1, 6, 7, 2]]
    """
    pieces = stream[: len(stream) // tokens * tokens].view(-1, tokens)
    edge = pieces.new_ones(len(pieces), 1)
    return torch.cat([BOS * edge, pieces, EOS * edge], dim=1)


def overlapping_windows(
    stream: Int16[Tensor, " word"], tokens: int
) -> Int16[Tensor, "chunk token"]:
    """*strict*: windows of `tokens` + 1 words, each starting at the last word of the one before.

    >>> overlapping_windows(torch.tensor([4, 5, 6, 7, 8], dtype=torch.int16), tokens=3).tolist()
    [[4, 5, 6, 7], [7, 8, 0, 0]]
    """
    windows = -(-(len(stream) - 1) // tokens)
    missing = windows * tokens + 1 - len(stream)
    padded = torch.cat([stream, stream.new_full((missing,), PAD)])
    return padded.unfold(0, tokens + 1, tokens).contiguous()
