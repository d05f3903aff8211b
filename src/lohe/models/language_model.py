"""The language model: the next word, from the words so far."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lohe.attention.projections import linear
from lohe.models.embedding import Embedding
from lohe.models.transformer import Encoder, Transformer
from lohe.ops.norm import LayerNorm
from lohe.tasks import Data


class LanguageNet(nn.Module):
    """Embedding, causal encoder, LayerNorm, and a Linear that shares nothing with the embedding."""

    def __init__(self, embedding: Embedding, encoder: Encoder, norm: nn.Module, head: nn.Module):
        super().__init__()
        self.embedding, self.encoder, self.norm, self.head = embedding, encoder, norm, head

    def forward(self, tokens: Int[Tensor, "batch tokens"]) -> Float[Tensor, "batch tokens words"]:
        """Logits of the token that follows each one.

        No key mask is needed: padding comes last, where a causal model does not look.
        """
        return self.head(self.norm(self.encoder(self.embedding(tokens))))


@dataclass(frozen=True, kw_only=True)
class LanguageModel(Transformer):
    """Language modelling as in App. B, WikiText-2 and TinyStories alike.

    `max_tokens` None takes the length of the task's chunks, 50 and 128. Inputs are one token
    shorter, so as published the last anchor is never trained.
    """

    d_model: int = 128
    heads: int = 4
    layers: int = 2
    d_ff: int = 512
    max_tokens: int | None = None

    def build(self, data: Data, generator: torch.Generator | None = None) -> LanguageNet:
        """A model for the vocabulary of the data."""
        (tokens,) = self.shape(data, "tokens")
        max_tokens = tokens + 1 if self.max_tokens is None else self.max_tokens
        self.check_length(tokens, max_tokens)
        return LanguageNet(
            Embedding(len(data.names), self.d_model, generator),
            self.encoder(max_tokens, causal=True, generator=generator),
            LayerNorm(self.d_model),
            linear(self.d_model, len(data.names), bias=True, generator=generator),
        )
