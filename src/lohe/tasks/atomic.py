"""Files that are there whole or not at all, whatever moment the process dies at."""

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

PART = ".part-"  # what a file or folder is called until it is whole


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A hidden temporary path beside `path`, which takes its place if the block succeeds."""
    temporary = path.with_name(f"{PART}{uuid4().hex}{path.suffix}")
    with _swept(path.parent):
        try:
            temporary.touch()
            # as the umask lets; safetensors writes files of its own mode
            mode = temporary.stat().st_mode
            yield temporary
            temporary.chmod(mode)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


@contextmanager
def staging(folder: Path) -> Iterator[Path]:
    """A hidden folder in `folder`, on the same disk, for what has to be checked before it is let
    out; what is still in it at the end is deleted, and `folder` too where it is empty."""
    with _swept(folder):
        hidden = Path(tempfile.mkdtemp(dir=folder, prefix=PART))
        try:
            yield hidden
        finally:
            shutil.rmtree(hidden)
            with suppress(OSError):
                folder.rmdir()


@contextmanager
def _swept(folder: Path) -> Iterator[None]:
    """Makes `folder`, and deletes what killed writers left in it, unless one is at work there.

    Each holds a shared lock on the folder, which the kernel releases when its holder dies.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if fcntl is None:
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # a writer is at work, or this file system has no locks
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for left in folder.glob(f"{PART}*"):
                shutil.rmtree(left) if left.is_dir() else left.unlink(missing_ok=True)
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield
    finally:
        os.close(descriptor)


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
