"""What does a device take whose errors stay, and does tuning the model on it bring that back?

The paper draws the errors of couplings anew for every example (`Mismatch`); a device that was made
once keeps them (`DeviceMismatch`). On average over devices both cost the same, since every example
meets errors of the same law. But devices differ, and a model can be tuned on its own: on some of
its training examples, with the device in the loop, either all of it or the anchors alone, on the
worst devices of those that were drawn. Tuned as long without a device it says what the steps alone
do. The models that come with the package but TinyStories, which would take as long as all others;
and the sharp one of behind_softmax.py where its store is given. Validation, of the sharp one the
half that chose nothing. What is in the results file already is not done again.

    python benchmarks/kept_errors.py --data ROOT [--store FOLDER]   # results/kept_errors.json
"""

import argparse
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from at_stake import BATCH, EXAMPLES, METRICS, models
from behind_softmax import MODELS, run_of
from harness import save, saved
from lohe.experiments import cpu
from lohe.experiments.measures import Bench
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
DEVICES, FEWER, DRAWS = 100, 20, 3  # fewer for language models
TUNED = 3  # the worst devices of the last scale
SEEN = 12_800  # examples in tuning: 200 steps of most tasks
RATES = {"all": 0.3, "anchors": 10.0}  # what is tuned, and how many times the rate of training
SHARP = run_of(MODELS["p = 8, gain"], 0)


class Tunable:
    """A trained model, what it scores on a device, and how it is tuned there."""

    def __init__(self, run: Run, bench: Bench):
        self.run = replace(run, epochs=1)
        self.data, self.model = bench.data(run), bench.model(run)
        self.split = spaced(self.data.splits.get("later", self.data.valid), EXAMPLES)
        self.metric = METRICS.get(type(run.task).__name__, "nats")

    def score(self, physics: Physics, number: int, model: nn.Module | None = None) -> float:
        """On a device, of which the number is all that is drawn."""
        with on(model or self.model, physics, torch.Generator().manual_seed(number)) as there:
            return scores(there, self.run.task, self.split, BATCH)[self.metric]

    def tuned(self, physics: Physics, number: int, what: str) -> float:
        """The score on a device after tuning there, all of it or its anchors."""
        optimizer = replace(self.run.optimizer, lr=RATES[what] * self.run.optimizer.lr)
        run = replace(self.run, optimizer=optimizer)
        pack = Pack(run, [run.seed], self.data, torch.device("cpu"))
        with torch.no_grad():
            for name, parameter in self.model.named_parameters():
                pack.parameters[name].copy_(parameter)
        for name, parameter in pack.parameters.items():
            parameter.requires_grad_(what == "all" or name.endswith("anchors"))
        pack.trained = [p for p in pack.trained if p.requires_grad]
        batches = pack.order(len(self.data.train))[:, :SEEN].split(run.batch, dim=1)
        with on(pack.model, physics, torch.Generator().manual_seed(number)):
            for batch, rate in zip(batches, cosine(run, len(batches)), strict=True):
                pack.set_rate(rate)
                pack.step(batch)
        weights = {name: p.detach()[0] for name, p in pack.parameters.items()}
        return self.score(physics, number, assembled(self.run, self.data, weights))


def subjects(bench: Bench) -> Iterator[tuple[str, Run]]:
    yield from ((name, run) for name, run, _ in models(bench) if "TinyStories" not in name)
    if bench.store.missing(SHARP.recipe(), [SHARP.seed]):
        print("The sharp model is left out: behind_softmax.py has not trained it in --store.")
    else:
        yield "WikiText2Articles, p = 8, gain, d_osc = 48", SHARP


def measured(model: Tunable) -> dict[str, Any]:
    """What devices take from one model, as changes of its metric."""
    ideal = model.score(device(0.0), 0)

    def changes(kind: Callable[[float], Physics], draws: int) -> dict[str, list[float]]:
        scored = {s: [model.score(kind(s), n) for n in range(draws)] for s in SCALES}
        return {f"{s:g}": [x - ideal for x in of_scale] for s, of_scale in scored.items()}

    in_nats = model.metric == "nats"  # of which more is worse
    kept, large = changes(device, FEWER if in_nats else DEVICES), SCALES[-1]
    of_large = kept[f"{large:g}"]
    worst = sorted(range(len(of_large)), key=of_large.__getitem__, reverse=in_nats)[:TUNED]
    return {
        "as trained": ideal,
        "drawn anew": changes(coupling, DRAWS),
        "kept": kept,
        "the worst": [of_large[n] for n in worst],
        "the worst, tuned": {
            what: [model.tuned(device(large), n, what) - ideal for n in worst] for what in RATES
        },
        "tuned without a device": {
            what: model.tuned(device(0.0), 0, what) - ideal for what in RATES
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, help="data root; else $LOHE_DATA")
    parser.add_argument("--store", type=Path, default=Path("results"), help="of behind_softmax.py")
    options = parser.parse_args()
    cpu.get_ready()
    bench = Bench(Store(options.store), "cpu", options.data)
    settings = {"corpora": COMPACT.name, "examples": EXAMPLES, "tuned on": SEEN, "rates": RATES}
    result = saved("kept_errors")
    if any(result.get(name) != value for name, value in settings.items()):
        result = dict(settings)
    for name, run in subjects(bench):
        of_name = result.setdefault(name, {})
        if (seed := f"seed {run.seed}") in of_name:
            continue
        model = Tunable(run, bench)
        of_name |= {"metric": model.metric, seed: measured(model)}
        print(name, seed, of_name[seed], flush=True)
        save("kept_errors", result)


if __name__ == "__main__":
    main()
