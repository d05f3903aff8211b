"""Longer than trained: perplexity in windows whose positions no model has seen.

Two ways to have positions for them. *spread*: those that were trained span the longer window,
anchors interpolated on the sphere, all other positions between their neighbours
(`models.stretched`). *continued*: positions go on beyond the trained ones, which a model can whose
parameters do not depend on the length, and no oscillator can.
"""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Int16
from torch import Tensor, nn

from lohe.experiments.measures import Bench, Taken
from lohe.experiments.studies.robust.physics import scores
from lohe.models import stretched
from lohe.tasks import Data, Split
from lohe.tasks.language import PAD, next_token
from lohe.tasks.wikitext2 import overlapping_windows
from lohe.train import Run

WORDS = (49, 64, 98, 128, 196, 256)  # of a window; the first is what the models are trained on
AT_ONCE = 12_000  # words, for the memory of their logits


@dataclass(frozen=True)
class BeyondLength:
    """Perplexity on the second half of validation in windows of so many words, strict.

    Every word but the first is scored once, in whatever windows: the same words at each length.
    The curve has a row for each length and way to have positions.
    """

    run: Run
    words: tuple[int, ...] = WORDS

    @torch.no_grad()
    def take(self, bench: Bench) -> Taken:
        protocol = getattr(self.run.task, "protocol", None)
        if protocol != "strict":
            raise ValueError(
                f"Windows of other lengths are cut by the strict protocol, and the model was "
                f"trained by {protocol!r}: give a run with protocol='strict'."
            )
        data, model = bench.data(self.run), bench.model(self.run)
        later = data.splits["later"]
        stream, trained = joined(later), later.inputs["tokens"].shape[1]
        longer = continued(model, self.run, data, max(self.words) - 1)
        curve = []
        for words in self.words:
            split = next_token(overlapping_windows(stream, words - 1)).to(bench.device)
            ways = {"spread": stretched(model, words - 1, trained=trained), "continued": longer}
            for way, one in ways.items():
                if one is not None:
                    found = scores(one, self.run.task, split, max(1, AT_ONCE // words))
                    curve.append({"words": words, "positions": way, **found})
        return Taken({"targets": len(stream) - 1}, curve)


def joined(split: Split) -> Int16[Tensor, " word"]:
    """The stream that was cut into windows by the strict protocol: its inverse."""
    tokens, following = split.inputs["tokens"], split.targets["next"]
    stream = torch.cat([tokens[0, :1], following.flatten()])
    return stream[stream != PAD]


def continued(model: nn.Module, run: Run, data: Data, inputs: int) -> nn.Module | None:
    """The model with positions for so many inputs; None where it has learned a number for each."""
    longer = replace(run.model, max_tokens=inputs + 1).build(data, torch.Generator())
    trained = model.state_dict()
    if any(x.shape != trained[name].shape for name, x in longer.state_dict().items()):
        return None
    longer.load_state_dict(trained)
    return longer.to(next(model.parameters()).device).eval()
