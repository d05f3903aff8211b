"""Corpora as lines of UTF-8, from plain or .xz files, one line in memory at a time."""

import codecs
import hashlib
import lzma
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from lohe.tasks.progress import Progress, silent

BLOCK = 1 << 20  # bytes from one report of progress to the next


def find_text(folder: Path, name: str, source: str) -> Path:
    """`folder/name`, plain or compressed as `name.xz`; `source` is what `lohe data` calls it."""
    for candidate in (folder / name, folder / f"{name}.xz"):
        if candidate.is_file():
            return candidate
    present = sorted(p.name for p in folder.iterdir()) if folder.is_dir() else []
    beside = f"only {', '.join(present[:8])} is there" if present else "that folder is not there"
    raise FileNotFoundError(
        f"{folder / name} is missing (nor is there {name}.xz): {beside}. "
        f"Get it with `lohe data fetch {source}`, or from a copy that you have with "
        f"`lohe data import {source} PATH`; $LOHE_DATA chooses another data root."
    )


class TextFile:
    """Lines of a file; once they have all been read, `sha256` is that of the uncompressed text.

    A mark of UTF-8 at the start (BOM) is no part of the first line.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "two.txt"
    >>> _ = path.write_text("once upon\\na time", encoding="utf-8")
    >>> list(TextFile(path).lines())
    ['once upon\\n', 'a time']
    """

    def __init__(self, path: Path):
        self.path = path
        self._digest = hashlib.sha256()

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()

    def lines(self) -> Iterator[str]:
        self._digest = hashlib.sha256()
        with open_text(self.path) as file:
            for number, line in enumerate(file, start=1):
                self._digest.update(line)
                yield self._decode(line, number)

    def _decode(self, line: bytes, number: int) -> str:
        if number == 1:
            if line.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
                raise self._misread("it begins with a mark of UTF-16", "utf-16")
            line = line.removeprefix(codecs.BOM_UTF8)
        if (nul := line.find(0)) >= 0:
            raise self._misread(
                f"line {number} has the byte 0x00 at column {nul + 1}, as UTF-16 has", "utf-16le"
            )
        try:
            return line.decode("utf-8")
        except UnicodeDecodeError as error:
            raise self._misread(
                f"line {number} has the byte 0x{line[error.start]:02x} at column {error.start + 1}",
                "latin1",
            ) from None

    def _misread(self, why: str, encoding: str) -> ValueError:
        return ValueError(
            f"{self.path} is not UTF-8: {why}. Save it again as UTF-8 (for instance "
            f"`iconv -f {encoding} -t utf-8`), or import an unchanged copy of the release."
        )


@contextmanager
def open_text(path: Path) -> Iterator[IO[bytes]]:
    """Bytes of the uncompressed text; damage to an .xz file is reported under its name."""
    try:
        with lzma.open(path) if path.suffix == ".xz" else path.open("rb") as file:
            yield file
    except (lzma.LZMAError, EOFError) as error:
        raise ValueError(
            f"{path} cannot be decompressed ({error}): it is cut short or damaged. "
            f"Import or fetch it again."
        ) from None


def text_sha256(path: Path, progress: Progress = silent) -> str:
    """sha256 of the uncompressed text: the same for `wiki.test.raw` and `wiki.test.raw.xz`."""
    size = None if path.suffix == ".xz" else path.stat().st_size
    with open_text(path) as file:
        return sha256_of(file.read, f"checking {path.name}", size, progress)


def sha256_of(read: Callable[[int], bytes], what: str, size: int | None, progress: Progress) -> str:
    """sha256 of all that `read` gives, `size` bytes if that is known."""
    digest, done = hashlib.sha256(), 0
    while block := read(BLOCK):
        digest.update(block)
        done += len(block)
        progress(what, done, size)
    return digest.hexdigest()
