"""What the verb attends to in hard sentences, and in one of them on the way to rest."""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lohe.experiments.studies.robust import physics
from lohe.models import attention_weights
from lohe.tasks import Data, Split
from lohe.tasks.sva import CATEGORIES

STARTS = 200  # the picture is their mean
HORIZONS = (0.5, 2.0)
ROLES = ("<BOS>", "the", "subject", "preposition", "the", "distractor", "verb", ".", "<EOS>")
VERB = ROLES.index("verb")


@dataclass(frozen=True)
class Sentence:
    """One hard sentence: attention of its verb at each horizon, and at rest."""

    words: list[str]
    rest: Float[Tensor, " words"]
    early: dict[float, Float[Tensor, " words"]]  # by horizon

    @property
    def text(self) -> str:
        spoken = " ".join(word for word in self.words if not word.startswith("<"))
        return spoken.replace(" .", ".")


def mean_attention(models: Iterable[nn.Module], data: Data) -> Float[Tensor, " words"]:
    """Attention of the verb, mean over all hard validation sentences and over models."""
    part = data.valid.take(_hard(data))
    return torch.stack([_attention(model, part) for model in models]).mean(dim=0)


def settling(oscillator: nn.Module, data: Data) -> Sentence:
    """The first hard sentence of the validation split in which the verb agrees."""
    index = _hard(data)
    agreeing = index[data.valid.targets["label"][index] == 1]
    part = data.valid.take(agreeing[:1].expand(STARTS))
    early = {}
    for horizon in HORIZONS:
        rng = torch.Generator().manual_seed(0)
        with physics.on(oscillator, physics.settling(horizon), rng):
            early[horizon] = _attention(oscillator, part)
    words = [data.names[int(word)] for word in part.inputs["tokens"][0]]
    return Sentence(words, _attention(oscillator, part), early)


def _hard(data: Data) -> Tensor:
    return (data.valid.targets["category"] == CATEGORIES.index("hard")).nonzero()[:, 0]


@torch.no_grad()
def _attention(model: nn.Module, part: Split) -> Tensor:
    (weights,) = attention_weights(model, **part.inputs)
    return weights[:, 0, VERB].mean(dim=0)
