"""WikiText-2 for a contest: chosen on some articles, judged on others, test only where it counts.

Epochs, and configurations, are chosen on the first half of the validation articles. The second half
is scored and decides nothing. The test articles are not even cut into chunks unless the task says
`test=True`: a run that is chosen among others cannot have seen them.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import torch
from jaxtyping import Bool, Float, Int16
from torch import Tensor
from torch.nn import functional as F

from lohe.tasks import language
from lohe.tasks.dataset import Data, Examples, Split, Sums, checksum
from lohe.tasks.language import PAD
from lohe.tasks.progress import Progress, silent
from lohe.tasks.root import data_root
from lohe.tasks.wikitext2 import Protocol, WikiText2, chunks, tokenize

TITLE = re.compile(r"\s*= [^=](.*[^=])? =\s*")


@dataclass(frozen=True)
class WikiText2Articles(WikiText2):
    """WikiText-2 by articles; a model is scored by the protocol that it trains on.

    Splits: `train`, `valid` (the first half of the validation articles), `later` (the second half),
    and with `test` also `test`, with the likelihood of each article.

    >>> WikiText2Articles(release="tokens")
    WikiText2Articles(tokens=48, vocab=9996, release='tokens', protocol='strict', test=False)
    """

    protocol: Protocol = "strict"
    test: bool = False

    def load(self, root: Path | None = None, progress: Progress = silent) -> Data:
        lines, names, streams, facts = self._read(data_root(root))
        starts = article_starts(lines["valid"])
        middle = starts[len(starts) // 2]
        splits = {
            "train": self._split(streams["train"]),
            "valid": self._split(streams["valid"][:middle]),
            "later": self._split(streams["valid"][middle:]),
        }
        facts["articles"] = {"valid": len(starts)}
        if self.test:
            starts = article_starts(lines["test"])
            facts["articles"]["test"] = len(starts)
            test = self._split(streams["test"])
            members = self._members(starts, len(streams["test"]))
            splits["test"] = Split(test.inputs, test.targets | {"article": members})
        facts["chunks"] = {name: len(split) for name, split in splits.items()}
        return Data(splits, names, checksum(splits), facts)

    def _split(self, stream: Int16[Tensor, " word"]) -> Split:
        return language.next_token(chunks(stream, self.tokens, self.protocol))

    def _members(self, starts: Sequence[int], words: int) -> Bool[Tensor, "chunk token article"]:
        """Whether a target belongs to an article; an inserted EOS belongs with the word before."""
        numbers = torch.cat(
            [
                torch.full((end - start,), n, dtype=torch.int16)
                for n, (start, end) in enumerate(pairwise([*starts, words]))
            ]
        )
        rows = chunks(numbers, self.tokens, self.protocol)[:, 1:]
        if self.protocol == "published":
            rows = torch.cat([rows[:, :-1], rows[:, -2:-1]], dim=1)
        return rows[..., None] == torch.arange(len(starts))

    def tally(self, outputs: Float[Tensor, "batch token word"], targets: Examples) -> Sums:
        """As of any language task; where articles are known, for each of them too."""
        sums = super().tally(outputs, targets)
        if "article" in targets:
            words, member = targets["next"], targets["article"].float()
            nll = F.cross_entropy(
                outputs.float().flatten(0, 1), words.flatten(), ignore_index=PAD, reduction="none"
            )
            scored = (words != PAD).float().flatten()
            sums["article_nll"] = nll @ member.flatten(0, 1)
            sums["article_targets"] = scored @ member.flatten(0, 1)
        return sums

    def score(self, sums: Sums) -> dict[str, Float[Tensor, "..."]]:
        """Perplexity and nats of a target; where known, sums over each article's targets."""
        by_article = {k: v.double() for k, v in sums.items() if k.startswith("article_")}
        return super().score(sums) | by_article


def article_starts(lines: Sequence[str]) -> list[int]:
    """The word, counted from 0, with which each article begins.

    A title is a line `= Title =` between two that are blank: formulas that were broken into lines
    may look like one, but stand in a paragraph. Whatever precedes the first is part of it.

    >>> article_starts(["", " = A = ", "", " one two ", "", " = B = ", "", " three "])
    [0, 5]
    """
    starts, words = [], 0
    for n, line in enumerate(lines):
        around = [lines[k].strip() for k in (n - 1, n + 1) if 0 <= k < len(lines)]
        if TITLE.fullmatch(line) and not any(around):
            starts.append(words)
        words += sum(1 for _ in tokenize([line]))
    if len(starts) < 2:
        raise ValueError(
            f"WikiText-2 by articles needs two at least, each under a line ` = Title = ` between "
            f"blank lines; found {len(starts)}. Import or fetch the corpus again."
        )
    return [0, *starts[1:]]
