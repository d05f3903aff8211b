"""The keyword-spotting model: one word for a whole clip."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lohe.attention.projections import linear
from lohe.models.positions import Positions
from lohe.models.transformer import Encoder, Transformer
from lohe.tasks import Data


class ClassifierNet(nn.Module):
    """Linear, encoder, mean over frames, Linear. As published, no LayerNorm before the mean."""

    def __init__(self, into: nn.Module, encoder: Encoder, head: nn.Module):
        super().__init__()
        self.into, self.encoder, self.head = into, encoder, head

    def forward(
        self, features: Float[Tensor, "batch frames mels"]
    ) -> Float[Tensor, "batch classes"]:
        return self.head(self.encoder(self.into(features)).mean(dim=1))


@dataclass(frozen=True, kw_only=True)
class Classifier(Transformer):
    """Keyword spotting as in App. B: a vector for each frame in, logits of the classes out.

    >>> from lohe.models.mechanisms import Oscillator
    >>> Classifier(attention=Oscillator(), positions="learned").d_ff
    128
    """

    d_model: int = 32
    heads: int = 2
    layers: int = 1
    d_ff: int = 128
    positions: Positions = "none"

    def build(self, data: Data, generator: torch.Generator | None = None) -> ClassifierNet:
        """A model for clips, and classes, like those of the data."""
        frames, mels = self.shape(data, "features")
        return ClassifierNet(
            linear(mels, self.d_model, bias=True, generator=generator),
            self.encoder(frames, causal=False, generator=generator),
            linear(self.d_model, len(data.names), bias=True, generator=generator),
        )
