"""Which process is this, and is that one still alive."""

import os
import socket
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Process:
    """A process, told apart from a later one that was given the same pid.

    `space` is where the pid means something: a host name is not enough, since containers share
    names and cloned machines do too. `start` is in clock ticks after boot, None without /proc.
    """

    host: str
    space: str
    pid: int
    start: int | None


def this() -> Process:
    return Process(socket.gethostname(), pid_space(), os.getpid(), _start(os.getpid()))


def pid_space() -> str:
    """Host, boot and pid namespace."""
    return " ".join([socket.gethostname(), _boot(), _namespace()])


def alive(process: Process) -> bool | None:
    """Whether `process` still runs; None for one whose pid means nothing here."""
    if process.space != pid_space():
        return None
    if Path("/proc/self/stat").exists():
        start = _start(process.pid)
        return start is not None and start == process.start
    return _answers(process.pid)


def _start(pid: int) -> int | None:
    """When `pid` was started; None if it is dead, or a zombie, which only waits to be buried."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # proc(5): "pid (name) state ...", the name may hold anything; the start time is field 22
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[19])


def _answers(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # someone else's, so it is there
        return True
    return True


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return "?"


def _namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return "?"
