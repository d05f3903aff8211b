"""Can a trained softmax model run on oscillators as it is, and what does a device do to it then?

With orthonormal anchors, exponential couplings and a gain oscillators are softmax
(`theory.uniform_share`). So the rotary softmax of behind_softmax.py gets oscillators in place of
its attention, with its own projections, and nothing is trained: at several gains, in fewer
dimensions than words, where anchors can only be spread, and on imperfect devices. softmax(s) is
p = 1 with scores s, and p = 8 with s/8: the same weights, by couplings of another range. Time and
frequency are in units in which the strongest coupling of each oscillator is 1, since softmax does
not tell how strong they are. Perplexity of windows of the second half of validation; one seed, one
draw of each device.

    python benchmarks/carried_over.py --store FOLDER --data ROOT   # results/carried_over.json
"""

import copy
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Generator, Tensor, nn

import looks
from behind_softmax import MODELS, run_of
from harness import save
from lohe import ops, sphere
from lohe.attention import OscillatorAttention
from lohe.experiments import cpu
from lohe.experiments.contest.rotary import RotaryOscillatorAttention
from lohe.experiments.measures import Bench
from lohe.experiments.runner import complete
from lohe.experiments.store.store import Store
from lohe.experiments.studies.robust.physics import (
    AT_STAKE,
    Physics,
    by_seed,
    coupling,
    frequency,
    measure,
    scores,
    settling,
    spaced,
    state,
)
from lohe.models import attention_weights
from lohe.ops import reference
from lohe.tasks import Split

INPUTS, WINDOWS, BATCH = 48, 250, 125
GAINS, DIMENSIONS, POWERS = (1.0, 10.0, 100.0, 1000.0), (8, 16, 24, 32, 40, 48), (1, 2, 4)
DEVICES = {"p = 1": (1, 100.0), "p = 8": (8, 1000.0)}  # p, and a gain that is enough for it


class Leaking(nn.Module):
    """Couplings off by a part of the strongest one of the oscillator, whatever they are."""

    def __init__(self, ideal: Callable[[Tensor, Tensor], Tensor], scale: float, rng: Generator):
        super().__init__()
        self.ideal, self.scale, self.rng = ideal, scale, rng

    def forward(self, couplings: Tensor, anchors: Tensor) -> Tensor:
        noise = torch.randn(couplings.shape, generator=self.rng)
        error = self.scale * couplings.amax(dim=-1, keepdim=True) * noise * (couplings > 0)
        return self.ideal((couplings + error).clamp(min=0), anchors)


def leak(scale: float) -> Physics:
    def change(layer: OscillatorAttention, rng: Generator) -> None:
        layer.drive = Leaking(layer.drive, scale, rng)

    return Physics("leak", scale, change)


GRID = (
    *AT_STAKE,
    *(make(s) for make in (coupling, leak, state, frequency) for s in (0.05, 0.1, 0.2, 0.5)),
    *map(settling, (0.5, 1.0, 2.0, 5.0, 30.0)),
)


class Carried(RotaryOscillatorAttention):
    """Its strongest coupling is 1 for every oscillator, whatever settles them."""

    def oscillators(self, p: ops.Problem) -> Tensor:
        if self.drive is not reference.drive:
            return super().oscillators(p)
        return self.settle(ops.drive(p, self.backend, shifted=True))


def carried(softmax: nn.Module, d_osc: int = INPUTS, p: float = 1, gain: float = 1000) -> nn.Module:
    """The model with oscillators that have the projections of its attention layers."""
    model: Any = copy.deepcopy(softmax)
    for block in model.encoder.blocks:
        old = block.attention
        new = Carried(
            old.d_model,
            old.heads,
            INPUTS,
            d_osc,
            base=old.base,
            coupling="exp",
            sharpness=p,
            gain=gain,
            causal=True,
        )
        names = {"to_f": "to_q", "to_g": "to_k", "to_v": "to_v", "to_out": "to_out"}
        for ours, theirs in names.items():
            getattr(new, ours).load_state_dict(getattr(old, theirs).state_dict())
        new.to_f.get_parameter("weight").data /= p
        new.anchors.data[:] = apart(d_osc)
        block.attention = new
    return model.eval()


def apart(d_osc: int) -> Tensor:
    """Anchors of all inputs: orthonormal, or where that is more than d_osc as far apart as
    descent finds."""
    if d_osc >= INPUTS:
        return torch.eye(INPUTS, d_osc)
    rng = torch.Generator().manual_seed(0)
    free = sphere.uniform(INPUTS, d_osc, generator=rng).requires_grad_()
    descent = torch.optim.Adam([free], lr=0.02)
    for _ in range(1000):
        r = sphere.normalize(free)
        loss = (r @ r.mT - torch.eye(INPUTS)).pow(4).sum()
        descent.zero_grad()
        loss.backward()
        descent.step()
    return sphere.normalize(free.detach())


@torch.no_grad()
def spans(softmax: nn.Module, windows: Split) -> dict[str, float]:
    """Quantiles over the last rows, at p = 1; at p = 8 their eighth roots."""
    weights = torch.stack(attention_weights(softmax.double(), **windows.inputs))[..., -1, :]
    ratio = (weights.amax(dim=-1) / weights.amin(dim=-1)).flatten()
    softmax.float()
    return {q: ratio.quantile(float(q)).item() for q in ("0.5", "0.99")}


def main() -> None:
    options = looks.parser(__doc__).parse_args()
    cpu.get_ready()
    store = Store(options.store)
    bench = Bench(store, "cpu", options.data)
    run = run_of(MODELS["softmax, rotary"], seed=0)
    list(complete([run], store, root=options.data, with_weights=[run]))
    softmax = bench.model(run)
    windows = spaced(bench.data(run).splits["later"], WINDOWS)

    def perplexity(model: nn.Module) -> float:
        return scores(model, run.task, windows, BATCH)["perplexity"]

    found: dict[str, Any] = {"windows": WINDOWS, "softmax": perplexity(softmax)}
    found["gains"] = {gain: perplexity(carried(softmax, gain=gain)) for gain in GAINS}
    found["dimensions"] = {
        f"p = {p}": {d: perplexity(carried(softmax, d, p)) for d in DIMENSIONS} for p in POWERS
    }
    found["strongest coupling over the weakest"] = spans(softmax, windows.take(slice(0, BATCH)))
    print(found, flush=True)
    for name, (p, gain) in DEVICES.items():
        model = carried(softmax, p=p, gain=gain)
        changes = measure({0: model}, run.task, windows, GRID, draws=1, batch=BATCH)
        percent = {
            f"{x.name} {x.level:g}": 100 * math.expm1(by_seed(changes, x.name, x.level, "nats")[0])
            for x in GRID
        }
        found[name] = {"gain": gain, "perplexity": perplexity(model), "change, %": percent}
        print(name, found[name], flush=True)
    save("carried_over", found)


if __name__ == "__main__":
    main()
