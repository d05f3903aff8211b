"""What does a device take whose errors stay, and does tuning the model on it bring that back?

The paper draws the errors of couplings anew for every example (`Mismatch`); a device that was made
once keeps them (`DeviceMismatch`). On average over devices both cost the same, since every example
meets errors of the same law. But devices differ, and a model can be tuned on its own: for a few
steps, with the device in the loop, either all of it or the anchors alone, on the worst devices of
those that were drawn. Tuned as long without a device it says what the steps alone do. The models
that come with the package, and the sharp one of longer.py where its store is given; validation, of
the sharp one the half that chose nothing.

    python benchmarks/kept_errors.py --data ROOT [--store FOLDER]   # results/kept_errors.json
"""

import argparse
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

import longer
from at_stake import BATCH, EXAMPLES, METRICS, models
from harness import save
from lohe.experiments.measures import Bench
from lohe.experiments.memory import keep_memory
from lohe.experiments.setting import COMPACT
from lohe.experiments.store.store import Store
from lohe.experiments.studies.robust.physics import (
    Physics,
    coupling,
    device,
    on,
    scores,
    spaced,
)
from lohe.train import Run, assembled
from lohe.train.pack import Pack, cosine

SCALES = (0.1, 0.2, 0.5)
DRAWS, DEVICES, TUNED = 3, 20, 3  # the worst of the last scale are tuned on
STEPS, RATE = 200, 0.1  # of tuning, at most an epoch; of the rate of training, falling to 0
SHARP = longer.RUNS["p = 8, gain"]


class Tunable:
    """A trained model, what it scores on a device, and how it is tuned there."""

    def __init__(self, run: Run, bench: Bench):
        data = bench.data(run)
        steps = min(STEPS, run.steps(data))
        rate = replace(run.optimizer, lr=RATE * run.optimizer.lr)
        self.run = replace(run, optimizer=rate, epochs=1, limit=steps * run.batch)
        self.data, self.model = self.run.limited(data), bench.model(run)
        self.split = spaced(data.splits.get("later", data.valid), EXAMPLES)
        self.metric = METRICS.get(type(run.task).__name__, "nats")

    def score(self, physics: Physics, number: int, model: nn.Module | None = None) -> float:
        """On a device, of which the number is all that is drawn."""
        with on(model or self.model, physics, torch.Generator().manual_seed(number)) as there:
            return scores(there, self.run.task, self.split, BATCH)[self.metric]

    def tuned(self, physics: Physics, number: int, anchors_alone: bool) -> float:
        """The score on a device after tuning there."""
        pack = Pack(self.run, [self.run.seed], self.data, torch.device("cpu"))
        with torch.no_grad():
            for name, parameter in self.model.named_parameters():
                pack.parameters[name].copy_(parameter)
        if anchors_alone:
            for name, parameter in pack.parameters.items():
                parameter.requires_grad_(name.endswith("anchors"))
            pack.trained = [p for p in pack.trained if p.requires_grad]
        batches = pack.order(len(self.data.train)).split(self.run.batch, dim=1)
        with on(pack.model, physics, torch.Generator().manual_seed(number)):
            for batch, rate in zip(batches, cosine(self.run, len(batches)), strict=True):
                pack.set_rate(rate)
                pack.step(batch)
        weights = {name: p.detach()[0] for name, p in pack.parameters.items()}
        return self.score(physics, number, assembled(self.run, self.data, weights))


def subjects(bench: Bench) -> Iterator[tuple[str, Run]]:
    yield from ((name, run) for name, run, _ in models(bench))
    if bench.store.missing(SHARP.recipe(), [SHARP.seed]):
        print("The sharp model is left out: longer.py has not trained it in --store.")
    else:
        yield "WikiText2Articles, p = 8, gain, d_osc = 48", SHARP


def measured(model: Tunable) -> dict[str, Any]:
    """What devices take from one model, as changes of its metric."""
    ideal, ways = model.score(device(0.0), 0), {"all": False, "anchors": True}

    def changes(kind: Callable[[float], Physics], draws: int) -> dict[str, list[float]]:
        scored = {s: [model.score(kind(s), n) for n in range(draws)] for s in SCALES}
        return {f"{s:g}": [x - ideal for x in of_scale] for s, of_scale in scored.items()}

    kept, large = changes(device, DEVICES), SCALES[-1]
    of_large, largest_first = kept[f"{large:g}"], model.metric == "nats"
    worst = sorted(range(DEVICES), key=of_large.__getitem__, reverse=largest_first)[:TUNED]
    return {
        "as trained": ideal,
        "drawn anew": changes(coupling, DRAWS),
        "kept": kept,
        "the worst": [of_large[n] for n in worst],
        "the worst, tuned": {
            way: [model.tuned(device(large), n, alone) - ideal for n in worst]
            for way, alone in ways.items()
        },
        "tuned without a device": {
            way: model.tuned(device(0.0), 0, alone) - ideal for way, alone in ways.items()
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, help="data root; else $LOHE_DATA")
    parser.add_argument("--store", type=Path, default=Path("results"), help="of longer.py")
    options = parser.parse_args()
    keep_memory()
    bench = Bench(Store(options.store), "cpu", options.data)
    settings = {"examples": EXAMPLES, "steps": STEPS, "rate": RATE}
    result: dict[str, Any] = {"corpora": COMPACT.name, **settings}
    for name, run in subjects(bench):
        model = Tunable(run, bench)
        found = measured(model)
        result.setdefault(name, {"metric": model.metric})[f"seed {run.seed}"] = found
        print(name, "seed", run.seed, found, flush=True)
        save("kept_errors", result)


if __name__ == "__main__":
    main()
