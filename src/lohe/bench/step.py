"""What does a whole training step of a language model take, with either attention?"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch.nn import functional as F
from torch.nn.attention import sdpa_kernel

from lohe.attention import OscillatorAttention
from lohe.bench import attention
from lohe.bench.contest import SDPA, Attend, Contestant, Setup, rivals
from lohe.bench.rows import Case, Row
from lohe.models import LanguageModel, Mechanism, Oscillator, Softmax, attention_layers
from lohe.tasks import Data, language


@dataclass(frozen=True)
class Size:
    """Of the language model; the vocabulary is small, so that the last layer weighs little."""

    layers: int = 12
    heads: int = 12
    d_model: int = 768
    vocabulary: int = 8192


class Training:
    """One step of AdamW on random words, in the dtype of the setup by autocast."""

    def __init__(self, setup: Setup, case: Case, size: Size, mechanism: Mechanism):
        self.setup = setup
        rng = torch.Generator().manual_seed(setup.generator.initial_seed())
        shape = case.batch, case.tokens + 1
        words = torch.randint(size.vocabulary, shape, generator=rng, dtype=torch.int16)
        split = language.next_token(words)
        data = Data({"train": split}, tuple(map(str, range(size.vocabulary))), "random")
        model = LanguageModel(
            attention=mechanism,
            d_model=size.d_model,
            heads=size.heads,
            layers=size.layers,
            d_ff=4 * size.d_model,
            dropout=0.0,
        )
        self.model = model.build(data, rng).to(setup.device)
        for layer in attention_layers(self.model):
            if isinstance(layer, OscillatorAttention):
                layer.backend = setup.backend
        batch = split.take(slice(None)).to(setup.device)
        self.words, self.next = batch.inputs["tokens"], batch.targets["next"]
        fused = setup.device.type == "cuda"
        self.optimizer = torch.optim.AdamW(self.model.parameters(), fused=fused)

    def step(self) -> None:
        dtype, device = self.setup.dtype, self.setup.device.type
        with torch.autocast(device, dtype, enabled=dtype != torch.float32):
            logits = self.model(self.words)
        loss = F.cross_entropy(logits.flatten(0, 1).float(), self.next.flatten())
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def step_with(self, kernel: str) -> None:
        with sdpa_kernel(SDPA[kernel]):
            self.step()


def compare(
    setup: Setup, case: Case, mechanisms: dict[str, Oscillator], size: Size | None = None
) -> Iterator[Row]:
    """Forward, backward and update, of the same model with ours and with softmax attention."""
    size = size or Size(heads=case.heads, d_model=case.heads * case.d_h)
    x = attention.projections(setup, case)
    entries: list[Contestant] = []
    for name, mechanism in mechanisms.items():
        inputs = x | attention.parameters(setup, case, mechanism)
        check = partial(attention.check, setup, case, mechanism, inputs)
        errors = setup.admit(case, name, check)
        if isinstance(errors, Row):
            yield errors
        else:
            step = Training(setup, case, size, mechanism).step
            entries.append(Contestant(name, "ours", (step,), {"errors": errors}))
    softmax = Training(setup, case, size, Softmax())

    def rival(name: str, attend: Attend) -> Contestant:
        return Contestant(name, "sdpa", (partial(softmax.step_with, name),))

    found, left_out = rivals(setup, case, (x["f"], x["g"], x["v"]), rival)
    yield from left_out
    yield from setup.race(case, entries + found, {"step": slice(0, 1)})
