"""What of each corpus is there, and whether it is still what arrived."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from lohe.tasks import manifest
from lohe.tasks.progress import Progress, silent
from lohe.tasks.root import data_root
from lohe.tasks.sources import SOURCES, Source, find_source


@dataclass(frozen=True)
class Corpus:
    """A line of `lohe data list`."""

    source: Source
    state: Literal["complete", "incomplete", "absent"]
    missing: tuple[str, ...]


@dataclass(frozen=True)
class Check:
    """What became of one file, or of one word's clips; "new" is neither pinned nor recorded.

    `official` is the release's checksum where the file has another one.
    """

    item: str
    state: Literal["ok", "changed", "new", "missing"]
    found: str | None = None
    expected: str | None = None
    official: str | None = None


def list_corpora(root: Path | None = None) -> list[Corpus]:
    return [_corpus(source, data_root(root)) for source in SOURCES.values()]


def verify_corpus(
    source: Source | str,
    root: Path | None = None,
    *,
    record: bool = False,
    progress: Progress = silent,
) -> list[Check]:
    """Checksums of all that is there, against the pinned and the recorded ones.

    `record` accepts what is there now as what it should be, and later checks compare with that.
    """
    source = find_source(source) if isinstance(source, str) else source
    root = data_root(root)
    items = source.items(root)
    checks = []
    for k, item in enumerate(items):
        progress(f"verifying {source.name}", k, len(items))
        checks.append(_check(source, item))
    progress(f"verifying {source.name}", len(items), len(items))
    if record:
        manifest.record(root / source.folder, items, origin="accepted as it was")
        checks = [replace(c, state="ok", expected=c.found) for c in checks]
    missing = source.missing(root) if source.needs_all or not items else []
    return checks + [Check(name, "missing") for name in missing]


def _check(source: Source, item: Path) -> Check:
    name = item.name.removesuffix(".xz")
    recorded = manifest.read(item.parent).get(name, {}).get("sha256")
    expected, official = recorded or source.pinned.get(name), source.official.get(name)
    try:
        found = manifest.sha256(item)
    except ValueError:
        return Check(name, "changed", "none, it cannot be decompressed", expected or "any")
    official = None if found == official else official
    if expected is None:
        return Check(name, "new", found, official=official)
    return Check(name, "ok" if found == expected else "changed", found, expected, official)


def unofficial(source: Source | str, root: Path | None = None) -> list[Check]:
    """Texts that came with another checksum than the release's, by what was recorded of them."""
    source = find_source(source) if isinstance(source, str) else source
    recorded = manifest.read(data_root(root) / source.folder)
    found = {name: recorded[name]["sha256"] for name in source.official if name in recorded}
    return [
        Check(name, "ok", sha256, sha256, source.official[name])
        for name, sha256 in found.items()
        if sha256 != source.official[name]
    ]


def _corpus(source: Source, root: Path) -> Corpus:
    missing = tuple(source.missing(root))
    if not source.items(root):
        return Corpus(source, "absent", missing)
    return Corpus(source, "incomplete" if missing else "complete", missing)
