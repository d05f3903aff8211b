"""Which part of a sharp oscillator model does the work, and does a higher rate change the order?

The contest's controls: the oscillator that leads its trials with one part changed, trained as in
the trials (WikiText-2, strict, 10 epochs, seed 0) in float32, but for the products of the head
(quick.py). The model as it is beside them says what those change: behind_softmax.py has trained it
without, and p and the gain, which are not trained again here. And with twice the largest learning
rate of the trials ours and rotary softmax. A look, no part of the contest: no test article is read.
Stopped at any moment, it continues; started twice, two processes share the work.

    python benchmarks/which_part.py --store FOLDER --data ROOT     # results/which_part.json
"""

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

import behind_softmax
import quick
import sharp_devices
from harness import save
from lohe.experiments.contest.trials import Configuration, controls
from lohe.experiments.measures import Bench, measure_recipe, take
from lohe.experiments.runner import complete
from lohe.experiments.store.store import Store
from lohe.experiments.studies.rank.concentration import Concentration
from lohe.train import AdamW, Run

OURS = Configuration(sharp_devices.SHARP, learning_rate=1e-3, dropout=0.1)
RATE = 2e-3  # the least of the contest's stage `rate`


def control(name: str) -> Run:
    changed = controls(OURS)[name]
    return sharp_devices.run_of(changed.mechanism, 0, changed.positions)


def faster(name: str) -> Run:
    return replace(behind_softmax.run_of(behind_softmax.MODELS[name], 0), optimizer=AdamW(lr=RATE))


RUNS = {
    "no dynamics": control("no dynamics"),
    "as it is": sharp_devices.run_of(OURS.mechanism),
    "frozen anchors": control("frozen anchors"),
    "as it is, twice the rate": faster("p = 8, gain"),
    "rotary softmax, twice the rate": faster("softmax, rotary"),
    "free anchors": control("free anchors"),
    "exponential readout": control("exponential readout"),
    "no other positions": control("no other positions"),
    "learned p": control("learned p"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--store", type=Path, required=True, help="records and weights, to resume")
    parser.add_argument("--data", type=Path, help="data root; else $LOHE_DATA")
    options = parser.parse_args()
    quick.use()
    store = Store(options.store)
    for name, run in RUNS.items():
        for _ in complete([run], store, root=options.data, with_weights=[run]):
            print("trained", name, flush=True)
    bench, found, lacking = Bench(store, "cpu", options.data), dict[str, Any](), []
    for name, run in RUNS.items():
        if store.missing(run.recipe(), [run.seed]):
            lacking.append(name)
            continue
        looked_at = Concentration(run)
        list(take([looked_at], bench))
        recipes = {"trained": run.recipe(), "concentration": measure_recipe(looked_at)}
        found[name] = {
            what: sharp_devices.shown(store.load(recipe)[run.seed])
            for what, recipe in recipes.items()
        }
    save("which_part", {"products of the head": quick.PRODUCTS, **found})
    if lacking:
        print(f"Not here yet, or left to another process: {'; '.join(lacking)}. Run it again.")


if __name__ == "__main__":
    main()
