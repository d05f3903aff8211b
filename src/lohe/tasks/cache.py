"""Tensors that are slow to make, kept as safetensors beside the JSON that says what they are of.

An entry is used only while the files it was made from look untouched (name, size, time of change);
anything else about it, damage included, means that it is made again.
"""

import hashlib
import json
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from jaxtyping import Shaped
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from lohe.tasks.atomic import replacing, write_text

Tensors = dict[str, Shaped[Tensor, "..."]]
Entry = tuple[Tensors, dict[str, Any]]


def cached(path: Path, key: str, make: Callable[[], Entry]) -> Entry:
    """The tensors and facts stored at `path` under `key`, made (and stored) where they are not."""
    entry = _read(path, key)
    if entry is None:
        tensors, facts = make()
        _write(path, key, tensors, facts)
        entry = tensors, facts
    return entry


def fingerprint(recipe: object, files: Iterable[Path]) -> str:
    """A key that changes with the recipe (its repr must be stable) and with any of the files."""
    digest = hashlib.sha256(repr(recipe).encode())
    for file in files:
        status = file.stat()
        digest.update(f"{file.name} {status.st_size} {status.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def _read(path: Path, key: str) -> Entry | None:
    tensors, note = path.with_suffix(".safetensors"), path.with_suffix(".json")
    try:
        stored = json.loads(note.read_text(encoding="utf-8"))
        if stored["key"] != key:
            return None
        with safe_open(tensors, framework="pt") as file:
            # the two files are replaced one after the other: a writer in between leaves a mixed
            # pair. Older entries do not tell their key
            if (file.metadata() or {}).get("key") != key:
                return None
            found = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        return found, stored["facts"]
    except (OSError, ValueError, KeyError, TypeError, SafetensorError):
        return None


def _write(path: Path, key: str, tensors: Tensors, facts: dict[str, Any]) -> None:
    note = {"key": key, "facts": facts}
    try:
        with replacing(path.with_suffix(".safetensors")) as temporary:
            save_file(tensors, temporary, {"key": key})
        write_text(path.with_suffix(".json"), json.dumps(note) + "\n")
    except OSError as error:
        warnings.warn(
            f"Could not keep {path.with_suffix('.safetensors')} ({error}): what it holds will be "
            f"made again next time. Set $LOHE_DATA to a folder that can be written to.",
            stacklevel=3,
        )
