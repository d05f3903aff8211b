"""The stages after the choice, and what each of them trains."""

from lohe.experiments.contest import large
from lohe.experiments.contest.stages import LATER_RUNS, Chosen
from lohe.experiments.evidence import Evidence
from lohe.train import Run

LATER_STAGES = (*LATER_RUNS, large.STAGE)  # in the order in which `contest all` does them


def later_runs(stage: str, evidence: Evidence, chosen: Chosen) -> list[Run]:
    """What such a stage trains, as far as it is known by now."""
    if stage == large.STAGE:
        return large.known_runs(evidence, chosen)
    return LATER_RUNS[stage](chosen)


def more_follow(stage: str, evidence: Evidence, chosen: Chosen) -> bool:
    """Whether what is trained now makes further runs of the stage known."""
    return stage == large.STAGE and not large.best(evidence, chosen)
