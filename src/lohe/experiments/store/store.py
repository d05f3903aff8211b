"""Records on disk, one file per recipe, shared by any number of processes."""

import errno
import hashlib
import os
import re
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

from lohe.experiments.store import files, locks, recordfile
from lohe.experiments.store.checkpoints import Checkpoint
from lohe.experiments.store.files import Damaged
from lohe.experiments.store.locks import Claim
from lohe.experiments.store.recordfile import RecordFile
from lohe.experiments.store.records import Record, key

PUBLISHED = "PUBLISHED"  # marks a tree of other people's numbers


class Store:
    """Records under `root`, in `<name>-<key>.json`; the name is for people, the key finds the file.

    A process that trains claims its seeds first, then asks what is missing, since another may have
    just finished it:

        with store.claim(recipe, seeds):
            for seed in store.missing(recipe, seeds): ...
            store.add(records, name="sva-hard")
    """

    def __init__(self, root: str | Path):
        self.root = Path(root)
        # a file is asked for once for each pack: read again only where it is another one
        self._parsed: dict[Path, tuple[tuple[int, int, int], RecordFile]] = {}

    def load(self, recipe: dict[str, Any]) -> dict[int, Record]:
        """Records of `recipe` by seed. Raises Damaged rather than let work be done again."""
        path = self._find(recipe)
        return dict(self._read(path).records) if path else {}

    def missing(self, recipe: dict[str, Any], seeds: Iterable[int]) -> list[int]:
        """Those of `seeds` that have no record yet, in the order given."""
        there = self.load(recipe)
        return [seed for seed in seeds if seed not in there]

    def add(
        self, records: Iterable[Record], *, name: str = "run", replace: bool = False
    ) -> list[Record]:
        """Write `records` and return those written: a seed that is there stays, unless `replace`.

        `name` begins the name of a file that does not exist yet.
        """
        groups = _by_recipe(records)
        _check_file_name(name)
        written: list[Record] = []
        with files.locked(self._lock()):
            files.sweep(self.root)
            # all are read before any is written: a damaged file stops the whole
            for path, old, new in [self._target(group, name) for group in groups.values()]:
                fresh = [r for r in new if replace or r.seed not in old.records]
                if fresh:
                    recordfile.write(path, old.merged(fresh))
                written += fresh
        return written

    def all(self) -> Iterator[Record]:
        """Every record, by file and seed; warns about files that are damaged, and skips them."""
        for problem in self.problems():
            warnings.warn(str(problem), stacklevel=2)
        for path in self._files():
            try:
                content = self._read(path)
            except Damaged:
                continue
            yield from (content.records[seed] for seed in sorted(content.records))

    def problems(self) -> list[Damaged]:
        """Files cut short, foreign, or from a newer lohe, which `all` skips; two of one recipe."""
        found: list[Damaged] = []
        whole: dict[str, list[Path]] = {}
        for path in self._files():
            try:
                recipe = self._read(path).recipe
                whole.setdefault(key(recipe), []).append(path)
            except Damaged as damage:
                found.append(damage)
        return found + [_twice(paths) for paths in whole.values() if len(paths) > 1]

    def claim(
        self,
        recipe: dict[str, Any],
        seeds: Iterable[int],
        heartbeat_s: float = 20.0,
        stale_after_s: float = 300.0,
    ) -> AbstractContextManager[Claim]:
        """Hold `seeds` while training them; raises `locks.Busy`, which names the free ones."""
        folder = self.work("claims")
        lock = self._lock()
        return locks.claim(folder, lock, key(recipe), seeds, heartbeat_s, stale_after_s)

    def checkpoint(
        self,
        recipe: dict[str, Any],
        seeds: Iterable[int],
        check: Callable[[], None] = lambda: None,
    ) -> Checkpoint:
        """Where the pack of these `seeds`, in this order, keeps its state until it is recorded.

        `check`, a claim's say, raises where it is not to be written any more.
        """
        pack = hashlib.sha256(repr(list(seeds)).encode()).hexdigest()[:8]
        return Checkpoint(self.work("checkpoints") / f"{key(recipe)}-{pack}", check)

    def drop_checkpoints(self, recipe: dict[str, Any], held: Iterable[int] = ()) -> None:
        """Delete those of packs of any size whose seeds have records and that nobody is using.

        `held` are the seeds that the caller has claimed.
        """
        for checkpoint, seeds in self.begun(recipe):
            if not self.missing(recipe, seeds):
                with suppress(locks.Busy), self.claim(recipe, set(seeds) - set(held)):
                    checkpoint.clear()

    def begun(self, recipe: dict[str, Any]) -> Iterator[tuple[Checkpoint, list[int]]]:
        """The checkpoints of packs of any size that can be read, and their seeds."""
        for folder in sorted(self.work("checkpoints").glob(f"{key(recipe)}-*")):
            checkpoint = Checkpoint(folder)
            seeds = _seeds_of(checkpoint.state())
            if seeds is not None:
                yield checkpoint, seeds

    def _target(self, new: list[Record], name: str) -> tuple[Path, RecordFile, list[Record]]:
        recipe = new[0].recipe
        path = self._find(recipe)
        if path is None:
            path = self.root / f"{name}-{key(recipe)}.json"
            return path, RecordFile(recipe, {}, {}), new
        return path, recordfile.read(path), new

    def _find(self, recipe: dict[str, Any]) -> Path | None:
        found = self._files(f"*-{key(recipe)}.json")
        if len(found) > 1:
            raise _twice(found)
        return found[0] if found else None

    def _read(self, path: Path) -> RecordFile:
        try:
            stat = path.stat()
        except OSError:
            return recordfile.read(path)  # says what is wrong with it
        now = stat.st_ino, stat.st_mtime_ns, stat.st_size
        if path not in self._parsed or self._parsed[path][0] != now:
            self._parsed[path] = now, recordfile.read(path)
        return self._parsed[path][1]

    def _files(self, pattern: str = "*.json") -> list[Path]:
        return sorted(path for path in self.root.glob(pattern) if not path.name.startswith("."))

    def _lock(self) -> Path:
        return self.work() / "lock"

    def work(self, part: str = "") -> Path:
        """Folder for locks, claims and checkpoints, made when first needed; git does not see it."""
        self._refuse_published()
        folder = self.root / ".lohe" / part
        ignore = self.root / ".lohe" / ".gitignore"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if not ignore.exists():
                files.write(ignore, b"*\n")
        except OSError as reason:
            if reason.errno in files.NO_SPACE:  # which says what to do
                raise
            raise self._not_writable(reason.errno, reason.strerror) from reason
        if not os.access(folder, os.W_OK):
            raise self._not_writable(errno.EACCES, f"{folder} is read-only")
        return folder

    def _not_writable(self, number: int | None, why: str | None) -> OSError:
        return OSError(
            number,
            f"{self.root} cannot be written ({why}), and something is missing there. Make it "
            "writable, or copy it and give the copy as --store. What is recorded can be read.",
        )

    def _refuse_published(self) -> None:
        for folder in (self.root.resolve(), *self.root.resolve().parents):
            if (folder / PUBLISHED).exists():
                raise PermissionError(
                    f"Asked to write under {self.root}, but {folder} has a file {PUBLISHED}: it "
                    "holds numbers that others published, and our own runs stay apart from them. "
                    "Give the store another root, such as results/."
                )


def _twice(paths: list[Path]) -> Damaged:
    others = ", ".join(path.name for path in paths[1:])
    what = f"holds the same recipe as {others}"
    return Damaged(paths[0], what, "Merge them into one and move the rest away.")


def _by_recipe(records: Iterable[Record]) -> dict[str, list[Record]]:
    groups: dict[str, list[Record]] = {}
    for record in records:
        group = groups.setdefault(key(record.recipe), [])
        if any(other.seed == record.seed for other in group):
            raise ValueError(
                f"Two records for seed {record.seed} of recipe {key(record.recipe)} in one add(); "
                "which one counts? Pass one of them."
            )
        group.append(record)
    return groups


def _seeds_of(state: dict[str, Any] | None) -> list[int] | None:
    """The seeds of the pack that saved this state; None where it does not say."""
    try:
        return [outcome["seed"] for outcome in (state or {})["outcomes"]]
    except (KeyError, TypeError):
        return None


def _check_file_name(name: str) -> None:
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", name):
        raise ValueError(
            f"`name` begins a file name: letters, digits, and _ . - after the first; got {name!r}."
        )
