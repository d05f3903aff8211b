"""Speech Commands as files: a folder for each word, a one-second clip in each file."""

import hashlib
import re
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

SUFFIXES = (".wav", ".flac")
UNFINISHED = ".unfinished"  # beside the words while clips come in: a word may lack some
BUCKETS = 2**27 - 1  # the release's bound on clips of a word
STREAMED = 2_000_000_000  # bytes; written by programs that do not know the length yet


def folder_of(version: str) -> str:
    return f"speech_commands_v{version}"


def which_set(file: str, validation: float = 10.0, testing: float = 10.0) -> str:
    """The split of a clip, by the release's rule: a hash of the speaker, so none is in two splits.

    The two shares are in percent. A clip keeps its split however many others come or go.

    >>> which_set("026290a7_nohash_0.wav"), which_set("026290a7_nohash_4.wav")
    ('valid', 'valid')
    """
    speaker = re.sub(r"_nohash_.*$", "", Path(file).name)
    bucket = int(hashlib.sha1(speaker.encode()).hexdigest(), 16) % (BUCKETS + 1)
    share = bucket * (100.0 / BUCKETS)
    if share < validation:
        return "valid"
    return "test" if share < validation + testing else "train"


def clip_files(folder: Path) -> list[Path]:
    """The clips in the folder of a word, in the order of their names."""
    return sorted(p for p in folder.glob("[!.]*") if p.suffix in SUFFIXES)


def list_clips(folder: Path, word: str, source: str) -> list[Path]:
    """The clips of a word, of which there must be some; `source` is what `lohe data` calls them."""
    clips = clip_files(folder / word)
    if (mark := folder / UNFINISHED).exists():
        raise ValueError(
            f"{folder} is not complete: an import or a fetch stopped before its end. Run it again; "
            f"to use what is there all the same, delete {mark}."
        )
    if not clips:
        words = sorted(p.name for p in folder.iterdir() if p.is_dir()) if folder.is_dir() else []
        raise FileNotFoundError(
            f"{folder / word} has no clips of '{word}' (.wav or .flac); words there: "
            f"{', '.join(words) or 'none'}. Get them with `lohe data fetch {source}`, or from a "
            f"copy that you have with `lohe data import {source} PATH`, or ask for other words."
        )
    for one, other in pairwise(clips):  # in the order of names, so twins stand together
        if one.stem == other.stem:
            raise ValueError(
                f"{folder / word} has the same clip twice, {one.name} and {other.name}, and it "
                f"would count twice. Delete one of each such pair."
            )
    return clips


def read_clip(path: Path, rate: int, samples: int) -> Float[Tensor, " sample"]:
    """A mono clip at `rate`, cut or padded with zeros at the end to `samples`."""
    if path.stat().st_size == 0:
        raise ValueError(f"{path} is empty (0 bytes). Import or fetch it again, or delete it.")
    if (lacking := _lacking(path)) > 0:
        raise ValueError(
            f"{path} is cut short: {lacking:,} bytes fewer than its header says. Import or fetch "
            f"it again, or delete it."
        )
    audio, found = _decode(path)
    if found != rate:
        raise ValueError(
            f"{path} is sampled at {found} Hz, the front end needs {rate} Hz. Convert it (for "
            f"instance `sox IN -r {rate} OUT`), or use the clips of the release."
        )
    if audio.ndim != 1:
        raise ValueError(f"{path} has {audio.shape[1]} channels, one is needed. Mix it to mono.")
    if not len(audio):
        raise ValueError(f"{path} has no samples. Import or fetch it again, or delete it.")
    if not np.isfinite(audio).all():
        raise ValueError(
            f"{path} has samples that are no finite numbers (NaN or infinite). Import or fetch it "
            f"again, or delete it."
        )
    clip = torch.zeros(samples)
    kept = torch.from_numpy(audio[:samples])
    clip[: len(kept)] = kept
    return clip


def _lacking(path: Path) -> int:
    """Bytes that a WAV's header promises and the file lacks; decoders pass over it in silence."""
    with path.open("rb") as file:
        start = file.read(8)
    promised = 8 + int.from_bytes(start[4:], "little")
    if start[:4] != b"RIFF" or promised > STREAMED:
        return 0
    return promised - path.stat().st_size


def _decode(path: Path) -> tuple[np.ndarray, int]:
    try:
        import soundfile
    except ImportError:
        raise ImportError(
            'Reading audio needs the package soundfile: `pip install "lohe[audio]"`.'
        ) from None
    try:
        return soundfile.read(path, dtype="float32")
    except soundfile.LibsndfileError as error:
        raise ValueError(
            f"{path} is no audio that can be read ({error}). Import or fetch it again, "
            f"or delete it."
        ) from None
