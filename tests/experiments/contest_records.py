"""Records as if the contest had been held, with perplexities of one's choice."""

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
from invented import measured as taken
from invented import record

from lohe.experiments.contest import choose, measured
from lohe.experiments.contest.beyond import BeyondLength
from lohe.experiments.contest.later import LATER_STAGES, later_runs
from lohe.experiments.contest.measured import Devices
from lohe.experiments.contest.readouts import LearnedReadout
from lohe.experiments.contest.stages import Chosen
from lohe.experiments.contest.trials import FAMILIES, OURS, configured, trial_runs
from lohe.experiments.evidence import Evidence
from lohe.experiments.setting import Setting
from lohe.experiments.store.records import Record
from lohe.experiments.studies.rank.attention_entropy import AttentionEntropy
from lohe.experiments.studies.rank.concentration import Concentration
from lohe.experiments.studies.rank.effective_rank import EffectiveRank
from lohe.experiments.studies.robust.physics import AT_STAKE, GRID
from lohe.experiments.studies.settle.settling import Settling
from lohe.train import Run

Truth = Callable[[Run], float]  # perplexity that a run is given, up to its seed's noise

# what `truth` prefers
OUR_BEST = configured(OURS, {"learning_rate": 8e-3, "dropout": 0.2, "d_osc": 32, "sharpness": 4})
THEIR_FAMILY = "softmax, rotary"
TARGETS = [100, 250, 30]  # scored words of three test articles


def truth(run: Run) -> float:
    """Softmax 100, ours from 115 down to a floor of 95; other rates and dropouts cost a little."""
    m = run.model.attention
    if hasattr(m, "d_osc"):
        base = 95 + 20 / m.d_osc + (6 if getattr(m, "sharpness", 4) == 1 else 0)
        base += 0.5 * abs(math.log2(getattr(m, "sharpness", 4) / 4)) + (m.d_osc == 48)
    else:
        base = 98.5 if type(m) is type(FAMILIES[THEIR_FAMILY].mechanism) else 100
    return base + abs(math.log2(run.optimizer.lr / 8e-3)) + (0.2 - run.model.dropout)


def invented(runs: Iterable[Run], truth: Truth = truth, noise: float = 0.002) -> list[Record]:
    """A record a run; test, and its articles, only where the run's task has it."""
    return [_record(run, truth(run), noise) for run in runs]


def _record(run: Run, perplexity: float, noise: float) -> Record:
    rng = np.random.default_rng([run.seed, *str(run.model.attention).encode()])
    nats = {split: math.log(perplexity) + noise * rng.standard_normal() for split in SPLITS}
    if not run.task.test:
        del nats["test"]
    result = {f"{split}.nats": x for split, x in nats.items()}
    result |= {f"{split}.perplexity": math.exp(x) for split, x in nats.items()}
    made = record(run.recipe(), run.seed, result)
    if not run.task.test:
        curve = [{"perplexity": result["valid.perplexity"] * (1 + 1 / n)} for n in range(1, 25)]
        return replace(made, notes={"epoch": 20}, curve=curve)
    articles = {
        "article_nll": [n * nats["test"] for n in TARGETS],
        "article_targets": [float(n) for n in TARGETS],
    }
    return replace(made, notes={"epoch": 20, "parts": {"test": articles}})


SPLITS = ("valid", "later", "test")


def evidence(records: Iterable[Record]) -> Evidence:
    return Evidence(records, Setting())


@cache
def trials(truth: Truth = truth) -> list[Record]:
    return invented((run for family in FAMILIES for run in trial_runs(family)), truth)


@cache
def chosen_records(truth: Truth = truth) -> list[Record]:
    """Trials and search."""
    found = list(trials(truth))
    while lacking := choose.missing(there := evidence(found), choose.known_runs(there)):
        found += invented(lacking, truth)
    return found


def chosen(evidence: Evidence) -> Chosen:
    """What was chosen, where all is there that it takes."""
    found = choose.chosen(evidence)
    assert found is not None
    return found


@cache
def everything(truth: Truth = truth) -> list[Record]:
    """All stages; runs that two of them share are there once."""
    found = list(chosen_records(truth))
    won = chosen(evidence(found))
    for stage in LATER_STAGES:
        while True:  # some runs follow from others
            there = evidence(found)
            runs = later_runs(stage, there, won)
            if not (lacking := choose.missing(there, dict.fromkeys(runs))):
                break
            found += invented(lacking, truth)
    return found + [looked_at(m) for m in measured.measures(won)]


def looked_at(measure: Any) -> Record:
    """A record as if the measure had been taken: sizes of a model of two layers and two heads."""
    mechanism = measure.run.model.attention
    heads = [{"layer": layer, "head": head} for layer in range(2) for head in range(2)]
    match measure:
        case BeyondLength():
            ways = ("spread",) if hasattr(mechanism, "d_osc") else ("spread", "continued")
            curve = [
                {"words": w, "positions": way, "perplexity": 100.0 + w, "nats": math.log(100 + w)}
                for w in measure.words
                for way in ways
            ]
            return taken(measure, {"targets": 1000}, curve)
        case EffectiveRank():
            names = {"attention": 20.0}
            if hasattr(mechanism, "d_osc"):
                names |= {"similarity": 3.0}
            if getattr(mechanism, "gain", None) is not None:
                names |= {"readout": 30.0}
            ranks = {f"{name}.rank": 2 * x for name, x in names.items()}
            ranks |= {"clamped": 0.125} if "readout" in names else {}
            return taken(measure, ranks, [head | names for head in heads])
        case AttentionEntropy():
            return taken(measure, {}, [{"histogram": [1]}, *(h | {"median": 0.7} for h in heads)])
        case Concentration():
            bound = {"bound": 20.0, "share": 0.6} if hasattr(mechanism, "gain") else {}
            curve = [h | {"weight": 12.0} | bound for h in heads]
            return taken(measure, {"rows": 128, "keys": 48}, curve)
        case LearnedReadout():
            learned = {"beta": 3.0} if hasattr(mechanism, "beta") else {"sharpness": 4.0}
            curve = [h | learned | {"gain": 1.0 + h["head"]} for h in heads]
            return taken(measure, {"heads": 4}, curve)
        case Devices():
            rows = [(p.name, p.level) for p in (*GRID, *AT_STAKE)]
            change = 1e-3 * (1 + measure.run.seed % 7)
            curve = [{"physics": n, "level": x, "nats": [change * x]} for n, x in rows]
            return taken(measure, {"perplexity": 95.0}, curve)
        case Settling():
            curve = [{"layer": 1, "horizon": t, "converged": 0.99} for t in measure.horizons]
            return taken(measure, {"norm.median": 4.2}, curve)
    raise TypeError(measure)
