"""Tones as clips, for tests that need files but no speech."""

import wave
from itertools import islice
from pathlib import Path

import numpy as np

from lohe.tasks.clips import which_set

WORDS = ("yes", "no")


def speakers(split: str, count: int) -> list[str]:
    """The first names of speakers that the release's rule puts into a split."""
    names = (f"{k:08x}" for k in range(10_000))
    found = (name for name in names if which_set(f"{name}_nohash_0.wav") == split)
    return list(islice(found, count))


def tone(hertz: float, samples: int = 16_000) -> np.ndarray:
    phase = 2 * np.pi * hertz * np.arange(samples) / 16_000
    return np.round(8_000 * np.sin(phase)).astype("<i2")


def write_wav(path: Path, samples: np.ndarray, rate: int = 16_000, channels: int = 1) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(samples.tobytes())


def write_words(root: Path) -> None:
    """Three tones for each word and split, in the official layout."""
    for k, word in enumerate(WORDS):
        for split in ("train", "valid", "test"):
            for n, speaker in enumerate(speakers(split, 3)):
                path = root / "speech_commands_v0.02" / word / f"{speaker}_nohash_0.wav"
                write_wav(path, tone(300 + 400 * k + 50 * n))
