"""Files that are there whole or not at all, whatever moment the process dies at."""

import errno
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

PART = ".part-"  # what a file or folder is called until it is whole


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A hidden temporary path beside `path`, which takes its place if the block succeeds."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{PART}{uuid4().hex}{path.suffix}")
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def staging(folder: Path) -> Iterator[Path]:
    """A hidden folder in `folder`, on the same disk, for what has to be checked before it is let
    out; what is still in it at the end is deleted."""
    folder.mkdir(parents=True, exist_ok=True)
    hidden = Path(tempfile.mkdtemp(dir=folder, prefix=PART))
    try:
        yield hidden
    finally:
        shutil.rmtree(hidden)


@contextmanager
def room_for(path: Path, needed: int | None = None) -> Iterator[None]:
    """A full disk is an error that names `path`, the bytes that it needs, and the remedy."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        size = f", which needs {needed:,} bytes" if needed else ""
        raise OSError(
            f"No space left on the disk for {path}{size} ({error.strerror}). Free some, or set "
            f"$LOHE_DATA (or --root) to a folder on another disk; then run the same command again."
        ) from None


def write_text(path: Path, text: str) -> None:
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
