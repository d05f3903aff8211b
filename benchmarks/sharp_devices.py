"""What does a sharp readout cost on an imperfect device, what in it does, and does training help?

Models of WikiText-2 with d_osc = 48, trained alike by the contest's trials (10 epochs) but in
float32: p = 1 and 8, each without and with a learned gain; and p = 8 with a gain trained on noisy
devices, drawn anew in every step. Its measures of all of them, on the second half of validation.
One seed, one draw of each device: a look, and no part of the contest. Stopped at any moment, it
continues; started twice, two processes share the work.

    python benchmarks/sharp_devices.py --store FOLDER --data ROOT   # results/sharp_devices.json
"""

import argparse
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from harness import save
from lohe.attention import OscillatorAttention
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
from lohe.models.dropout import Dropout
from lohe.models.positions import Positions
from lohe.substrates import Mismatch, StateNoise
from lohe.train import Run


class DriveInTraining(Dropout):
    """Couplings off by factors while training, from the pack's generator as dropout's masks are."""

    def __init__(self, layer: OscillatorAttention, scale: float):
        super().__init__(0)
        self.ideal, self.scale = layer.drive, scale

    def forward(self, couplings: Tensor, anchors: Tensor) -> Tensor:  # pyright: ignore
        if not self.training:
            return self.ideal(couplings, anchors)
        return Mismatch(self.ideal, self.scale, self.generator)(couplings, anchors)  # pyright: ignore


class SettleInTraining(Dropout):
    """Noise on the settled states while training."""

    def __init__(self, layer: OscillatorAttention, scale: float):
        super().__init__(0)
        self.ideal, self.scale = layer.settle, scale

    def forward(self, h: Tensor) -> Tensor:  # pyright: ignore
        if not self.training:
            return self.ideal(h)
        return StateNoise(self.ideal, self.scale, self.generator)(h)  # pyright: ignore


@dataclass(frozen=True)
class OnDevices:
    """A mechanism that is trained on imperfect devices, and otherwise itself."""

    mechanism: Oscillator
    mismatch: float = 0.0
    noise: float = 0.0

    def build(self, *args: Any, **options: Any) -> OscillatorAttention:
        layer = self.mechanism.build(*args, **options)
        if self.mismatch:
            layer.drive = DriveInTraining(layer, self.mismatch)
        if self.noise:
            layer.settle = SettleInTraining(layer, self.noise)
        return layer


SHARP = Oscillator(d_osc=48, sharpness=8, gain="learned")
MODELS: dict[str, Mechanism] = {
    "p = 1, no gain": Oscillator(d_osc=48),
    "p = 1, learned gain": replace(SHARP, sharpness=1),
    "p = 8, no gain": replace(SHARP, gain=None),
    "p = 8, learned gain": SHARP,
    "p = 8, learned gain, trained with mismatch 0.5": OnDevices(SHARP, mismatch=0.5),
    "p = 8, learned gain, trained with noise 0.2": OnDevices(SHARP, noise=0.2),
}


def run_of(mechanism: Mechanism, seed: int = 0, positions: Positions = "sinusoidal") -> Run:
    stage = replace(STAGES["trials"], precision="float32")
    return stage.runs(Configuration(mechanism, 1e-3, 0.1, positions), seeds=[seed])[0]


def measures(run: Run) -> list[Measure]:
    kinds = (Devices, settling, BeyondLength, EffectiveRank, AttentionEntropy, LearnedReadout)
    return [kind(run) for kind in kinds]


def recipes(run: Run) -> dict[str, dict]:
    return {"trained": run.recipe()} | {type(m).__name__: measure_recipe(m) for m in measures(run)}


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
    store = Store(options.store)
    bench = Bench(store, "cpu", options.data)
    runs = {name: run_of(mechanism) for name, mechanism in MODELS.items()}
    for name, run in runs.items():
        for _ in complete([run], store, root=options.data, with_weights=[run]):
            print("trained", name, flush=True)
        for measure in take(measures(run), bench):
            print("measured", type(measure).__name__, "of", name, flush=True)
    found, lacking = {}, []
    for name, run in runs.items():
        if any(store.missing(recipe, [0]) for recipe in recipes(run).values()):
            lacking.append(name)
            continue
        found[name] = {what: shown(store.load(recipe)[0]) for what, recipe in recipes(run).items()}
    save("sharp_devices", found)
    if lacking:
        print(f"Not here yet, or left to another process: {'; '.join(lacking)}. Run it again.")


if __name__ == "__main__":
    main()
