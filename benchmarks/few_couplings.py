"""Which couplings decide what a device that keeps its errors costs?

kept_errors.py finds that with couplings off by 50 % most devices score nearly as if they had no
errors and a few lose much. Which errors are those of? What brings most back where it is put right,
on devices of kept_errors.py, is then tested on devices that nobody has looked at: as they are, with
it right, and with all else right.

*Agreement* (ten packaged models, one layer and head): each of the 81 couplings, 15 of which the
answer depends on, on every device that loses more than five points of accuracy; the two that help
most often.
*Language* (the packaged model of WikiText-2, two layers of four heads): each head, on the three
worst devices; and within the best head the couplings of words with themselves, or with the first.

500 validation examples, as there.

    python benchmarks/few_couplings.py --data ROOT     # results/few_couplings.json, six minutes
"""

import argparse
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from at_stake import models
from harness import save, saved
from kept_errors import DEVICES, FEWER, SCALES, TUNED, Tunable
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
FRESH_LANGUAGE = range(FEWER, 3 * FEWER)
RESAMPLED = 10_000
Change = Callable[[Tensor, tuple[int, int]], object]  # of the factors of this (layer, head)
EDGES = (0, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 9)  # of factors


def factors(number: int, model: Tunable) -> Tensor:
    """Of the couplings of this device, (tokens, tokens); the models have one layer and head."""
    longest = model.split.inputs["tokens"].shape[1]
    rng = torch.Generator().manual_seed(number)
    layer = _oscillator(attention_layers(model.model)[0])
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


def agreement(found: list[Tunable]) -> dict[str, Any]:
    """Two couplings, and how many devices are lost with and without their errors."""
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
    return {
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


def language(model: Tunable, kept: list[float]) -> dict[str, Any]:
    """One head and some of its couplings, and what devices cost with and without their errors."""
    ideal = model.score(device(0.0), 0)
    layers = attention_layers(model.model)
    heads = [(k, head) for k, x in enumerate(layers) for head in range(_oscillator(x).heads)]

    def costs(number: int, change: Change) -> float:
        """Nats more than without errors, where `change` has put some of them right."""

        def act(layer: OscillatorAttention, rng: torch.Generator) -> None:
            made = DeviceMismatch(layer.drive, SCALE, layer.heads, layer.max_tokens, rng)
            for head, of in enumerate(made.factors):
                change(of, (layers.index(layer), head))
            layer.drive = made

        return model.score(Physics("factors", SCALE, act), number) - ideal

    def best(changes: dict[Any, Change]) -> tuple[Any, dict[Any, float]]:
        """On the worst devices of kept_errors.py; what it leaves there, and all others leave."""
        left = {
            name: sum(costs(n, change) for n in worst) / len(worst)
            for name, change in changes.items()
        }
        return min(left, key=left.__getitem__), left

    worst = sorted(range(len(kept)), key=kept.__getitem__, reverse=True)[:TUNED]
    head, by_head = best({at: only(at, all_right) for at in heads})
    inside = {"with themselves": diagonal_right, "with the first word": first_right}
    part, by_part = best({name: only(head, change) for name, change in inside.items()})
    kinds: dict[str, Change] = {
        "as they are": lambda of, at: None,
        f"head {head} right": only(head, all_right),
        f"its couplings of words {part} right": only(head, inside[part]),
        f"all but head {head} right": lambda of, at: None if at == head else all_right(of),
    }
    fresh = {kind: [costs(n, change) for n in FRESH_LANGUAGE] for kind, change in kinds.items()}
    return {
        "worst devices": [[n, kept[n]] for n in worst],
        "mean left, head right": [[*at, left] for at, left in by_head.items()],
        f"mean left, of head {head}": by_part,
        "fresh devices, nats": fresh,
        "fresh devices, mean and most": {
            kind: [sum(x) / len(x), max(x)] for kind, x in fresh.items()
        },
    }


def _oscillator(layer: nn.Module) -> OscillatorAttention:
    assert isinstance(layer, OscillatorAttention)
    return layer


def only(head: tuple[int, int], change: Callable[[Tensor], object]) -> Change:
    """This change, of one (layer, head)."""
    return lambda of, at: change(of) if at == head else None


def all_right(of: Tensor) -> None:
    of.fill_(1)


def diagonal_right(of: Tensor) -> None:
    of.fill_diagonal_(1)


def first_right(of: Tensor) -> None:
    of[:, 0] = 1


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, help="data root; else $LOHE_DATA")
    options = parser.parse_args()
    cpu.get_ready()
    bench = Bench(Store(Path("results")), "cpu", options.data)
    subjects = [(name, Tunable(run, bench)) for name, run, _ in models(bench)]
    result: dict[str, Any] = {
        "agreement": agreement([x for name, x in subjects if name.startswith("SVA")])
    }
    for name, model in subjects:
        if name.startswith("WikiText2,"):
            kept = saved("kept_errors")[name][f"seed {model.run.seed}"]["kept"][f"{SCALE:g}"]
            result["language"] = language(model, kept)
    for part in result.values():
        for name, value in part.items():
            print(name, value)
    print("wrote", save("few_couplings", result))


if __name__ == "__main__":
    main()
