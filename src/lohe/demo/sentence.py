"""What the verb attends to in one hard sentence, at rest and on the way there."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lohe.experiments import robustness
from lohe.models import attention_weights
from lohe.tasks import Data
from lohe.tasks.sva import CATEGORIES

STARTS = 200  # the picture is their mean
HORIZONS = (0.5, 2.0)


@dataclass(frozen=True)
class Verb:
    """Attention of the verb to each word, by both mechanisms and at each horizon."""

    words: list[str]
    place: int
    softmax: Float[Tensor, " words"]
    rest: Float[Tensor, " words"]
    early: dict[float, Float[Tensor, " words"]]  # by horizon

    @property
    def text(self) -> str:
        return " ".join(word for word in self.words if not word.startswith("<"))


def verb(softmax: nn.Module, oscillator: nn.Module, data: Data) -> Verb:
    """The first hard sentence of the validation split in which the verb agrees."""
    targets = data.valid.targets
    chosen = (targets["category"] == CATEGORIES.index("hard")) & (targets["label"] == 1)
    index = chosen.nonzero()[0].expand(STARTS)
    inputs = data.valid.take(index).inputs
    place = int(inputs["position"][0])

    @torch.no_grad()
    def attention(model: nn.Module) -> Tensor:
        (layer,) = attention_weights(model, **inputs)
        return layer[:, 0, place].mean(dim=0)

    early = {}
    for horizon in HORIZONS:
        rng = torch.Generator().manual_seed(0)
        with robustness.on(oscillator, robustness.settling(horizon), rng):
            early[horizon] = attention(oscillator)
    words = [data.names[int(word)] for word in inputs["tokens"][0]]
    return Verb(words, place, attention(softmax), attention(oscillator), early)
