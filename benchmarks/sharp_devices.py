"""What does a sharp readout cost on an imperfect device, what in it does, and does training help?

Models of WikiText-2 with d_osc = 48, trained alike by the contest's trials (10 epochs) but in
float32: p = 1 and 8, each without and with a learned gain; and p = 8 with a gain trained on noisy
devices, drawn anew in every step. Its measures of all of them, on the second half of validation.
One seed, one draw of each device: a look, and no part of the contest. Stopped at any moment, it
continues; started twice, two processes share the work.

    python benchmarks/sharp_devices.py --store FOLDER --data ROOT   # results/sharp_devices.json
"""

from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

import looks
from harness import save
from lohe.attention import OscillatorAttention
from lohe.experiments.contest.beyond import BeyondLength
from lohe.experiments.contest.measured import Devices, settling
from lohe.experiments.contest.readouts import LearnedReadout
from lohe.experiments.measures import Measure
from lohe.experiments.store.store import Store
from lohe.experiments.studies.rank.attention_entropy import AttentionEntropy
from lohe.experiments.studies.rank.effective_rank import EffectiveRank
from lohe.models import Mechanism, Oscillator
from lohe.models.dropout import Dropout
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


def measures(run: Run) -> dict[str, Measure]:
    kinds = (Devices, settling, BeyondLength, EffectiveRank, AttentionEntropy, LearnedReadout)
    return {type(measure).__name__: measure for measure in (kind(run) for kind in kinds)}


def main() -> None:
    options = looks.parser(__doc__).parse_args()
    runs = {name: looks.run_of(mechanism) for name, mechanism in MODELS.items()}
    found = looks.look("sharp_devices", runs, measures, Store(options.store), options.data)
    save("sharp_devices", found)


if __name__ == "__main__":
    main()
