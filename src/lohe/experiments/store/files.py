"""Files that are whole or absent, and a lock that is held for a moment."""

import errno
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

POLL_S = 0.02
NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Damaged(ValueError):
    """A file that is not what its place says it is. Whoever raises this left the file alone."""

    def __init__(self, path: Path, what: str, remedy: str):
        super().__init__(f"{path}: {what}. It was left as it is. {remedy}")
        self.path = path
        self.what = what


def write(path: Path, data: bytes) -> None:
    """Make `path` hold `data`, durably; killed at any moment, it holds the old or the new whole."""
    temporary = path.with_name(f".lohe-{uuid4().hex}.tmp")
    try:
        _put(temporary, data)
        os.replace(temporary, path)
        _sync_folder(path.parent)
    except BaseException as reason:
        temporary.unlink(missing_ok=True)
        if isinstance(reason, OSError):
            raise _explained(path, reason) from reason
        raise


def sweep(folder: Path) -> None:
    """Delete what killed writers left behind. Only for whoever is the sole writer in `folder`."""
    for leftover in folder.glob(".lohe-*.tmp"):
        leftover.unlink(missing_ok=True)


@contextmanager
def locked(path: Path, timeout_s: float = 60.0) -> Iterator[None]:
    """Hold the lock file `path` alone; the kernel releases it when its holder dies."""
    if fcntl is None:
        raise OSError("The store needs POSIX file locks (flock); run on Linux, macOS or WSL.")
    with open(path, "ab") as file:
        _wait(file.fileno(), path, timeout_s)
        try:
            yield
        finally:
            # unlocking outright, not by closing: a child forked meanwhile shares the open file
            fcntl.flock(file, fcntl.LOCK_UN)


def _wait(descriptor: int, path: Path, timeout_s: float) -> None:
    assert fcntl is not None
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"Waited {timeout_s:g} s for {path}, which is held for milliseconds at a time. "
                    f"A stopped process must be holding it: `fuser {path}` names it."
                ) from None
            time.sleep(POLL_S)
        except OSError as reason:
            message = f"{path} cannot be locked ({reason.strerror})"
            remedy = "This file system has no flock: put the store on one that does."
            raise OSError(reason.errno, f"{message}. {remedy}") from reason


def _put(path: Path, data: bytes) -> None:
    with open(path, "xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    """Without this a power cut may forget the rename, though not tear the file."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _explained(path: Path, reason: OSError) -> OSError:
    advice = (
        f"Free some space under {path.parent}, or choose another folder, and run again."
        if reason.errno in NO_SPACE
        else f"Check that {path.parent} exists and can be written."
    )
    message = f"{path} was not written ({reason.strerror}); what it held before is unchanged"
    return OSError(reason.errno, f"{message}. {advice}")
