"""What competes: families of mechanisms, the trials drawn from each, and the runs they become."""

import json
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import resources
from itertools import product
from typing import Any

from lohe.experiments import recipes
from lohe.models import (
    Mechanism,
    Oscillator,
    Softmax,
    SoftmaxAlibi,
    SoftmaxCosine,
    SoftmaxPositions,
    SoftmaxRope,
    SoftmaxTemperature,
)
from lohe.models.positions import Positions
from lohe.tasks import WikiText2Articles
from lohe.tasks.wikitext2 import Protocol
from lohe.train import AdamW, Run, brief

SEED = 6  # of the draws
TRIALS = 24  # of each family
SHARED: Mapping[str, tuple[Any, ...]] = {
    "learning_rate": (2.5e-4, 5e-4, 1e-3),
    "dropout": (0.1, 0.2),
}
OWN_POSITIONS = ("none", "sinusoidal")  # a mechanism with positions of its own may do without


@dataclass(frozen=True)
class Family:
    """A mechanism, and what may be chosen about it besides the shared options.

    `positions` is the model's, everything else a field of the mechanism.
    """

    mechanism: Mechanism
    choices: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)


OURS, MATCHED, ROTARY = "oscillator", "softmax, positions in every layer", "softmax, rotary"
FAMILIES: Mapping[str, Family] = {
    OURS: Family(Oscillator(gain="learned"), {"d_osc": (8, 16, 32, 48), "sharpness": (1, 2, 4, 8)}),
    "softmax": Family(Softmax()),
    "softmax, temperature": Family(SoftmaxTemperature(), {"temperature": (0.5, 1.0)}),
    MATCHED: Family(SoftmaxPositions(), {"deviation": (0.02, 0.2), "positions": OWN_POSITIONS}),
    ROTARY: Family(SoftmaxRope(), {"base": (100.0, 10_000.0), "positions": OWN_POSITIONS}),
    "softmax, linear biases": Family(
        SoftmaxAlibi(), {"octaves": (4.0, 8.0), "positions": OWN_POSITIONS}
    ),
    "softmax, cosine": Family(SoftmaxCosine(), {"scale": (3.0, 10.0)}),
}
RIVALS = tuple(name for name in FAMILIES if name != OURS)
# whose trials were trained; where they were not, all settings are compared at one learning rate
TRIED = (OURS, "softmax", "softmax, temperature", MATCHED, ROTARY)


@dataclass(frozen=True)
class Configuration:
    """A mechanism and how it is trained: what is drawn, compared and chosen."""

    mechanism: Mechanism
    learning_rate: float = 5e-4
    dropout: float = 0.1
    positions: Positions = "sinusoidal"


RunsOf = Callable[[Configuration], list[Run]]  # what a stage trains of one

PUBLISHED: Mapping[str, Configuration] = {
    "softmax as published": Configuration(Softmax()),
    "oscillator as published": Configuration(Oscillator(d_osc=32, anchors="free")),
}


@dataclass(frozen=True)
class Stage:
    """How long, how exactly and with which seeds a configuration is trained."""

    epochs: int
    seeds: tuple[int, ...]
    precision: str = "float32"
    test: bool = False

    def runs(
        self,
        configuration: Configuration,
        seeds: Iterable[int] | None = None,
        protocol: Protocol = "strict",
        tokens: int = 48,
    ) -> list[Run]:
        """A run a seed, with as many words in a batch whatever the length; all paired by seed."""
        c = configuration
        base = recipes.wikitext2(c.mechanism)
        run = replace(
            base,
            task=WikiText2Articles(
                release="tokens", protocol=protocol, test=self.test, tokens=tokens
            ),
            model=replace(base.model, dropout=c.dropout, positions=c.positions),
            optimizer=AdamW(lr=c.learning_rate),
            batch=base.batch * 48 // tokens,
            epochs=self.epochs,
            precision=self.precision,
            paired=True,
        )
        return [replace(run, seed=s) for s in (self.seeds if seeds is None else seeds)]


# Seeds of a later stage are none of an earlier one's: what was chosen by luck is not lucky again.
STAGES: Mapping[str, Stage] = {
    "trials": Stage(epochs=10, seeds=(0, 1), precision="tf32"),
    "rates": Stage(epochs=10, seeds=(70, 71)),
    "confirm": Stage(epochs=10, seeds=tuple(range(100, 110)), test=True),
    "controls": Stage(epochs=10, seeds=tuple(range(100, 105)), test=True),
    "law": Stage(epochs=10, seeds=tuple(range(40, 45)), precision="tf32"),
    "published": Stage(epochs=30, seeds=tuple(range(100, 110)), test=True),
    "length": Stage(epochs=10, seeds=(50, 51, 52), precision="tf32"),
    "scale rates": Stage(epochs=10, seeds=(60, 61), precision="tf32"),
    "scale": Stage(epochs=10, seeds=tuple(range(110, 115)), precision="tf32", test=True),
    "epochs": Stage(epochs=30, seeds=(50, 51, 52), precision="tf32"),  # paired with T = 48's
    "rotary": Stage(epochs=10, seeds=tuple(range(100, 110)), test=True),
}
# learning rates of the search: the first two in any case, the next while the last is the best
RATES = (2e-3, 4e-3, 8e-3, 1.6e-2, 3.2e-2, 6.4e-2)
COMPARED_AT = 4e-3  # settings of a family without trials


@dataclass(frozen=True)
class Trial:
    """One draw: options by name, and the seeds that are trained for it."""

    family: str
    options: Mapping[str, Any]
    seeds: tuple[int, ...]

    @property
    def configuration(self) -> Configuration:
        return configured(self.family, self.options)


def configured(family: str, options: Mapping[str, Any]) -> Configuration:
    """The family's mechanism with these options."""
    outside = {"learning_rate", "dropout", "positions"}
    inside = {k: v for k, v in options.items() if k not in outside}
    mechanism: Any = FAMILIES[family].mechanism
    trained = {k: v for k, v in options.items() if k in outside}
    return Configuration(replace(mechanism, **inside), **trained)


def draw(family: str) -> list[Trial]:
    """The family's trials: its settings shuffled, dealt, and shuffled again when all are dealt.

    So a family of few settings meets each of them equally often, give or take one, and a setting
    that is dealt again gets further seeds: every family trains as many models.
    """
    space = {**SHARED, **FAMILIES[family].choices}
    settings = [dict(zip(space, values, strict=True)) for values in product(*space.values())]
    rng = random.Random(f"{SEED} {family}")  # random() is the same in every version of Python
    dealt: list[Trial] = []
    while len(dealt) < TRIALS:
        first = 2 * (len(dealt) // len(settings))
        shuffled = sorted(settings, key=lambda _: rng.random())
        dealt += [Trial(family, options, (first, first + 1)) for options in shuffled]
    return dealt[:TRIALS]


@cache
def protocol() -> dict[str, Any]:
    """protocol.json, as committed."""
    file = resources.files("lohe.experiments.contest") / "protocol.json"
    return json.loads(file.read_text(encoding="utf-8"))


@cache
def trials(family: str) -> tuple[Trial, ...]:
    """The trials of a family that were committed."""
    return tuple(
        Trial(family, {k: v for k, v in options.items() if k != "seeds"}, tuple(options["seeds"]))
        for options in protocol()["families"][family]["trials"]
    )


@cache
def trial_runs(family: str) -> tuple[Run, ...]:
    """The runs of a family's trials."""
    stage = STAGES["trials"]
    return tuple(run for t in trials(family) for run in stage.runs(t.configuration, t.seeds))


def as_text(configuration: Configuration) -> str:
    """For people: the mechanism, and how it is trained."""
    c = configuration
    trained = f"learning rate {c.learning_rate:g}, dropout {c.dropout:g}"
    return f"{brief(c.mechanism)}, {trained}{_positions(c)}"


def setting_text(configuration: Configuration) -> str:
    """The mechanism alone, with what it has of positions."""
    return f"{brief(configuration.mechanism)}{_positions(configuration)}"


def _positions(c: Configuration) -> str:
    return ", no sinusoids" if c.positions == "none" else ""
