"""The three models on toy data: small, padded where the real ones are."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch import nn

from lohe.models import Agreement, Classifier, LanguageModel, Mechanism
from lohe.tasks import Data, Split

SHAPE = {"d_model": 8, "heads": 2, "layers": 2, "d_ff": 12}
SENTENCES, TOKENS, WORDS = 6, 9, 11


@dataclass
class Toy:
    """A kind of model, and data for it."""

    kind: type[Agreement] | type[Classifier] | type[LanguageModel]
    data: Data

    def build(self, attention: Mechanism, seed: int = 0, **options) -> nn.Module:
        config = self.kind(attention=attention, **SHAPE | options)
        return config.build(self.data, torch.Generator().manual_seed(seed))

    @property
    def inputs(self) -> dict[str, torch.Tensor]:
        return self.data.train.take(slice(None)).inputs


def data(inputs: dict[str, torch.Tensor], names: int) -> Data:
    return Data({"train": Split(inputs, {})}, tuple(map(str, range(names))), "toy")


@pytest.fixture
def classifier(rng) -> Toy:
    features = torch.randn(SENTENCES, TOKENS, 5, generator=rng)
    return Toy(Classifier, data({"features": features}, 3))


@pytest.fixture
def tokens(rng) -> torch.Tensor:
    """Sentences of 6 to 9 words, padded on the right."""
    tokens = torch.randint(1, WORDS, (SENTENCES, TOKENS), generator=rng, dtype=torch.int16)
    length = torch.tensor([9, 6, 7, 9, 6, 8])
    return tokens * (torch.arange(TOKENS) < length[:, None])


@pytest.fixture
def agreement(tokens) -> Toy:
    position = (tokens != 0).sum(1).sub(3).to(torch.int16)
    inputs = {"tokens": tokens, "key_mask": tokens != 0, "position": position}
    return Toy(Agreement, data(inputs, WORDS))


@pytest.fixture
def language_model(tokens) -> Toy:
    return Toy(LanguageModel, data({"tokens": tokens}, WORDS))


@pytest.fixture(params=["classifier", "agreement", "language_model"])
def toy(request) -> Toy:
    return request.getfixturevalue(request.param)


@pytest.fixture
def double() -> Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]]:
    """Inputs with their floating-point tensors in float64."""
    return lambda x: {n: t.double() if t.is_floating_point() else t for n, t in x.items()}
