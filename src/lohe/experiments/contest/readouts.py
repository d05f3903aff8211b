"""What the readout of each head has learned: its gain γ and its sharpness p, or its β."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lohe.experiments.measures import Bench, Taken
from lohe.models import attention_layers
from lohe.train import Run


@dataclass(frozen=True)
class LearnedReadout:
    """γ and p of every head of an oscillator model, learned or not; a row for each.

    Of an exponential readout, exp(β z·r), its β.
    """

    run: Run

    @torch.no_grad()
    def take(self, bench: Bench) -> Taken:
        layers: list[Any] = attention_layers(bench.model(self.run))
        curve = [
            {"layer": n, "head": head} | {name: x[head] for name, x in learned(layer).items()}
            for n, layer in enumerate(layers)
            for head in range(layer.heads)
        ]
        return Taken({"heads": len(curve)}, curve)


def learned(layer: Any) -> dict[str, list[float]]:
    """By name, a number for each head."""
    if hasattr(layer, "log_beta"):
        return {"beta": by_head(layer.log_beta.exp(), layer.heads)}
    return {name: by_head(getattr(layer, name), layer.heads) for name in ("gain", "sharpness")}


def by_head(value: float | Tensor | None, heads: int) -> list[float]:
    """A number for each head; None stands for 1."""
    if isinstance(value, Tensor):
        return [round(x, 6) for x in value.tolist()]
    return [1.0 if value is None else float(value)] * heads
