"""Which couplings decide whether a device that keeps its errors is lost on agreement?

kept_errors.py finds that with couplings off by 50 % most devices score as if they had no errors
and a few lose many points, mostly the same few for every model. Here each of the 81 couplings of
its devices that are lost is put right in turn. The two that bring most back most often are then
tested on devices that nobody has looked at: as they are, with the first or both of the two right,
and with all others right. The packaged models of agreement, 500 validation sentences; lost is what
loses more than five points of accuracy.

    python benchmarks/few_couplings.py     # results/few_couplings.json, two minutes
"""

from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from at_stake import models
from harness import save
from kept_errors import DEVICES, SCALES, Tunable
from lohe.attention import OscillatorAttention
from lohe.experiments import cpu
from lohe.experiments.measures import Bench
from lohe.experiments.store.store import Store
from lohe.experiments.studies.robust.physics import Physics, device
from lohe.models import attention_layers
from lohe.substrates import DeviceMismatch

SCALE = SCALES[-1]
LOST = 5.0
FRESH = range(1100, 2100)  # the thousand before it were looked at while this was written
RESAMPLED = 10_000
EDGES = (0, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 9)  # of factors


def factors(number: int, model: Tunable) -> Tensor:
    """Of the couplings of this device, (tokens, tokens); the models have one layer and head."""
    longest = model.split.inputs["tokens"].shape[1]
    rng = torch.Generator().manual_seed(number)
    (layer,) = attention_layers(model.model)
    assert isinstance(layer, OscillatorAttention)
    made = DeviceMismatch(layer.drive, SCALE, layer.heads, layer.max_tokens, generator=rng)
    return made.factors[0, :longest, :longest].clone()


def off_by(of: Tensor) -> Physics:
    def change(layer: OscillatorAttention, rng: torch.Generator) -> None:
        ideal = layer.drive
        layer.drive = lambda couplings, anchors: ideal(couplings * of, anchors)

    return Physics("factors", SCALE, change)


def right(of: Tensor, *pairs: tuple[int, int]) -> Tensor:
    """These factors, but couplings w_ij as they should be."""
    made = of.clone()
    for i, j in pairs:
        made[i, j] = 1
    return made


def share(lost: np.ndarray) -> dict[str, object]:
    """Of (models, devices) that are lost, with an interval over both."""
    rng = np.random.default_rng(0)
    m, d = (rng.integers(n, size=(RESAMPLED, n)) for n in lost.shape)
    drawn = [lost[a][:, b].mean() for a, b in zip(m, d, strict=True)]
    low, high = np.quantile(drawn, [0.025, 0.975])
    return {"share": lost.mean(), "95 %": [low, high], "by model": lost.mean(axis=1).tolist()}


def main() -> None:
    cpu.get_ready()
    bench = Bench(Store(Path("results")), "cpu", None)
    found = [Tunable(run, bench) for name, run, _ in models(bench) if name.startswith("SVA")]
    ideal = [model.score(device(0.0), 0) for model in found]

    def lost(model: int, of: Tensor) -> float:
        return ideal[model] - found[model].score(off_by(of), 0)

    best, cases = Counter[tuple[int, int]](), []
    for model in range(len(found)):
        for number in range(DEVICES):
            of = factors(number, found[model])
            if (before := lost(model, of)) > LOST:
                left = {pair: lost(model, right(of, pair)) for pair in np.ndindex(tuple(of.shape))}
                which = min(left, key=left.__getitem__)
                best[which] += 1
                cases.append([model, number, before, which, left[which]])
    (first, _), (second, _), *_ = best.most_common()

    made = [factors(number, found[0]) for number in FRESH]
    kinds = {
        "as they are": made,
        f"w_{first} right": [right(of, first) for of in made],
        "both right": [right(of, first, second) for of in made],
        "all but both right": [1 + of - right(of, first, second) for of in made],
    }
    fresh = {
        kind: np.array([[lost(m, of) > LOST for of in these] for m in range(len(found))])
        for kind, these in kinds.items()
    }
    factor = np.array([of[first].item() for of in made])
    result = {
        "models, devices": [len(found), DEVICES],
        "model, device, points lost, coupling that helps most, still lost": cases,
        "how often": [[*pair, count] for pair, count in best.most_common()],
        "fresh devices that are lost": {kind: share(x) for kind, x in fresh.items()},
        f"by the factor of w_{first}: devices, lost": {
            f"{low} to {high}": [int(x.sum()), fresh["as they are"][:, x].mean()]
            for low, high in pairwise(EDGES)
            if (x := (factor >= low) & (factor < high)).any()
        },
    }
    for name, value in result.items():
        print(name, value)
    print("wrote", save("few_couplings", result))


if __name__ == "__main__":
    main()
