"""Softmax attention with fewer directions than it was trained with (Appendix E)."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from lohe.attention.projections import merge_heads, split_heads
from lohe.experiments.evidence import Evidence
from lohe.experiments.measures import Bench, Taken
from lohe.experiments.setting import Setting
from lohe.experiments.studies.lm.perplexity import reported, run
from lohe.experiments.studies.rank import cohort
from lohe.experiments.studies.rank.cohort import batches, on_cores
from lohe.measure.rank import truncate
from lohe.models import Softmax, attention_layers
from lohe.ops import reference
from lohe.tasks import Split, Task, total
from lohe.train import Run

Attention = Float[Tensor, "batch heads i j"]


@dataclass(frozen=True)
class Truncation:
    """Perplexity of a trained model whose every attention matrix is cut to a rank.

    The nearest matrix of that rank, negative entries clamped to 0, rows normalised. Two versions:

    as_published   that is all: words to come get weight, so this is no language model (D16)
    causal         the causal mask is applied again before normalising, which raises the rank; the
                   nearest matrix still depends on the rows of words to come

    and `whole`, the model as it was trained. Matrices are those of whole chunks, padding included,
    as published; a row that loses all its weight becomes uniform. `chunks` None is the whole
    split that perplexities are reported of.
    """

    run: Run
    rank: int
    chunks: int | None = None

    def take(self, bench: Bench) -> Taken:
        task, result = self.run.task, {}
        model, split = bench.model(self.run), bench.data(self.run).splits[reported(task)]
        for name, change in self.versions().items():
            with reweighted(model, change):
                result[name] = perplexity(model, task, split, self.chunks, bench.device)
        result["whole"] = perplexity(model, task, split, self.chunks, bench.device)
        result["chunks"] = len(split) if self.chunks is None else min(self.chunks, len(split))
        return Taken(result)

    def versions(self) -> dict[str, Callable[[Attention], Attention]]:
        """What becomes of attention weights in each version."""
        return {
            "as_published": partial(cut, rank=self.rank, causal=False),
            "causal": partial(cut, rank=self.rank, causal=True),
        }


def cut(weights: Attention, rank: int, causal: bool) -> Attention:
    """Attention of lower rank: clamped and normalised, and masked as before or not at all."""
    lower = on_cores(partial(truncate, rank=rank), weights).to(weights.device)
    return reference.attention(lower, allowed=past(weights) if causal else None)


def past(weights: Attention) -> Bool[Tensor, "i j"]:
    """True where query i may look: j <= i."""
    return torch.ones(weights.shape[-2:], dtype=torch.bool, device=weights.device).tril()


@contextmanager
def reweighted(model: nn.Module, change: Callable[[Attention], Attention]) -> Iterator[nn.Module]:
    """The model with `change(weights)` for the weights of every attention layer; then as before."""

    def attend(layer: Any, args: Any, options: dict[str, Any], output: Tensor) -> Tensor:
        (x,) = args
        weights = change(layer.forward(x, **options | {"need_weights": True})[1])
        values = split_heads(layer.to_v(x), layer.heads)
        return layer.to_out(merge_heads(reference.output(weights, values)))

    hooks = [
        layer.register_forward_hook(attend, with_kwargs=True) for layer in attention_layers(model)
    ]
    try:
        yield model
    finally:
        for hook in hooks:
            hook.remove()


@torch.no_grad()
def perplexity(
    model: nn.Module, task: Task, split: Split, chunks: int | None, device: torch.device
) -> float:
    """Perplexity on the first chunks of a split."""
    parts = batches(split, chunks, device, size=128)
    sums = total(task.tally(model(**part.inputs), part.targets) for part in parts)
    return task.score(sums)["perplexity"].item()


def of(setting: Setting, corpus: str, rank: int) -> Truncation:
    """The measurement on the softmax model of seed 0, over the whole validation split."""
    chunks = cohort.chunks(setting) if setting.scale == "smoke" else None
    return Truncation(run(setting, corpus, Softmax()), rank, chunks)


def found(evidence: Evidence, corpus: str, rank: int) -> dict[str, float]:
    """What was measured; empty where nothing was yet."""
    record = evidence.measured(of(evidence.setting, corpus, rank))
    return record.result if record else {}
