"""Files that are there whole or not at all, whatever moment the process dies at."""

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A hidden temporary path beside `path`, which takes its place if the block succeeds."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".part-", suffix=path.suffix)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


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
