"""The corpora that `lohe data` knows: where each comes from, its files, and where they belong.

Downloads have pinned checksums; of what is unpacked or imported the first arrival is recorded.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import ClassVar

from lohe.tasks import kws, tinystories, wikitext2
from lohe.tasks.clips import UNFINISHED, clip_files, folder_of


@dataclass(frozen=True)
class Download:
    """A file at its official address; `sha256` None: not pinned."""

    url: str
    sha256: str | None = None

    @property
    def name(self) -> str:
        return self.url.rsplit("/", 1)[-1]


@dataclass(frozen=True)
class Texts:
    """A corpus of a few text files, each plain or .xz; `pinned` holds sha256 of plain texts."""

    name: str
    folder: str
    about: str
    downloads: tuple[Download, ...]
    files: tuple[str, ...]
    pinned: Mapping[str, str] = field(default_factory=dict)
    needs_all: ClassVar[bool] = True

    @property
    def expected(self) -> tuple[str, ...]:
        return self.files

    @property
    def official(self) -> dict[str, str]:
        """sha256 of the release's texts, as far as they are known; a text of one's own may differ.

        What is in `pinned` may not: it is refused.
        """
        loose = {d.name: d.sha256 for d in self.downloads if d.name in self.files and d.sha256}
        return loose | dict(self.pinned)

    def place(self, member: PurePosixPath) -> str | None:
        """Where in `folder` a file of an archive belongs; None: nowhere.

        Only names that we expect lead anywhere, so no archive can write outside of the folder.
        """
        return member.name if member.name.removesuffix(".xz") in self.files else None

    def items(self, root: Path) -> list[Path]:
        """What there is, each to be checked as a whole."""
        folder = root / self.folder
        pairs = [(folder / name, folder / f"{name}.xz") for name in self.files]
        return [path for pair in pairs for path in pair if path.is_file()]

    def missing(self, root: Path) -> list[str]:
        present = {path.name.removesuffix(".xz") for path in self.items(root)}
        return [name for name in self.files if name not in present]


@dataclass(frozen=True)
class Clips:
    """Speech Commands: a folder of clips for each word."""

    name: str
    folder: str
    about: str
    downloads: tuple[Download, ...]
    words: tuple[str, ...]
    pinned: Mapping[str, str] = field(default_factory=dict)
    needs_all: ClassVar[bool] = False  # a task says which words it needs
    official: ClassVar[Mapping[str, str]] = {}  # nobody publishes the checksum of a word

    @property
    def expected(self) -> tuple[str, ...]:
        return ("WORD/SPEAKER_nohash_N.wav",)

    def place(self, member: PurePosixPath) -> str | None:
        """`word/speaker_nohash_n.wav`; background noise, lists and the rest are not needed."""
        word = member.parent.name
        is_clip = re.fullmatch(r"[0-9a-f]+_nohash_[0-9]+\.(wav|flac)", member.name)
        return f"{word}/{member.name}" if is_clip and re.fullmatch(r"[a-z]+", word) else None

    def items(self, root: Path) -> list[Path]:
        folder = root / self.folder
        words = sorted(folder.iterdir()) if folder.is_dir() else []
        return [path for path in words if path.is_dir() and clip_files(path)]

    def missing(self, root: Path) -> list[str]:
        """Words of the release that have no clip, and what an import that stopped left out."""
        present = {path.name for path in self.items(root)}
        stopped = ["end of an import"] if (root / self.folder / UNFINISHED).exists() else []
        return [word for word in self.words if word not in present] + stopped


Source = Texts | Clips

WIKITEXT = "https://wikitext.smerity.com"  # of the corpus' first author
TINYSTORIES = "https://huggingface.co/datasets/roneneldan/TinyStories/resolve/main"
SPEECH_COMMANDS = "https://storage.googleapis.com/download.tensorflow.org/data"

# sha256 as others publish them, who fetch the same files (torchaudio, Hugging Face's datasets)
ARCHIVES = {
    "wikitext-2-v1.zip": "92675f1d63015c1c8b51f1656a52d5bdbc33aafa60cc47a218a66e7ee817488c",
    "wikitext-2-raw-v1.zip": "ef7edb566e3e2b2d31b29c1fdb0c89a4cc683597484c3dc2517919c615435a11",
    "TinyStories-train.txt": "c5cf5e22ff13614e830afbe61a99fbcbe8bcb7dd72252b989fa1117a368d401f",
    "TinyStories-valid.txt": "94e431816c4cce81ff71e4408ff8d3bda9a42e8d2663986697c3954288cb38b4",
    "speech_commands_v0.01.tar.gz": (
        "743935421bb51cccdb6bdd152e04c5c70274e935c82119ad7faeec31780d811d"
    ),
    "speech_commands_v0.02.tar.gz": (
        "af14739ee7dc311471de98f5f9d2c9191b18aedfe957f4a6ff791c709868ff58"
    ),
}
WORDS = (
    *("bed", "bird", "cat", "dog", "down", "eight", "five", "four", "go", "happy", "house", "left"),
    *("marvin", "nine", "no", "off", "on", "one", "right", "seven", "sheila", "six", "stop"),
    *("three", "tree", "two", "up", "wow", "yes", "zero"),
)
LATER_WORDS = ("backward", "follow", "forward", "learn", "visual")  # since version 0.02


def _wikitext(release: str, archive: str, about: str, pinned: Mapping[str, str]) -> Texts:
    return Texts(
        name=wikitext2.SOURCES[release],
        folder=wikitext2.FOLDERS[release],
        about=about,
        downloads=(Download(f"{WIKITEXT}/{archive}", ARCHIVES[archive]),),
        files=tuple(f"wiki.{split}.{release}" for split in ("train", "valid", "test")),
        pinned=pinned,
    )


def _speech_commands(version: str) -> Clips:
    archive = f"{folder_of(version)}.tar.gz"
    return Clips(
        name=kws.SOURCES[version],
        folder=folder_of(version),
        about=f"Speech Commands {version}, one-second clips of words (Warden 2018; CC BY 4.0)",
        downloads=(Download(f"{SPEECH_COMMANDS}/{archive}", ARCHIVES[archive]),),
        words=tuple(sorted(WORDS if version == "0.01" else WORDS + LATER_WORDS)),
    )


SOURCES: dict[str, Source] = {
    source.name: source
    for source in (
        _wikitext(
            "tokens",
            "wikitext-2-v1.zip",
            "WikiText-2, rare words as <unk> (Merity et al. 2016; CC BY-SA 3.0)",
            # two splits were the same in every copy that we saw; of train we saw no second copy
            {
                "wiki.valid.tokens": (
                    "f0737ed31fc1329026e95cb8b98e19c2a182c39c240ab909dc31abf2f8af58e8"
                ),
                "wiki.test.tokens": (
                    "d790b833ef8cf03a90db7bf1271b7520b83c45ce07ba3c1a9699df81e239eca0"
                ),
            },
        ),
        _wikitext(
            "raw",
            "wikitext-2-raw-v1.zip",
            "WikiText-2, all words as written: what the paper used (CC BY-SA 3.0)",
            {},
        ),
        Texts(
            name="tinystories",
            folder=tinystories.FOLDER,
            about="TinyStories, 2 GB (Eldan and Li 2023; CDLA-Sharing-1.0)",
            downloads=tuple(
                Download(f"{TINYSTORIES}/{file}", ARCHIVES[file])
                for file in tinystories.FILES.values()
            ),
            files=tuple(tinystories.FILES.values()),
        ),
        _speech_commands("0.02"),
        _speech_commands("0.01"),
    )
}


def find_source(name: str) -> Source:
    if name not in SOURCES:
        raise ValueError(
            f"No corpus is called '{name}'. There are {', '.join(SOURCES)}; the agreement task "
            f"(sva) is generated and needs none."
        )
    return SOURCES[name]
