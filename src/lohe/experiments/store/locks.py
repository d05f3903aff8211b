"""Two processes never train the same seed of the same recipe at once.

A claim is a small file `<key>-<random>.json` that names its seeds and its holder. Claims are made,
and dead ones removed, only under the store's short lock, so nobody can race anybody; the file's
modification time is the heartbeat. Each claim has a name of its own: to let go is to delete it.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from threading import Event, Thread
from uuid import uuid4

from lohe.experiments.store import exact, files, processes
from lohe.experiments.store.processes import Process


@dataclass(frozen=True)
class Holder:
    """What a claim file says, and how old its last heartbeat was when we looked."""

    path: Path
    seeds: list[int]
    process: Process
    since: str
    stale_after_s: float
    silent_s: float

    @property
    def stale(self) -> bool:
        """Dead for certain where its pid can be checked; elsewhere, silent for too long.

        A beat far in the future is of a clock that was wrong: it would be fresh for as long.
        """
        alive = processes.alive(self.process)
        return abs(self.silent_s) > self.stale_after_s if alive is None else not alive

    def __str__(self) -> str:
        who = f"pid {self.process.pid} on {self.process.host}"
        return f"{who} since {self.since} (seeds {self.seeds}, heartbeat {self.silent_s:.0f} s ago)"


class Busy(RuntimeError):
    """Someone else trains some of the seeds; `free` are the ones you could have instead."""

    def __init__(self, key: str, seeds: list[int], holders: list[Holder]):
        taken = {seed for holder in holders for seed in holder.seeds}
        self.holders = holders
        self.free = [seed for seed in seeds if seed not in taken]
        super().__init__(
            f"Asked for seeds {seeds} of recipe {key}; held by {'; '.join(map(str, holders))}. "
            f"Free: {self.free or 'none'}. Take those, or come back later: the claim of a process "
            "that died is given to whoever asks next."
        )


class Lost(RuntimeError):
    """Others took us for dead, and what was ours is theirs."""


@dataclass(frozen=True)
class Claim:
    """Seeds that are ours to train."""

    seeds: list[int]
    path: Path

    def check(self) -> None:
        """Raise Lost if they no longer are, say after a long sleep; asked before writing."""
        try:
            self.path.stat()
        except FileNotFoundError:
            raise Lost(
                f"Our claim on seeds {self.seeds} is gone: {self.path} was not touched for so "
                "long that another process removed it, and may train them now. Nothing more was "
                "written; the same command continues once it is done."
            ) from None


@contextmanager
def claim(
    folder: Path,
    lock: Path,
    key: str,
    seeds: Iterable[int],
    heartbeat_s: float = 20.0,
    stale_after_s: float = 300.0,
) -> Iterator[Claim]:
    """Hold `seeds` of recipe `key`, all or none; raises Busy if any of them is held."""
    if not 0 < 2 * heartbeat_s <= stale_after_s:
        raise ValueError(
            f"A claim goes stale after stale_after_s = {stale_after_s:g} without a heartbeat, and "
            f"beats every heartbeat_s = {heartbeat_s:g}: one missed beat must not lose it. Make "
            "stale_after_s at least twice heartbeat_s."
        )
    wanted = list(seeds)
    path = folder / f"{key}-{uuid4().hex}.json"
    with files.locked(lock):
        files.sweep(folder)
        holders = [
            holder for holder in _living(folder, lock, key) if set(holder.seeds) & set(wanted)
        ]
        if holders:
            raise Busy(key, wanted, holders)
        files.write(path, _text(wanted, stale_after_s).encode())
    try:
        with _heartbeat(path, heartbeat_s):
            yield Claim(wanted, path)
    finally:
        path.unlink(missing_ok=True)


def _living(folder: Path, lock: Path, key: str) -> Iterator[Holder]:
    """Holders of seeds of `key`; the claims of the dead are removed on the way."""
    os.utime(lock)
    now = lock.stat().st_mtime  # by the clock that stamps the heartbeats, on NFS the server's
    for path in sorted(folder.glob(f"{key}-*.json")):
        try:
            holder = _read(path, now)
        except FileNotFoundError:  # let go this instant
            continue
        if holder.stale:
            path.unlink(missing_ok=True)
        else:
            yield holder


def _text(seeds: list[int], stale_after_s: float) -> str:
    return exact.dumps(
        {
            "lohe": "claim",
            "seeds": seeds,
            "process": asdict(processes.this()),
            "since": datetime.now().astimezone().isoformat(timespec="seconds"),
            "stale_after_s": stale_after_s,
        }
    )


def _read(path: Path, now: float) -> Holder:
    silent_s = now - path.stat().st_mtime
    try:
        raw = exact.loads(path.read_bytes())
        process = Process(**raw["process"])
        return Holder(path, raw["seeds"], process, raw["since"], raw["stale_after_s"], silent_s)
    except (ValueError, KeyError, TypeError) as reason:
        remedy = "If nothing is training here, delete it."
        raise files.Damaged(path, f"not a claim of ours ({reason!r})", remedy) from reason


@contextmanager
def _heartbeat(path: Path, every_s: float) -> Iterator[None]:
    """Touch `path` until the block ends, or somebody removes it."""
    stop = Event()
    thread = Thread(target=_beat, args=(path, every_s, stop), daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _beat(path: Path, every_s: float, stop: Event) -> None:
    while not stop.wait(every_s):
        try:
            os.utime(path)
        except FileNotFoundError:
            return
        except OSError:  # a network file system away for a moment; the next beat may land
            continue
