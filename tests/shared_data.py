"""Reads the compact corpora of a folder `shared/data` as if they were the official releases.

Outside of the package, for tests and for training runs on machines that have that folder. It is
looked for at $LOHE_DATA, in the repository and beside it. Nothing of it is committed.

    root = export(Path("somewhere"))                # official layout of the two text corpora
    data = WikiText2(release="tokens").load(root)
    export_features(root, TEN)                      # all clips of words, through another front end
    data = KeywordFeatures(TEN, STORED).load(root)
    export_audio(root, "yes", limit=20)             # clips of which there is audio, as .wav files
"""

import csv
import io
import lzma
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import safetensors.torch
import torch

from lohe.experiments.setting import STORED, TEN
from lohe.tasks import features, kws
from lohe.tasks.clips import folder_of

REPOSITORY = Path(__file__).resolve().parents[1]

MARK = Path("wikitext2", "wiki.train.tokens.xz")  # no official release has it there
WORDS = TEN  # those of which there is audio
SPLITS = {"train": "train", "validation": "valid", "test": "test"}
SCALE = (24.5 / 255, -14.0)  # a stored byte is the natural log of a mel band: n * 24.5 / 255 - 14


def find() -> Path:
    """The folder `shared/data`; FileNotFoundError says where it was looked for."""
    candidates = [REPOSITORY / "shared" / "data", REPOSITORY.parent / "shared" / "data"]
    if named := os.environ.get("LOHE_DATA"):
        candidates.insert(0, Path(named))
    for folder in candidates:
        if (folder / MARK).is_file():
            return folder
    raise FileNotFoundError(
        f"no shared data: looked for {MARK} in {', '.join(str(c) for c in candidates)}; $LOHE_DATA "
        "may name another folder"
    )


def export(root: Path) -> Path:
    """WikiText-2 (tokens release) and TinyStories under `root`, laid out as lohe expects them."""
    shared = find()
    wikitext, stories = root / "wikitext-2", root / "tinystories"
    wikitext.mkdir(parents=True, exist_ok=True)
    stories.mkdir(parents=True, exist_ok=True)
    for split in ("train", "valid", "test"):
        name = f"wiki.{split}.tokens.xz"
        shutil.copyfile(shared / "wikitext2" / name, wikitext / name)
    parts = {"train": ("train", "train_lower"), "valid": ("valid",)}
    for split, names in parts.items():
        with (stories / f"TinyStories-{split}.txt").open("wb") as text:
            for name in names:
                with lzma.open(shared / "tinystories" / f"{name}.txt.xz") as part:
                    shutil.copyfileobj(part, text)
    return root


def export_audio(
    root: Path, word: str, limit: int | None = None, rows: Iterable[dict[str, str]] | None = None
) -> list[dict[str, str]]:
    """Clips of a word as .wav files in the official layout; their rows of the index."""
    import soundfile

    sound, rate = soundfile.read(
        find() / "speech_commands" / "audio" / f"{word}.flac", dtype="int16"
    )
    with_audio = [r for r in rows or index() if r["word"] == word and r["audio_start"] != "-1"]
    folder = root / folder_of("0.02") / word
    folder.mkdir(parents=True, exist_ok=True)
    for row in with_audio[:limit]:
        start, samples = int(row["audio_start"]), int(row["samples"])
        soundfile.write(folder / f"{row['file']}.wav", sound[start : start + samples], rate)
    return with_audio[:limit]


def export_features(root: Path, words: Iterable[str]) -> Path:
    """Stored arrays of all clips of the words, as KeywordFeatures(words, STORED) reads them."""
    words = tuple(words)
    split_of: dict[str, dict[int, int]] = {word: {} for word in words}
    for row in index():
        if row["word"] in split_of:
            split_of[row["word"]][int(row["row"])] = kws.SPLITS.index(SPLITS[row["split"]])
    folder = root / features.FOLDER / STORED
    folder.mkdir(parents=True, exist_ok=True)
    for word, split in split_of.items():
        tensors = {
            "features": torch.from_numpy(_stored(word)),
            "split": torch.tensor([split[n] for n in range(len(split))], dtype=torch.uint8),
            "scale": torch.tensor(SCALE, dtype=torch.float64),
        }
        safetensors.torch.save_file(tensors, folder / f"{word}.safetensors")
    return root


def index() -> list[dict[str, str]]:
    """A row for each clip, in the order of the arrays."""
    with lzma.open(find() / "speech_commands" / "index.tsv.xz", "rt", encoding="utf-8") as text:
        return list(csv.DictReader(text, delimiter="\t"))


def log_mel(word: str) -> torch.Tensor:
    """Stored natural-log mel values of a word's clips, (clip, 49, 40), right to 0.048."""
    scale, offset = SCALE
    return torch.from_numpy(_stored(word)).float() * scale + offset


def _stored(word: str) -> np.ndarray:
    """uint8, (clip, 49, 40)."""
    with lzma.open(find() / "speech_commands" / "logmel" / f"{word}.npy.xz") as file:
        return np.load(io.BytesIO(file.read()))
