"""What does a sharp readout cost on an imperfect device?

One model of WikiText-2 with p = 8 and a learned gain and one with p = 1 and none, otherwise trained
alike by the contest's trials (seed 0, 10 epochs), in float32: its measures of both, on the second
half of validation. p and gain change together, there is one seed and one draw of each device: a
first look, and no part of the contest. Stopped at any moment, it continues.

    python benchmarks/sharp_devices.py --store FOLDER --data ROOT   # results/sharp_devices.json
"""

import argparse
from dataclasses import replace
from pathlib import Path

from harness import save
from lohe.experiments.contest.beyond import BeyondLength
from lohe.experiments.contest.measured import Devices, settling
from lohe.experiments.contest.readouts import LearnedReadout
from lohe.experiments.contest.trials import STAGES, Configuration
from lohe.experiments.measures import Bench, Measure, measure_recipe, take
from lohe.experiments.memory import keep_memory
from lohe.experiments.runner import complete
from lohe.experiments.store.records import Record
from lohe.experiments.store.store import Store
from lohe.experiments.studies.rank.attention_entropy import AttentionEntropy
from lohe.experiments.studies.rank.effective_rank import EffectiveRank
from lohe.models import Mechanism, Oscillator
from lohe.train import Run

MODELS = {
    "p = 8, learned gain": Oscillator(d_osc=48, sharpness=8, gain="learned"),
    "p = 1, no gain": Oscillator(d_osc=48),
}


def run_of(mechanism: Mechanism) -> Run:
    stage = replace(STAGES["trials"], precision="float32")
    return stage.runs(Configuration(mechanism, learning_rate=1e-3, dropout=0.1), seeds=[0])[0]


def measures(run: Run) -> list[Measure]:
    kinds = (Devices, settling, BeyondLength, EffectiveRank, AttentionEntropy, LearnedReadout)
    return [kind(run) for kind in kinds]


def shown(record: Record) -> dict[str, object]:
    """What was found, by which code and where."""
    kept = ("result", "curve", "wall_seconds", "code_version", "data_checksum", "environment")
    return {name: getattr(record, name) for name in kept}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--store", type=Path, required=True, help="records and weights, to resume")
    parser.add_argument("--data", type=Path, help="data root; else $LOHE_DATA")
    options = parser.parse_args()
    keep_memory()
    store, found = Store(options.store), {}
    for name, mechanism in MODELS.items():
        run = run_of(mechanism)
        for pack in complete([run], store, root=options.data, with_weights=[run]):
            print("trained", pack.name, flush=True)
        for measure in take(measures(run), Bench(store, "cpu", options.data)):
            print("measured", type(measure).__name__, flush=True)
        recipes = {"trained": run.recipe()}
        recipes |= {type(m).__name__: measure_recipe(m) for m in measures(run)}
        found[name] = {what: shown(store.load(r)[0]) for what, r in recipes.items()}
    save("sharp_devices", found)


if __name__ == "__main__":
    main()
