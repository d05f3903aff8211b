"""What the oscillators of a trained model are asked, and what they do: layer by layer."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor, nn

from lohe.attention import OscillatorAttention
from lohe.experiments.studies.robust.physics import Physics, on
from lohe.tasks import Split
from lohe.tasks.language import PAD


@dataclass
class Seen:
    """One layer of one call: w_ij, r_j as used (on the sphere, or free), h_i and z_i."""

    couplings: Float[Tensor, "batch heads i j"]
    anchors: Float[Tensor, "heads j d_osc"]
    drive: Float[Tensor, "batch heads i d_osc"]
    oscillators: Float[Tensor, "batch heads i d_osc"]


@torch.no_grad()
def observe(
    model: nn.Module, **inputs: Shaped[Tensor, "..."]
) -> tuple[Float[Tensor, "..."], list[Seen]]:
    """The model's output for these inputs, and what was seen in each layer, first layer first."""
    seen: list[Seen] = []
    look = Physics("a look", 0.0, lambda layer, rng: _watch(layer, seen))
    with on(model, look, torch.Generator()):
        return model(**inputs), seen


def _watch(layer: OscillatorAttention, seen: list[Seen]) -> None:
    ideal_drive, ideal_settle = layer.drive, layer.settle
    asked: list[tuple[Tensor, Tensor]] = []

    def drive(couplings: Tensor, anchors: Tensor) -> Tensor:
        asked.append((couplings, anchors))
        return ideal_drive(couplings, anchors)

    def settle(h: Tensor) -> Tensor:
        couplings, anchors = asked.pop()
        z = ideal_settle(h)
        seen.append(Seen(couplings, anchors, h, z))
        return z

    layer.drive, layer.settle = drive, settle


def real_tokens(split: Split) -> Bool[Tensor, "example token"]:
    """Which tokens are no padding."""
    if "key_mask" in split.inputs:
        return split.inputs["key_mask"]
    if "tokens" in split.inputs:
        return split.inputs["tokens"] != PAD
    features = next(iter(split.inputs.values()))
    return torch.ones(features.shape[:2], dtype=torch.bool, device=features.device)
