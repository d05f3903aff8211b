"""What arrived: each source's folder keeps the sha256 of its files, as they were first recorded.

`manifest.json` maps a file (or, for clips, the folder of a word) to its checksum and its origin.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

from lohe.tasks.atomic import write_text
from lohe.tasks.clips import clip_files
from lohe.tasks.progress import Progress, adding, silent
from lohe.tasks.textfile import text_sha256

NAME = "manifest.json"


def read(folder: Path) -> dict[str, dict[str, Any]]:
    path = folder / NAME
    if not path.is_file():
        return {}
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(entries, dict):
            raise ValueError("no names in it")
        for name, entry in entries.items():
            if not isinstance(entry, dict) or not {"sha256", "origin"} <= entry.keys():
                raise ValueError(f"{name} has no sha256 and origin")
        return entries
    except ValueError as error:
        raise ValueError(
            f"{path} is not what lohe writes ({error}). Delete it, then `lohe data verify "
            f"--record` writes a new one from the files beside it."
        ) from None


def record(folder: Path, items: list[Path], origin: str, progress: Progress = silent) -> None:
    """Keeps the checksums of `items`, which lie in `folder`, as what arrived from `origin`."""
    add = adding(progress)
    sizes = {i: sum(f.stat().st_size for f in clip_files(i)) for i in items if i.is_dir()}
    for item in items:
        note(folder, item.name.removesuffix(".xz"), sha256(item, progress), origin)
        if item in sizes:
            add(f"checking {folder.name}", sizes[item], sum(sizes.values()))


def note(folder: Path, name: str, sha256: str, origin: str) -> None:
    """Keeps one checksum."""
    entries = read(folder) | {name: {"sha256": sha256, "origin": origin}}
    write_text(folder / NAME, json.dumps(entries, indent=1, sort_keys=True) + "\n")


def check(item: Path, found: str) -> None:
    """Raises if `item` was recorded with another checksum than the one `found` now."""
    entry = read(item.parent).get(item.name.removesuffix(".xz"))
    if entry is not None and entry["sha256"] != found:
        raise ValueError(
            f"{item} has the wrong checksum: sha256 {found}, but {entry['sha256']} was recorded "
            f"when it came from {entry['origin']}. Import or fetch it again; if you changed it "
            f"on purpose, `lohe data verify --record` accepts it as it is now."
        )


def sha256(item: Path, progress: Progress = silent) -> str:
    """Checksum of a text (uncompressed: .xz makes no difference) or of a folder of clips."""
    return folder_sha256(clip_files(item)) if item.is_dir() else text_sha256(item, progress)


def folder_sha256(files: list[Path]) -> str:
    """sha256 of the names and contents of `files`, in the order given."""
    digest = hashlib.sha256()
    for file in files:
        content = hashlib.sha256(file.read_bytes()).hexdigest()
        digest.update(f"{content}  {file.name}\n".encode())
    return digest.hexdigest()
