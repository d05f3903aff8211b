"""Where a run stood: tensors in safetensors, the rest in JSON, both or neither, never pickle.

    step-7.safetensors    written first
    step-7.json           written last; names its tensors with size and sha256: now it exists

Whatever lacks its JSON does not exist, so a kill leaves the old checkpoint or the new one.
"""

import hashlib
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from lohe.experiments.store import exact, files
from lohe.experiments.store.files import Damaged
from lohe.version import code_version

SCHEMA = 1
KEPT = 2  # the newest, and one to fall back on should the disk damage it
REMEDY = "The one before it is used if there is one; otherwise the run starts over."


class Checkpoint:
    """The latest state of one run, in a folder of its own. One process writes at a time (`claim`).

    `state` is JSON, with NaN and infinities allowed; tensors come back on the CPU. `check` raises
    before anything is written where that is no longer ours to do.
    """

    def __init__(self, folder: str | Path, check: Callable[[], None] = lambda: None):
        self.folder, self.check = Path(folder), check
        self._foreign: set[int] = set()  # damaged, or of another version: left alone

    def __str__(self) -> str:
        return str(self.folder)

    def save(self, tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
        """Replace the checkpoint; if that fails, a full disk say, the old one is still there."""
        self.check()
        data = safetensors.torch.save({name: _owned(x) for name, x in tensors.items()})
        manifest = _manifest(data, state, [*self.earlier(), code_version()])
        self.folder.mkdir(parents=True, exist_ok=True)
        files.sweep(self.folder)
        step = 1 + max(self._steps("*"), default=0)
        try:
            files.write(self._tensors(step), data)
            files.write(self._manifest(step), manifest.encode())
        except BaseException:
            if not self._manifest(step).exists():
                self._tensors(step).unlink(missing_ok=True)
            raise
        self._keep(sorted(self._steps("json") - self._foreign)[-KEPT:])

    def load(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """The newest whole checkpoint; None if there is none. Damaged ones are warned about."""
        for step in sorted(self._steps("json"), reverse=True):
            try:
                return self._load(step)
            except Damaged as damage:
                warnings.warn(str(damage), stacklevel=2)
                self._foreign.add(step)
        return None

    def state(self) -> dict[str, Any] | None:
        """What the newest one says besides its tensors, which are not read; None if unreadable."""
        state = self._newest().get("state")
        return state if isinstance(state, dict) else None

    def earlier(self) -> list[str]:
        """The versions of lohe other than this one by which it was written so far."""
        newest = self._newest()
        written_by = newest.get("code", ["an older version"]) if newest else []
        return [code for code in written_by if code != code_version()]

    def _newest(self) -> dict[str, Any]:
        try:
            newest = exact.loads(self._manifest(max(self._steps("json"))).read_bytes())
        except (ValueError, OSError):
            return {}
        return newest if isinstance(newest, dict) else {}

    def clear(self) -> None:
        """Delete the checkpoint, once the run's record is safe."""
        if self.folder.is_dir():
            files.sweep(self.folder)
            self._keep([])
            if not any(self.folder.iterdir()):
                self.folder.rmdir()

    def _load(self, step: int) -> tuple[dict[str, Tensor], dict[str, Any]]:
        path = self._manifest(step)
        try:
            manifest = exact.loads(path.read_bytes())
            schema, size, digest = (manifest[name] for name in ("schema", "bytes", "sha256"))
            state = manifest["state"]
        except (ValueError, KeyError, TypeError) as reason:
            raise Damaged(path, f"not a checkpoint of ours ({reason!r})", REMEDY) from reason
        if schema != SCHEMA:
            what = f"a checkpoint of schema {schema}; this lohe reads {SCHEMA}"
            raise Damaged(path, what, REMEDY)
        return safetensors.torch.load(self._verified(step, size, digest)), state

    def _verified(self, step: int, size: int, digest: str) -> bytes:
        path = self._tensors(step)
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            raise Damaged(self._manifest(step), f"its {path.name} is missing", REMEDY) from None
        if len(data) != size:
            raise Damaged(path, f"{len(data)} bytes instead of {size}", REMEDY)
        if hashlib.sha256(data).hexdigest() != digest:
            raise Damaged(path, "its sha256 is not the one it was written with", REMEDY)
        return data

    def _keep(self, steps: list[int]) -> None:
        # manifests go first: tensors without one are nothing, a manifest without tensors is damage
        for suffix in ("json", "safetensors"):
            for step in self._steps(suffix) - {*steps, *self._foreign}:
                (self.folder / f"step-{step}.{suffix}").unlink(missing_ok=True)

    def _steps(self, suffix: str) -> set[int]:
        names = (path.name for path in self.folder.glob(f"step-*.{suffix}"))
        found = (re.fullmatch(r"step-(\d+)\.(json|safetensors)", name) for name in names)
        return {int(match[1]) for match in found if match}

    def _tensors(self, step: int) -> Path:
        return self.folder / f"step-{step}.safetensors"

    def _manifest(self, step: int) -> Path:
        return self.folder / f"step-{step}.json"


def _owned(tensor: Tensor) -> Tensor:
    """A contiguous copy on the CPU that shares no memory, which is what safetensors stores."""
    return tensor.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)


def _manifest(data: bytes, state: dict[str, Any], code: list[str]) -> str:
    digest = hashlib.sha256(data).hexdigest()
    manifest = {"lohe": "checkpoint", "schema": SCHEMA, "bytes": len(data), "sha256": digest}
    return exact.dumps(manifest | {"code": code, "state": state}, "checkpoint") + "\n"
