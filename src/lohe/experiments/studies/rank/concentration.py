"""How much of a trained row one key gets, beside the most that Eq. 5 lets any key have."""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lohe.attention import OscillatorAttention
from lohe.attention.controls import ExponentialAttention
from lohe.experiments.measures import Bench, Taken
from lohe.experiments.studies.rank.cohort import batches, is_word
from lohe.experiments.studies.rank.effective_rank import similarities
from lohe.models import attention_layers, attention_weights
from lohe.theory import largest_weight
from lohe.train import Run


@dataclass(frozen=True)
class Concentration:
    """The largest weight of a row and `theory.largest_weight`, its bound, as multiples of 1/n.

    Of the last row of every whole chunk, which sees all n words: means over chunks, layers and
    heads, and of weight over bound; the curve has those of each head. Oscillators that are read
    out by Eq. 5 get a bound, other models none. At p = 1 on the sphere the share is (1 + the
    largest cosine)/2: where d_osc is small an anchor is always near, trained or not.
    """

    run: Run
    chunks: int = 128

    @torch.no_grad()
    def take(self, bench: Bench) -> Taken:
        model = bench.model(self.run).double()
        found: dict[str, list[Tensor]] = {}
        keys = 0
        for part in batches(bench.data(self.run).valid, self.chunks, bench.device):
            tokens = part.inputs["tokens"]
            tokens = tokens[is_word(tokens).all(dim=-1)]
            keys = tokens.shape[-1]
            for name, x in last_rows(model, tokens).items():
                found.setdefault(name, []).append(x)
        rows = sum(map(len, found["weight"]))
        if not rows:
            raise ValueError(
                f"None of the first {self.chunks} chunks is without padding: give more."
            )
        by_head = {name: torch.cat(parts).mean(dim=0) for name, parts in found.items()}
        result = {"rows": rows, "keys": keys}
        layers, heads = by_head["weight"].shape
        curve: list[dict[str, Any]] = [
            {"layer": layer, "head": head}
            | {name: round(x[layer, head].item(), 4) for name, x in by_head.items()}
            for layer in range(layers)
            for head in range(heads)
        ]
        return Taken(result | {name: x.mean().item() for name, x in by_head.items()}, curve)


def last_rows(
    model: nn.Module, tokens: Int[Tensor, "chunks tokens"]
) -> dict[str, Float[Tensor, "chunks layers heads"]]:
    """n times the largest weight of each last row, n times its bound, and their ratio."""
    keys = tokens.shape[-1]
    attention = torch.stack(attention_weights(model, tokens=tokens), dim=1)
    weight = keys * attention[..., -1, :].amax(dim=-1)
    layers = [x for x in attention_layers(model) if isinstance(x, OscillatorAttention)]
    if not layers or isinstance(layers[0], ExponentialAttention):
        return {"weight": weight}
    rows = zip(layers, similarities(model, tokens), strict=True)
    bound = keys * torch.stack([most(layer, s[..., -1, :]) for layer, s in rows], dim=1)
    return {"weight": weight, "bound": bound, "share": weight / bound}


def most(
    layer: OscillatorAttention, similarity: Float[Tensor, "chunks heads j"]
) -> Float[Tensor, "chunks heads"]:
    """The bound of rows S = 1 + γ z·r, by how far each leans to the mean of its anchors."""
    keys = similarity.shape[-1]
    gain = 1.0 if layer.gain is None else layer.gain
    lean = (similarity - 1).mean(dim=-1) / gain
    lengths = layer.anchors[:, :keys].norm(dim=-1)
    radius = 1.0 if layer.unit_anchors else lengths.amax(dim=-1)
    return largest_weight(keys, layer.sharpness, gain, lean, radius)
