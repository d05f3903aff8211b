"""What is looked at in trained models: which models, and which measures."""

from dataclasses import dataclass
from typing import Any

from lohe.experiments.contest.beyond import BeyondLength
from lohe.experiments.contest.readouts import LearnedReadout
from lohe.experiments.contest.stages import Chosen, best_name, controls
from lohe.experiments.contest.trials import STAGES
from lohe.experiments.evidence import Evidence
from lohe.experiments.measures import Bench, Measure, Taken, model_runs
from lohe.experiments.store.records import Record
from lohe.experiments.studies.rank.attention_entropy import AttentionEntropy
from lohe.experiments.studies.rank.concentration import Concentration
from lohe.experiments.studies.rank.effective_rank import EffectiveRank
from lohe.experiments.studies.robust.devices import on_devices
from lohe.experiments.studies.robust.physics import AT_STAKE, GRID, HORIZONS
from lohe.experiments.studies.settle.settling import Settling
from lohe.train import Run

SEEDS = 3  # of each model, the first that are confirmed; of the other controls the first alone
OURS, PLAIN, GAINED, LEARNED = "ours", "p = 1, no gain", "p = 1, learned gain", "learned p"
ON_DEVICES = (OURS, PLAIN, GAINED)


@dataclass(frozen=True)
class Devices:
    """The paper's robustness grid on the second half of validation: change of perplexity.

    And what there is to lose. On `examples` windows, evenly spaced. Frequency disorder in the
    published unit of its size: at d_osc = 32 each oscillator draws a matrix of frequencies and
    takes its exponential, hence not on all windows.
    """

    run: Run
    draws: int = 1
    examples: int = 500

    def take(self, bench: Bench) -> Taken:
        later = bench.data(self.run).splits["later"]
        grid = (*GRID, *AT_STAKE)
        return on_devices(self.run, bench, later, self.draws, self.examples, grid)


def models(chosen: Chosen) -> dict[str, list[Run]]:
    """The confirmed oscillator, the best softmax, and the controls."""
    first = STAGES["controls"].seeds[:SEEDS]
    return {
        OURS: STAGES["confirm"].runs(chosen.ours, first),
        best_name(chosen): STAGES["confirm"].runs(chosen.best, first),
    } | {
        name: STAGES["controls"].runs(c, first if name in (*ON_DEVICES, LEARNED) else first[:1])
        for name, c in controls(chosen.ours).items()
    }


def measures_of(chosen: Chosen, name: str) -> list[Any]:
    """What is measured on one of the models, all seeds together."""
    runs = models(chosen)[name]
    everywhere = (EffectiveRank, AttentionEntropy, Concentration)
    found: list[Any] = [kind(run) for run in runs for kind in everywhere]
    if name != best_name(chosen):
        found += [LearnedReadout(run) for run in runs]
    if name in ON_DEVICES:
        found += [Devices(run) for run in runs]
        found += [settling(run) for run in runs]
    if name in (OURS, best_name(chosen)):
        found += [BeyondLength(run) for run in runs]
    return found


def settling(run: Run) -> Settling:
    """How many oscillators have settled at each horizon of Table 9."""
    return Settling(run, solves=200, horizons=tuple(reversed(HORIZONS)))


def measures(chosen: Chosen) -> list[Measure]:
    return [m for name in models(chosen) for m in measures_of(chosen, name)]


def kept_runs(chosen: Chosen) -> list[Run]:
    """The runs whose weights are kept, since something is measured on them."""
    return model_runs(measures(chosen))


def found(evidence: Evidence, chosen: Chosen, name: str, kind: type) -> list[Record]:
    """What was recorded of one kind of measure on one model, in order of seed."""
    wanted = [m for m in measures_of(chosen, name) if isinstance(m, kind)]
    return [record for m in wanted if (record := evidence.measured(m)) is not None]
