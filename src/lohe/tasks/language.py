"""What the two language-model tasks share: vocabulary, next-token targets, perplexity."""

from collections import Counter
from itertools import islice

import torch
from jaxtyping import Float, Int16
from torch import Tensor

from lohe.tasks.cross_entropy import cross_entropy
from lohe.tasks.dataset import Examples, Split, Sums

SPECIALS = ("<pad>", "<bos>", "<eos>", "<unk>")
PAD, BOS, EOS, UNK = range(4)


def vocabulary(counts: Counter[str], words: int) -> tuple[str, ...]:
    """The specials, then the most frequent words; of equally frequent ones the earlier seen.

    A special that is written out in the text is no word: WikiText-2's tokens release has `<unk>`.
    """
    ranked = (word for word, _ in counts.most_common() if word not in SPECIALS)
    return SPECIALS + tuple(islice(ranked, words))


def check_vocabulary(task: str, words: int) -> None:
    """Ids, the specials' too, are kept as 16-bit integers."""
    most = 2**15 - len(SPECIALS)
    if not 1 <= words <= most:
        raise ValueError(f"{task} needs vocab from 1 to {most} (ids have 16 bits), got {words}.")


def word_ids(names: tuple[str, ...]) -> dict[str, int]:
    """Id of each word of a vocabulary; the specials cannot be spelled."""
    return {word: k for k, word in enumerate(names) if k >= len(SPECIALS)}


def next_token(chunks: Int16[Tensor, "chunk token"]) -> Split:
    """Each token but the last is an input, and the token after it its target (both are views)."""
    return Split({"tokens": chunks[:, :-1]}, {"next": chunks[:, 1:]})


class NextWord:
    """Loss and metric of every language task: the word that follows."""

    def loss(
        self, outputs: Float[Tensor, "batch token word"], targets: Examples
    ) -> Float[Tensor, ""]:
        """Cross-entropy, the mean over the targets of the batch that are no padding."""
        return cross_entropy(outputs.flatten(0, 1), targets["next"].flatten(), PAD)

    def tally(self, outputs: Float[Tensor, "batch token word"], targets: Examples) -> Sums:
        """Negative log-likelihood (nats) of all targets that are no padding, and their number."""
        following = targets["next"].flatten()
        nll = cross_entropy(outputs.flatten(0, 1).float(), following, PAD, reduction="sum")
        return {"nll": nll, "targets": (following != PAD).sum()}

    def score(self, sums: Sums) -> dict[str, Float[Tensor, "*pack"]]:
        """Perplexity = exp(NLL / targets); `nats` is the NLL of a target."""
        nats = sums["nll"].double() / sums["targets"].double()
        return {"perplexity": torch.exp(nats), "nats": nats}
