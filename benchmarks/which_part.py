"""Which part of a sharp oscillator model does the work, and does a higher rate change the order?

The contest's controls: the oscillator that leads its trials with one part changed, trained as in
the trials (WikiText-2, strict, 10 epochs, seed 0) in float32, but for the products of the head
(quick.py). The model as it is beside them says what those change: behind_softmax.py has trained it
without, and p and the gain, which are not trained again here. And with twice the largest learning
rate of the trials ours and rotary softmax. A look, no part of the contest: no test article is read.
Stopped at any moment, it continues; started twice, two processes share the work.

    python benchmarks/which_part.py --store FOLDER --data ROOT     # results/which_part.json
"""

import looks
import quick
from behind_softmax import MODELS, SHARP, run_of
from harness import save
from lohe.experiments.contest.stages import controls
from lohe.experiments.contest.trials import Configuration
from lohe.experiments.store.store import Store
from lohe.train import Run

TWICE = 2 * looks.RATE  # the least of the contest's search


def control(name: str) -> Run:
    changed = controls(Configuration(SHARP, looks.RATE, looks.DROPOUT))[name]
    return looks.run_of(changed.mechanism, positions=changed.positions)


RUNS = {
    "no dynamics": control("no dynamics"),
    "as it is": run_of(SHARP, 0),
    "frozen anchors": control("frozen anchors"),
    "as it is, twice the rate": run_of(SHARP, 0, TWICE),
    "rotary softmax, twice the rate": run_of(MODELS["softmax, rotary"], 0, TWICE),
    "free anchors": control("free anchors"),
    "exponential readout": control("exponential readout"),
    "no other positions": control("no other positions"),
    "learned p": control("learned p"),
}


def main() -> None:
    options = looks.parser(__doc__).parse_args()
    quick.use()
    store = Store(options.store / "quick")  # behind_softmax.py has the same runs, not the same head
    found = looks.look("which_part", RUNS, looks.concentration, store, options.data)
    save("which_part", {"products of the head": quick.QuickPack.products, **found})


if __name__ == "__main__":
    main()
