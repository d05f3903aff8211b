"""How flat the rows of trained attention are: the measurement behind Figure 9's left panel."""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from lohe.experiments.measures import Bench, Taken
from lohe.experiments.studies.rank.cohort import batches, is_word
from lohe.measure.entropy import causal_entropy
from lohe.models import attention_weights
from lohe.train import Run

BINS = 100
QUANTILES = {"p5": 0.05, "q1": 0.25, "median": 0.5, "q3": 0.75, "p95": 0.95}


@dataclass(frozen=True)
class AttentionEntropy:
    """Entropy of the rows of a trained model's attention, 1 where it is uniform.

    Rows i >= 1 of every word of every chunk, layer and head. The result has their number, mean and
    quantiles; the curve a histogram of BINS equal bins from 0 to 1, and the median of each head.
    """

    run: Run
    chunks: int = 128

    @torch.no_grad()
    def take(self, bench: Bench) -> Taken:
        model = bench.model(self.run).double()
        found, words = [], []
        for part in batches(bench.data(self.run).valid, self.chunks, bench.device):
            tokens = part.inputs["tokens"]
            layers = torch.stack(attention_weights(model, tokens=tokens), dim=2)
            found.append(causal_entropy(layers).cpu())
            words.append(is_word(tokens)[:, 1:].cpu())
        return summary(torch.cat(found), torch.cat(words))


def summary(
    entropy: Float[Tensor, "chunks heads layers rows"], words: Bool[Tensor, "chunks rows"]
) -> Taken:
    """Mean, quantiles and histogram of the rows that are words."""
    rows = entropy.movedim(0, 2)[..., words]  # (heads, layers, rows)
    values = rows.flatten()
    at = torch.tensor(list(QUANTILES.values()), dtype=values.dtype)
    quantiles = dict(zip(QUANTILES, torch.quantile(values, at).tolist(), strict=True))
    bins = (values * BINS).long().clamp(0, BINS - 1)
    heads: list[dict[str, Any]] = [
        {"layer": layer, "head": head, "median": round(one.median().item(), 4)}
        for layer, of_layer in enumerate(rows.unbind(dim=1))
        for head, one in enumerate(of_layer)
    ]
    histogram = torch.bincount(bins, minlength=BINS).tolist()
    result = {"rows": values.numel(), "mean": values.mean().item()} | quantiles
    return Taken(result, [{"histogram": histogram}, *heads])
