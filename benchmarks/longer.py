"""Does the order of the trials hold when training goes on for 30 epochs?

The trials end after 10, and it is 30 that count. The oscillator that leads the trials, the softmax
that does, plain softmax, and the oscillators of the second question at d_osc 32, each as in
behind_softmax.py (seed 0, the same first embedding, the same batches at first) but for 30 epochs.
Products are float32, those of the head in parts (quick.py). A look, no part of the contest: no test
article is read. Stopped at any moment, it continues; started twice, two processes share the work.

    python benchmarks/longer.py --store FOLDER --data ROOT     # results/longer.json
"""

import looks
import quick
from behind_softmax import MODELS, run_of
from harness import save
from lohe.experiments.store.store import Store

NAMES = ("p = 8, gain", "softmax, rotary", "p = 8, gain, exp, rotary, d_osc 32", "softmax")
RUNS = {name: run_of(MODELS[name], 0, like="finals") for name in NAMES}


def main() -> None:
    options = looks.parser(__doc__).parse_args()
    quick.use(quick.ExactPack)
    found = looks.look("longer", RUNS, looks.concentration, Store(options.store), options.data)
    save("longer", found)


if __name__ == "__main__":
    main()
