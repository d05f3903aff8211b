"""Small stand-ins for the corpora that need a download, so that every path can be exercised.

Nothing about language or speech is to be learned from them: `--scale smoke` and tests train on
these where the paper has WikiText-2, TinyStories and Speech Commands.
"""

import math
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

import torch
from jaxtyping import Float, Int16
from torch import Tensor

from lohe.tasks import kws, language, sva
from lohe.tasks.dataset import Data, Split, at_least, checksum, one_of
from lohe.tasks.language import BOS, EOS, PAD
from lohe.tasks.logmel import LogMel
from lohe.tasks.progress import Progress, silent
from lohe.tasks.wikitext2 import cut, encode

SEEDS = {"train": 0, "valid": 1, "test": 2}


@dataclass(frozen=True)
class GeneratedText(language.NextWord):
    """Sentences of the agreement task as a corpus: a stream like WikiText-2's, or short stories.

    `examples` training chunks of `tokens` words, and half as many to validate and to test on.
    """

    tokens: int = 48
    layout: Literal["stream", "stories"] = "stream"
    examples: int = 64

    def __post_init__(self) -> None:
        one_of("GeneratedText", "layout", self.layout, ("stream", "stories"))
        at_least("GeneratedText", "tokens", self.tokens, 8)
        at_least("GeneratedText", "examples", self.examples, 2)

    def load(self, root: Path | None = None, progress: Progress = silent) -> Data:
        """`root` is not used: the sentences are generated."""
        words = {split: self._words(split) for split in SEEDS}
        names = language.vocabulary(Counter(words["train"]), len(sva.WORDS))
        streams = {split: encode(drawn, names) for split, drawn in words.items()}
        stream = self.layout == "stream"
        splits = cut(streams, self.tokens, "published") if stream else self._stories(streams)
        facts = {"task": asdict(self), "chunks": {name: len(s) for name, s in splits.items()}}
        return Data(splits, names, checksum(splits), facts)

    def _words(self, split: str) -> list[str]:
        chunks = self.examples if split == "train" else self.examples // 2
        needed = chunks * self.tokens
        # the shortest sentence has four words
        sentences = sva.generate(SEEDS[split], -(-needed // 4))
        return [word for sentence in sentences for word in sentence.words][:needed]

    def _stories(self, streams: dict[str, Int16[Tensor, " word"]]) -> dict[str, Split]:
        """One chunk a story, each a word shorter than the one before it, padded at the end."""
        splits = {}
        for name, stream in streams.items():
            rows = stream.view(-1, self.tokens).clone()
            rows[:, 0] = BOS
            length = self.tokens - torch.arange(len(rows)) % (self.tokens // 2)
            column = torch.arange(self.tokens)
            rows[column == length[:, None] - 1] = EOS
            rows[column >= length[:, None]] = PAD
            splits[name] = language.next_token(rows)
        return splits


@dataclass(frozen=True)
class GeneratedClips(kws.WhichWord):
    """Keyword spotting on whistles: word k is a tone that rises by an octave from 300 (k + 1) Hz.

    In noise, and each clip starts up to 10 % higher: all of it below 6.6 kHz.
    """

    words: tuple[str, ...] = kws.KEYWORDS
    examples: int = 12  # of each word: two thirds to train on, the rest to validate and to test
    front_end: LogMel = field(default_factory=LogMel)

    def load(self, root: Path | None = None, progress: Progress = silent) -> Data:
        """`root` is not used: the clips are generated."""
        rng = torch.Generator().manual_seed(0)
        features = {word: self.front_end(self._clips(k, rng)) for k, word in enumerate(self.words)}
        sixth = max(1, self.examples // 6)
        member = ["valid"] * sixth + ["test"] * sixth
        member = ["train"] * (self.examples - len(member)) + member
        facts = {"task": asdict(self), "front_end": self.front_end.name, "data_version": "none"}
        return kws.assemble(features, dict.fromkeys(self.words, member), facts)

    def _clips(self, k: int, rng: torch.Generator) -> Float[Tensor, "clip sample"]:
        seconds = torch.arange(self.front_end.samples) / self.front_end.rate
        start = 300 * (k + 1) * (1 + 0.1 * torch.rand(self.examples, 1, generator=rng))
        tone = torch.sin(2 * math.pi * start * (seconds + seconds**2 / 2))
        return 0.3 * tone + 0.05 * torch.randn(tone.shape, generator=rng)
