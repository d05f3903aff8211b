"""The drive h of every oscillator of a trained model: where each study of settling begins."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from lohe import ops
from lohe.attention import OscillatorAttention
from lohe.experiments.measures import Bench
from lohe.experiments.setting import Setting
from lohe.experiments.studies.lm import perplexity
from lohe.experiments.studies.robust.observed import real_tokens
from lohe.experiments.studies.robust.physics import Physics, on
from lohe.train import Run


@dataclass(frozen=True)
class Cohort:
    """Language models that differ in d_osc only, one of each: the first seed, as published."""

    corpus: str
    reading: str  # as published: anchors that leave the sphere; as defined: on it

    def name(self, setting: Setting) -> str:
        return perplexity.name(setting, self.corpus)

    @property
    def elsewhere(self) -> str:
        """Behind a number of the paper, which has TinyStories only."""
        return "" if self.corpus == "tinystories" else " (TinyStories)"

    def run(self, setting: Setting, d_osc: int) -> Run:
        return perplexity.run(setting, self.corpus, perplexity.oscillator(self.reading, d_osc))


AS_PUBLISHED, AS_DEFINED = Cohort("wikitext2", "as published"), Cohort("wikitext2", "as defined")
COHORTS = (AS_PUBLISHED, AS_DEFINED, Cohort("tinystories", "as published"))


@dataclass(frozen=True, eq=False)
class Drives:
    """h of each layer, first layer first, in float64; `valid` where the token is no padding."""

    layers: list[Float[Tensor, "examples heads tokens d_osc"]]
    valid: Bool[Tensor, "examples heads tokens"]

    def oscillators(self, layer: int) -> Float[Tensor, "oscillators d_osc"]:
        """The drives of one layer, one oscillator for each token and head."""
        return self.layers[layer][self.valid]


def drives(bench: Bench, run: Run, examples: int) -> Drives:
    """Those of the run's model on the first validation examples."""
    part = bench.data(run).valid.take(slice(examples)).to(bench.device)
    layers = [h.double() for h in drives_of(bench.model(run), **part.inputs)]
    return Drives(layers, real_tokens(part)[:, None, :].expand(layers[0].shape[:-1]))


@torch.no_grad()
def drives_of(model: nn.Module, **inputs: Tensor) -> list[Tensor]:
    """h of each layer for these inputs, where every layer settles at the closed form."""
    found: list[Tensor] = []

    def look(layer: OscillatorAttention, rng: torch.Generator) -> None:
        def settle(h: Tensor) -> Tensor:
            found.append(h)
            return ops.fixed_point(h)

        layer.settle = settle

    with on(model, Physics("a look", 0.0, look), torch.Generator()):
        model(**inputs)
    return found
