"""Keyword spotting (Sec. 4.1): which word is said in a one-second clip of Speech Commands."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from lohe.tasks import manifest
from lohe.tasks.cache import Entry, cached, fingerprint
from lohe.tasks.clips import folder_of, list_clips, read_clip, which_set
from lohe.tasks.dataset import Data, Examples, Split, Sums, broken, one_of, percent
from lohe.tasks.logmel import VERSION, LogMel
from lohe.tasks.progress import Progress, silent
from lohe.tasks.root import data_root

KEYWORDS = ("yes", "no", "up", "down", "left", "right", "on", "off", "stop", "go")
SOURCES = {"0.02": "speech-commands", "0.01": "speech-commands-0.01"}  # as `lohe data` calls them
SPLITS = ("train", "valid", "test")
BATCH = 256  # clips through the front end at once: 16 MB of audio


class WhichWord:
    """Loss and metric of every keyword task: which of the words was said."""

    def loss(self, outputs: Float[Tensor, "batch word"], targets: Examples) -> Float[Tensor, ""]:
        """Cross-entropy of the word."""
        return F.cross_entropy(outputs, targets["label"])

    def tally(self, outputs: Float[Tensor, "batch word"], targets: Examples) -> Sums:
        """Right answers, clips, and outputs that are no numbers."""
        right = outputs.argmax(-1) == targets["label"]
        count = torch.ones_like(right).sum()
        return {"correct": right.sum(), "count": count, "broken": broken(outputs)}

    def score(self, sums: Sums) -> dict[str, Float[Tensor, "*pack"]]:
        """Accuracy in percent."""
        return {"accuracy": percent(sums["correct"], sums["count"], sums["broken"])}


@dataclass(frozen=True)
class KeywordSpotting(WhichWord):
    """Keyword spotting as in App. B: the label of a clip is the place of its word in `words`.

    Audio is decoded once: the features of each word are kept in the cache, so another list of
    words, or another task on the same words, starts at once.
    """

    words: tuple[str, ...] = KEYWORDS
    version: Literal["0.01", "0.02"] = "0.02"
    front_end: LogMel = field(default_factory=LogMel)

    def __post_init__(self) -> None:
        one_of("KeywordSpotting", "version", self.version, tuple(SOURCES))
        if not self.words or len(set(self.words)) < len(self.words):
            raise ValueError(
                f"KeywordSpotting needs words that differ, got {self.words!r}. Each word is a "
                f"class; name it once."
            )

    def load(self, root: Path | None = None, progress: Progress = silent) -> Data:
        root = data_root(root)
        folder, source = root / folder_of(self.version), SOURCES[self.version]
        clips = {word: list_clips(folder, word, source) for word in self.words}
        front_end = fingerprint(self.front_end, [])[:12]
        features, sources = {}, {}
        for word, files in clips.items():
            entry = root / "cache" / folder_of(self.version) / f"{word}-{front_end}"
            key = fingerprint((self.front_end, VERSION), files)
            tensors, facts = cached(entry, key, lambda f=files: self._features(f, progress))
            manifest.check(folder / word, facts["sha256"])
            features[word], sources[word] = tensors["features"], facts["sha256"]
        splits = {word: [which_set(f.name) for f in files] for word, files in clips.items()}
        facts = {
            "task": asdict(self),
            "front_end": self.front_end.name,
            "data_version": folder_of(self.version),
            "sources": sources,
        }
        return assemble(features, splits, facts)

    def _features(self, files: list[Path], progress: Progress) -> Entry:
        rate, samples = self.front_end.rate, self.front_end.samples
        features = []
        for start in range(0, len(files), BATCH):
            progress(f"decoding {files[0].parent.name}", start, len(files))
            batch = [read_clip(file, rate, samples) for file in files[start : start + BATCH]]
            features.append(self.front_end(torch.stack(batch)))
        progress(f"decoding {files[0].parent.name}", len(files), len(files))
        return {"features": torch.cat(features)}, {"sha256": manifest.folder_sha256(files)}


def assemble(
    features: Mapping[str, Float[Tensor, "_ frame mel"]],
    splits: Mapping[str, list[str]],
    facts: dict[str, Any],
) -> Data:
    """Data from the features of each word's clips and the split of each clip.

    Each mel bin is brought to mean 0 and deviation 1 over all frames of the training clips. The
    checksum names sources and front end, not the features: their last bits differ by machine.
    """
    words = tuple(features)
    rows = torch.cat([features[word] for word in words])
    label = torch.cat(
        [torch.full((len(features[w]),), k, dtype=torch.int16) for k, w in enumerate(words)]
    )
    member = [split for word in words for split in splits[word]]
    where = {name: _places(member, name) for name in SPLITS}
    if empty := [name for name, index in where.items() if not len(index)]:
        raise ValueError(
            f"No clip of {', '.join(words)} falls into the split {' or '.join(empty)}. The split "
            f"follows from the speaker in a file's name (0a7c2a8d_nohash_0.wav): keep the names "
            f"of the release, and import all of it."
        )
    mean, deviation = frame_statistics(rows[where["train"]])
    made = {
        name: Split({"features": (rows[index] - mean) / deviation}, {"label": label[index]})
        for name, index in where.items()
    }
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
    counts = {name: len(split) for name, split in made.items()}
    normalised = {"mean": mean.tolist(), "deviation": deviation.tolist()}
    return Data(made, words, digest, facts | {"clips": counts, "normalised": normalised})


def frame_statistics(
    features: Float[Tensor, "clip frame mel"],
) -> tuple[Float[Tensor, " mel"], Float[Tensor, " mel"]]:
    """Mean and (unbiased) standard deviation of each mel bin over all frames, at least 1e-5."""
    frames = features.flatten(0, 1).double()
    return frames.mean(0).float(), frames.std(0).clamp(min=1e-5).float()


def _places(member: list[str], split: str) -> Int[Tensor, " clip"]:
    return torch.tensor([k for k, name in enumerate(member) if name == split], dtype=torch.long)
