"""Keyword spotting on features that were computed elsewhere: bring your own front end.

ROOT/keyword-features/NAME/WORD.safetensors holds, for all clips of a word,

    features   (clips, frames, bins), uint8 or floating point
    split      (clips,), uint8: 0 train, 1 valid, 2 test
    scale      (2,), float64: a feature is stored * scale[0] + scale[1]
"""

import hashlib
from dataclasses import asdict, dataclass
from pathlib import Path

import safetensors.torch
from jaxtyping import Float
from torch import Tensor

from lohe.tasks import kws
from lohe.tasks.dataset import Data, Examples, Sums
from lohe.tasks.progress import Progress, silent
from lohe.tasks.root import data_root

FOLDER = "keyword-features"


@dataclass(frozen=True)
class KeywordFeatures:
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
        features, splits, sources = {}, {}, {}
        for k, word in enumerate(self.words):
            progress(f"reading {self.name}", k, len(self.words))
            path = folder / f"{word}.safetensors"
            if not path.is_file():
                raise FileNotFoundError(
                    f"{path} is missing: KeywordFeatures reads one file a word, with the tensors "
                    "features, split and scale (lohe.tasks.features says how). To use the official "
                    "recordings instead: `lohe data fetch speech-commands`."
                )
            sources[word] = hashlib.sha256(path.read_bytes()).hexdigest()
            stored = safetensors.torch.load_file(path)
            scale, offset = stored["scale"].tolist()
            features[word] = stored["features"].float() * scale + offset
            splits[word] = [kws.SPLITS[n] for n in stored["split"].tolist()]
        facts = {
            "task": asdict(self),
            "front_end": self.name,
            "data_version": self.name,
            "sources": sources,
        }
        return kws.assemble(features, splits, facts)

    def loss(self, outputs: Float[Tensor, "batch word"], targets: Examples) -> Float[Tensor, ""]:
        return kws.loss(outputs, targets)

    def tally(self, outputs: Float[Tensor, "batch word"], targets: Examples) -> Sums:
        return kws.tally(outputs, targets)

    def score(self, sums: Sums) -> dict[str, Float[Tensor, "*pack"]]:
        return kws.score(sums)
