"""What keeps oscillators behind softmax on words: the readout, positions, or couplings?

Two statements of `lohe.theory`, put to models of WikiText-2. At p = 1 on the sphere no key gets
more than about twice the uniform weight of an oscillator that does not lean away from its anchors,
in any dimension (`largest_weight`). And with orthonormal anchors, exponential couplings and a large
gain the oscillators are softmax (`uniform_share`), with rotary couplings a rotary one. The way from
the paper's model to that one, step by step, trained by the contest's trials (10 epochs) but in
float32; how much one key gets in each, before and after training, and in the language models that
come with the package. A look, no part of the contest: no test article is read. Stopped at any
moment, it continues; started twice, two processes share the work.

    python benchmarks/behind_softmax.py --store FOLDER --data ROOT --figure docs/concentration.png
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

import looks
from harness import save
from lohe.experiments.contest.rotary import ExponentialRope, SoftmaxRopePositions
from lohe.experiments.measures import Bench
from lohe.experiments.shipping import shipped
from lohe.experiments.store.store import Store
from lohe.experiments.studies.rank.concentration import Concentration
from lohe.models import Mechanism, Oscillator, Softmax, SoftmaxRope
from lohe.tasks import TinyStories, WikiText2
from lohe.train import Run, brief
from lohe.viz import style

BASE = 100.0  # of the rotations: the best of the trials
PLAIN, SHARP = Oscillator(d_osc=48), Oscillator(d_osc=48, sharpness=8, gain="learned")
TURNED = ExponentialRope(d_osc=48, sharpness=8, gain="learned", base=BASE)
MODELS: dict[str, Mechanism] = {
    "p = 1": PLAIN,
    "p = 1, free anchors": replace(PLAIN, anchors="free"),
    "p = 1, gain": replace(SHARP, sharpness=1),
    "p = 8": replace(SHARP, gain=None),
    "p = 8, gain": SHARP,
    "p = 8, gain, exp, rotary": TURNED,
    "p = 8, gain, exp, rotary, d_osc 32": replace(TURNED, d_osc=32),
    "p = 8, gain, exp, rotary, d_osc 16": replace(TURNED, d_osc=16),
    "p = 1, gain 64, exp, rotary": replace(TURNED, sharpness=1, gain=64.0),
    "softmax": Softmax(),
    "softmax, rotary": SoftmaxRope(base=BASE),
    "softmax, rotary and a table": SoftmaxRopePositions(base=BASE),
}
TWICE = ("p = 8, gain, exp, rotary", "softmax, rotary")


class Untrained(Bench):
    """Models as they are built."""

    def model(self, run: Run) -> nn.Module:
        return run.model.build(self.data(run), torch.Generator().manual_seed(run.seed)).eval()


def run_of(mechanism: Mechanism, seed: int, rate: float = looks.RATE, **how: Any) -> Run:
    """Rotary models have no sinusoids."""
    plain = isinstance(mechanism, Oscillator | Softmax)
    return looks.run_of(mechanism, seed, "sinusoidal" if plain else "none", rate, **how)


SHOWN = {
    "p = 1": style.RED,
    "p = 1, free anchors": style.ORANGE,
    "p = 1, gain": style.PURPLE,
    "p = 8, gain": style.BLUE,
    "p = 8, gain, exp, rotary": style.GREEN,
}
BESIDE = {"softmax": style.GREY, "softmax, rotary": style.BLACK}  # which have no limit


def draw(found: dict[str, Any], path: Path) -> Path:
    """Each head of some models: how much the largest weight is, and could be; softmax's beside."""
    import matplotlib.pyplot as plt

    models = {name: found[f"{name}, seed 0"] for name in (*SHOWN, *BESIDE)}
    reached = {n: m["trained"]["result"]["valid.perplexity"] for n, m in models.items()}
    heads = {n: m["concentration"]["curve"] for n, m in models.items()}
    ticks = [1, 2, 4, 8, 16, 32, 48]
    with style.drawing():
        figure, ax = plt.subplots(figsize=(5.6, 5), layout="constrained")
        ax.set(xscale="log", yscale="log", xlim=(0.95, 78), ylim=(0.95, 60), aspect="equal")
        ax.plot([1, 48], [1, 48], color=style.GREY, linewidth=1)
        ax.text(5, 4.9, "the most that Eq. 5 allows", rotation=45, color=style.GREY, ha="center")
        for name, colour in SHOWN.items():
            x, y = ([row[key] for row in heads[name]] for key in ("bound", "weight"))
            ax.plot(x, y, "o", color=colour, label=f"{name}: {reached[name]:.1f}", markersize=5)
        for (name, colour), x in zip(BESIDE.items(), (57, 68), strict=True):
            y, label = [row["weight"] for row in heads[name]], f"{name}: {reached[name]:.1f}"
            ax.plot([x] * len(y), y, "_", color=colour, markersize=9, label=label)
        for axis in (ax.xaxis, ax.yaxis):
            axis.set_ticks(ticks, [str(t) for t in ticks])
            axis.set_ticks([], minor=True)
        ax.set_xlabel("most that one of 48 keys could get, in units of 1/48")
        ax.set_ylabel("what the largest gets, mean over windows")
        ax.legend(loc="lower right", fontsize=8, title="a dot a head; perplexity")
        return style.save(figure, path)


def main() -> None:
    parser = looks.parser(__doc__)
    parser.add_argument("--figure", type=Path, help="also draw each head's largest weight")
    options = parser.parse_args()
    store = Store(options.store)
    runs = {f"{name}, seed 0": run_of(mechanism, 0) for name, mechanism in MODELS.items()}
    runs |= {f"{name}, seed 1": run_of(MODELS[name], 1) for name in TWICE}
    found = looks.look("behind_softmax", runs, looks.concentration, store, options.data)
    bench, untrained = (kind(store, "cpu", options.data) for kind in (Bench, Untrained))
    for name, there in found.items():
        there["untrained"] = Concentration(runs[name]).take(untrained).result
    for run in shipped():
        if isinstance(run.task, WikiText2 | TinyStories):
            name = f"{type(run.task).__name__} as packaged, {brief(run.model.attention)}"
            found[name] = {
                "concentration": Concentration(run).take(bench).__dict__,
                "untrained": Concentration(run).take(untrained).result,
            }
    save("behind_softmax", found)
    if options.figure and all(name in found for name in runs):
        print("wrote", draw(found, options.figure))


if __name__ == "__main__":
    main()
