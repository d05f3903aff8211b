"""Keyword spotting on features that were computed elsewhere: bring your own front end.

ROOT/keyword-features/NAME/WORD.safetensors holds, for all clips of a word,

    features   (clips, frames, bins), uint8 or floating point
    split      (clips,), uint8: 0 train, 1 valid, 2 test
    scale      (2,), float64: a feature is stored * scale[0] + scale[1]

and may say in its metadata, as `data_version`, of which recordings they are.
"""

import hashlib
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import safetensors
import safetensors.torch
from jaxtyping import Float
from torch import Tensor

from lohe.tasks import kws
from lohe.tasks.dataset import Data
from lohe.tasks.progress import Progress, silent
from lohe.tasks.root import data_root

FOLDER = "keyword-features"
UNTOLD = "not told by the stored features"


@dataclass(frozen=True)
class KeywordFeatures(kws.WhichWord):
    """Keyword spotting on stored features; `name` says how they were made, and records keep it."""

    words: tuple[str, ...]
    name: str

    def __post_init__(self) -> None:
        if not self.words or len(set(self.words)) < len(self.words):
            raise ValueError(
                f"KeywordFeatures needs words that differ, got {self.words!r}. Each word is a "
                "class; name it once."
            )

    def load(self, root: Path | None = None, progress: Progress = silent) -> Data:
        folder = data_root(root) / FOLDER / self.name
        features, splits, sources, versions = {}, {}, {}, set[str]()
        for k, word in enumerate(self.words):
            progress(f"reading {self.name}", k, len(self.words))
            path = folder / f"{word}.safetensors"
            if not path.is_file():
                raise FileNotFoundError(
                    f"{path} is missing: KeywordFeatures reads one file a word, with the tensors "
                    "features, split and scale (lohe.tasks.features says how). To use the official "
                    "recordings instead: `lohe data fetch speech-commands`, then --corpus paper."
                )
            sources[word] = hashlib.sha256(path.read_bytes()).hexdigest()
            features[word], splits[word] = _read(path)
            versions.add(_version(path))
        shapes = {word: tuple(x.shape[1:]) for word, x in features.items()}
        if len(set(shapes.values())) > 1:
            raise ValueError(
                f"{folder} holds clips of several shapes (frames, bins): {shapes}. One front end "
                "gives one shape; write all words with the same one."
            )
        facts = {
            "task": asdict(self),
            "front_end": self.name,
            "data_version": self.name,  # as in all records so far, whose checksum names it
            "sources": sources,
        }
        data = kws.assemble(features, splits, facts)
        return replace(data, facts=data.facts | {"data_version": ", ".join(sorted(versions))})


def _version(path: Path) -> str:
    with safetensors.safe_open(path, framework="pt") as file:
        return (file.metadata() or {}).get("data_version", UNTOLD)


def _read(path: Path) -> tuple[Float[Tensor, "clip frame bin"], list[str]]:
    """Features and the split of each clip; ValueError says what is wrong with the file."""
    try:
        stored = safetensors.torch.load_file(path)
    except safetensors.SafetensorError as error:
        raise ValueError(f"{path} cannot be read as safetensors: {error}.") from None
    if missing := [name for name in ("features", "split", "scale") if name not in stored]:
        raise ValueError(
            f"{path} has no {' and no '.join(missing)}, only {', '.join(sorted(stored))}: "
            "lohe.tasks.features says what such a file holds."
        )
    values, split, scale = stored["features"], stored["split"], stored["scale"]
    if values.ndim != 3 or split.shape != values.shape[:1] or scale.shape != (2,):
        raise ValueError(
            f"{path}: features (clips, frames, bins), split (clips,) and scale (2,) are expected, "
            f"got {tuple(values.shape)}, {tuple(split.shape)} and {tuple(scale.shape)}."
        )
    if not set(split.tolist()) <= set(range(len(kws.SPLITS))):
        raise ValueError(f"{path}: split is 0 train, 1 valid or 2 test, got {set(split.tolist())}.")
    factor, offset = scale.tolist()
    features = values.float() * factor + offset
    if not features.isfinite().all():
        raise ValueError(
            f"{path}: features or scale that are no finite numbers (NaN or infinite). Write them "
            "again without."
        )
    return features, [kws.SPLITS[n] for n in split.tolist()]
