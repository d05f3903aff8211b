"""The subject-verb agreement model: one logit, read at the verb."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from lohe.attention.projections import linear
from lohe.models.embedding import Embedding
from lohe.models.transformer import Encoder, Transformer
from lohe.ops.norm import LayerNorm
from lohe.tasks import Data


class AgreementNet(nn.Module):
    """Embedding, encoder, and at one position of each sentence LayerNorm and Linear."""

    def __init__(self, embedding: Embedding, encoder: Encoder, norm: nn.Module, head: nn.Module):
        super().__init__()
        self.embedding, self.encoder, self.norm, self.head = embedding, encoder, norm, head

    def forward(
        self,
        tokens: Int[Tensor, "batch tokens"],
        key_mask: Bool[Tensor, "batch tokens"],
        position: Int[Tensor, " batch"],
    ) -> Float[Tensor, " batch"]:
        """Logits; positive means that the verb, at `position`, agrees with its subject."""
        x = self.encoder(self.embedding(tokens), key_mask)
        where = position[:, None, None].expand(-1, 1, x.shape[-1])
        at_verb = x.gather(1, where)[:, 0]  # norm and head act on each token by itself
        return self.head(self.norm(at_verb))[:, 0]


@dataclass(frozen=True, kw_only=True)
class Agreement(Transformer):
    """Subject-verb agreement as in App. B; the defaults are the minimum-hardware configuration.

    As published there are positions, and anchors, for 50 tokens, of which the sentences use 9.
    """

    d_model: int = 32
    heads: int = 1
    layers: int = 1
    d_ff: int = 64
    max_tokens: int = 50

    def build(self, data: Data, generator: torch.Generator | None = None) -> AgreementNet:
        """A model for the vocabulary of the data."""
        (tokens,) = self.shape(data, "tokens")
        self.check_length(tokens, self.max_tokens)
        return AgreementNet(
            Embedding(len(data.names), self.d_model, generator),
            self.encoder(self.max_tokens, causal=False, generator=generator),
            LayerNorm(self.d_model),
            linear(self.d_model, 1, bias=True, generator=generator),
        )
