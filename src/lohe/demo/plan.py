"""What the demo trains and measures."""

from dataclasses import dataclass, replace

from lohe.experiments.recipes import agreement
from lohe.experiments.studies.sva.agreement_cohort import AS_PUBLISHED
from lohe.models import Mechanism, Softmax
from lohe.train import Run

SOFTMAX, OSCILLATOR = "softmax", "oscillator, as published"
MECHANISMS: dict[str, Mechanism] = {SOFTMAX: Softmax(), OSCILLATOR: AS_PUBLISHED}


@dataclass(frozen=True)
class Plan:
    """The published recipe at three seeds; the last three fields cut it short, for tests."""

    seeds: tuple[int, ...] = (0, 1, 2)
    draws: int = 3
    epochs: int | None = None
    limit: int | None = None
    sentences: int | None = None  # of the validation split, for the physics

    @property
    def published(self) -> bool:
        """Whether nothing is cut short, so that numbers can be compared."""
        return (self.epochs, self.limit, self.sentences) == (None, None, None)

    def runs(self) -> dict[str, Run]:
        """One run for each mechanism, to be trained at every seed."""
        whole = {name: agreement(mechanism) for name, mechanism in MECHANISMS.items()}
        return {
            name: replace(run, epochs=self.epochs or run.epochs, limit=self.limit)
            for name, run in whole.items()
        }
