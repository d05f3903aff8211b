"""What the readout of each head has learned: its gain γ and its sharpness p."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lohe.experiments.measures import Bench, Taken
from lohe.models import attention_layers
from lohe.train import Run


@dataclass(frozen=True)
class LearnedReadout:
    """γ and p of every head of an oscillator model, learned or not; a row for each."""

    run: Run

    @torch.no_grad()
    def take(self, bench: Bench) -> Taken:
        curve: list[dict[str, Any]] = []
        layers: list[Any] = attention_layers(bench.model(self.run))
        for n, layer in enumerate(layers):
            gains, powers = (by_head(x, layer.heads) for x in (layer.gain, layer.sharpness))
            curve += [
                {"layer": n, "head": head, "gain": gain, "sharpness": p}
                for head, (gain, p) in enumerate(zip(gains, powers, strict=True))
            ]
        return Taken({"heads": len(curve)}, curve)


def by_head(value: float | Tensor | None, heads: int) -> list[float]:
    """A number for each head; None stands for 1."""
    if isinstance(value, Tensor):
        return [round(x, 6) for x in value.tolist()]
    return [1.0 if value is None else float(value)] * heads
