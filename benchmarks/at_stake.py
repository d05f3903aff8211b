"""How much can an imperfect device take away? What models lose whose oscillators point anywhere.

That couplings off by 50 % cost a model 1 % says little as long as nobody knows what the model would
lose if its oscillators told it nothing. The models that come with the package (p = 1, d_osc = 2),
on their validation splits: as trained, with every oscillator in a random direction, with none (the
mean of all keys), and on devices at the far end of the paper's grid. A task whose corpus is not
there is left out, and said.

    python benchmarks/at_stake.py --data ROOT   # two minutes; results/at_stake.json
"""

import argparse
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean

from torch import nn

from harness import save
from lohe.experiments import cpu
from lohe.experiments.measures import Bench
from lohe.experiments.setting import COMPACT
from lohe.experiments.shipping import shipped
from lohe.experiments.store.store import Store
from lohe.experiments.studies.robust.physics import (
    AT_STAKE,
    by_seed,
    coupling,
    frequency,
    measure,
    scores,
    settling,
    spaced,
    state,
)
from lohe.models import Oscillator
from lohe.train import Run, brief

GRID = (
    *AT_STAKE,
    *(make(0.5) for make in (coupling, state, frequency, settling)),
    settling(5.0),
    settling(30.0),
)
EXAMPLES, BATCH, DRAWS = 500, 250, 3
METRICS = {"SVA": "overall", "KeywordFeatures": "accuracy"}  # else perplexity, in nats


def models(bench: Bench) -> Iterator[tuple[str, Run, nn.Module]]:
    """The packaged oscillators whose corpora are there, by task and mechanism."""
    for run in shipped():
        if isinstance(run.model.attention, Oscillator):
            name = f"{type(run.task).__name__}, {brief(run.model.attention)}"
            try:
                bench.data(run)
            except FileNotFoundError as lacking:
                print(f"{name}, seed {run.seed}: left out. {lacking}")
                continue
            yield name, run, bench.model(run)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, help="data root; else $LOHE_DATA")
    cpu.get_ready()
    bench = Bench(Store(Path("results")), "cpu", parser.parse_args().data)
    result: dict[str, dict] = {}
    for name, run, model in models(bench):
        metric = METRICS.get(type(run.task).__name__, "nats")
        split = spaced(bench.data(run).valid, EXAMPLES)
        ideal = scores(model, run.task, split, BATCH)[metric]
        found = measure({run.seed: model}, run.task, split, GRID, DRAWS, batch=BATCH)
        of_name = result.setdefault(name, {"metric": metric, "as trained": [], "changes": {}})
        of_name["as trained"].append(ideal)
        for p in GRID:
            change = by_seed(found, p.name, p.level, metric)
            of_name["changes"].setdefault(f"{p.name} {p.level:g}", []).extend(change)
        print(name, "seed", run.seed, flush=True)
    for of_name in result.values():
        at_stake = fmean(of_name["changes"]["anywhere 1"])
        of_name["share"] = {what: fmean(c) / at_stake for what, c in of_name["changes"].items()}
    save("at_stake", {"corpora": COMPACT.name, "examples": EXAMPLES, "draws": DRAWS, **result})


if __name__ == "__main__":
    main()
