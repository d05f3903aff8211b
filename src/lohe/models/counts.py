"""How many numbers a model learns, and where they are."""

from collections.abc import Iterable
from dataclasses import dataclass

from torch import nn

from lohe.models.embedding import Embedding
from lohe.models.language_model import LanguageNet
from lohe.models.positions import PositionTable
from lohe.models.transformer import attention_layers


@dataclass(frozen=True)
class ParameterCounts:
    """Numbers that training changes; what is frozen at its start is not among them.

    `non_embedding` leaves out whatever grows with the vocabulary or is added to the tokens once:
    the embedding, the linear map to words of a language model (with its bias) and a learned table
    of positions before the first block. `attention` is in the attention layers of the blocks alone:
    projections, anchors, gains, and position tables of a layer's own.
    """

    total: int
    non_embedding: int
    attention: int


def parameter_counts(model: nn.Module) -> ParameterCounts:
    """Count the parameters of a model of `lohe.models`.

    >>> import torch
    >>> from lohe.models import LanguageModel, Softmax
    >>> from lohe.tasks import Data, Split
    >>> chunks = Split({"tokens": torch.zeros(1, 49, dtype=torch.int16)}, {})
    >>> data = Data({"train": chunks}, names=("word",) * 10_000, checksum="")
    >>> parameter_counts(LanguageModel(attention=Softmax()).build(data))
    ParameterCounts(total=2966032, non_embedding=396032, attention=131328)
    """
    tables: list[nn.Module] = [
        m for m in model.modules() if isinstance(m, Embedding | PositionTable)
    ]
    if isinstance(model, LanguageNet):
        tables.append(model.head)
    total = _learned([model])
    return ParameterCounts(total, total - _learned(tables), _learned(attention_layers(model)))


def _learned(modules: Iterable[nn.Module]) -> int:
    return sum(p.numel() for m in modules for p in m.parameters() if p.requires_grad)
