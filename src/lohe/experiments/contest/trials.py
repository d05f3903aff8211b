"""What competes: families of mechanisms, the trials drawn from each, and the runs they become."""

import json
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from importlib import resources
from itertools import product
from typing import Any

from lohe.experiments import recipes
from lohe.experiments.contest.rotary import ExponentialRope, OscillatorRope, SoftmaxRopePositions
from lohe.models import (
    ExponentialReadout,
    FrozenAnchors,
    LearnedSharpness,
    Mechanism,
    NoDynamics,
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
    "scale": Stage(epochs=10, seeds=(60, 61, 62), precision="tf32"),
    "epochs": Stage(epochs=30, seeds=(50, 51, 52), precision="tf32"),  # paired with T = 48's
    "rotary": Stage(epochs=10, seeds=tuple(range(100, 110)), test=True),
}
# learning rates of the search: the first two in any case, the next while the last is the best
RATES = (2e-3, 4e-3, 8e-3, 1.6e-2, 3.2e-2, 6.4e-2)
COMPARED_AT = 4e-3  # settings of a family without trials
ASKED = (16, 32)  # d_osc at which a win is asked for
LENGTHS = (48, 128, 256)  # inputs, each of a window of a word more; the first is everyone's
LARGE: Mapping[str, int] = {"layers": 6, "d_model": 384, "heads": 6, "d_ff": 1536}
LARGE_TOKENS, LARGE_PATIENCE = 256, 3
LARGE_RATE = 0.25  # of the learning rate that was chosen for the small one
MORE_EPOCHS: Mapping[str, float] = {  # of the learning rate that was chosen for 10 epochs
    "30 epochs": 1.0,
    "30 epochs, half the learning rate": 0.5,
}
FITTED, HELD_OUT = (2, 4, 8, 16, 32), (24, 48)


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


@dataclass(frozen=True)
class Chosen:
    """What the search chose: ours, and every softmax at its best."""

    ours: Configuration
    softmaxes: tuple[tuple[str, Configuration], ...]  # by family, the best on validation first

    @property
    def family(self) -> str:
        """The best softmax's."""
        return self.softmaxes[0][0]

    @property
    def best(self) -> Configuration:
        return self.softmaxes[0][1]

    @property
    def matched(self) -> Configuration:
        """Softmax with the numbers of the anchors in position tables."""
        return dict(self.softmaxes)[MATCHED]

    @property
    def rotary(self) -> Configuration:
        """Softmax with rotary positions."""
        return dict(self.softmaxes)[ROTARY]


def asked(ours: Configuration) -> dict[int, Configuration]:
    """The chosen oscillator at the dimensions that the question asks about."""
    mechanism: Any = ours.mechanism
    return {d: replace(ours, mechanism=replace(mechanism, d_osc=d)) for d in ASKED}


def narrower(ours: Configuration) -> dict[str, Configuration]:
    """Those of them that are not the chosen one itself."""
    return {f"oscillator, d_osc = {d}": c for d, c in asked(ours).items() if c != ours}


def best_name(chosen: Chosen) -> str:
    """The best softmax is called by its family."""
    return f"best softmax ({chosen.family})"


def in_both_protocols(chosen: Chosen) -> dict[str, Configuration]:
    """The four of the question, by name."""
    return {"ours": chosen.ours, best_name(chosen): chosen.best} | dict(PUBLISHED)


def to_confirm(chosen: Chosen) -> dict[str, Configuration]:
    """All that is scored on test by the strict protocol to say who wins, by name."""
    others = dict(chosen.softmaxes[1:])
    return in_both_protocols(chosen) | narrower(chosen.ours) | others


def stage_of(configuration: Configuration) -> str:
    """Those as published are trained as long as it was published."""
    return "published" if configuration in PUBLISHED.values() else "confirm"


def once(named: Mapping[str, Configuration]) -> dict[str, Configuration]:
    """A configuration that has two names stands under the first."""
    names: dict[Configuration, str] = {}
    for name, c in named.items():
        names.setdefault(c, name)
    return {name: c for c, name in names.items()}


def confirm_runs(chosen: Chosen) -> list[Run]:
    """Everything by the strict protocol, ours and the best softmax by the published one too."""
    return _in_stage("confirm", chosen)


def published_runs(chosen: Chosen) -> list[Run]:
    """Softmax and oscillator as published, by either protocol."""
    return _in_stage("published", chosen)


def _in_stage(name: str, chosen: Chosen) -> list[Run]:
    strict = [c for c in to_confirm(chosen).values() if stage_of(c) == name]
    beside = [c for c in in_both_protocols(chosen).values() if stage_of(c) == name]
    found = [run for c in strict for run in STAGES[name].runs(c)]
    return found + [run for c in beside for run in STAGES[name].runs(c, protocol="published")]


def controls(ours: Configuration) -> dict[str, Configuration]:
    """The chosen oscillator with one part changed, each once: which part does the work?"""
    o: Any = ours.mechanism
    parts = {"d_osc": o.d_osc, "sharpness": o.sharpness, "gain": o.gain}
    mechanisms: dict[str, Mechanism] = {
        "p = 1, no gain": replace(o, sharpness=1, gain=None),
        "no gain": replace(o, gain=None),
        "p = 1": replace(o, sharpness=1),
        "free anchors": replace(o, anchors="free"),
        "frozen anchors": FrozenAnchors(**parts),
        "no dynamics": NoDynamics(**parts),
        "exponential readout": ExponentialReadout(d_osc=o.d_osc, beta=float(max(o.sharpness, 1))),
        "learned p": LearnedSharpness(d_osc=o.d_osc, start=float(max(o.sharpness, 2)), gain=o.gain),
    }
    found = {name: replace(ours, mechanism=m) for name, m in mechanisms.items()}
    found["no other positions"] = replace(ours, positions="none")
    return {name: c for name, c in once(found).items() if c != ours}


def control_runs(chosen: Chosen) -> list[Run]:
    return [run for c in controls(chosen.ours).values() for run in STAGES["controls"].runs(c)]


def curves(ours: Configuration) -> dict[str, dict[int, Configuration]]:
    """By d_osc: p = 1 as defined, and the chosen p with its gain; trained as the chosen one is."""
    chosen: Any = ours.mechanism
    kinds = {"p = 1": replace(chosen, sharpness=1, gain=None), "chosen": chosen}
    return {
        name: {
            d: replace(ours, mechanism=replace(m, d_osc=d)) for d in sorted((*FITTED, *HELD_OUT))
        }
        for name, m in kinds.items()
    }


def law_runs(chosen: Chosen) -> list[Run]:
    """Both curves, the softmax that they are compared with, and the plain one."""
    there = [c for curve in curves(chosen.ours).values() for c in curve.values()]
    there += [chosen.best, plain(chosen)]
    return [run for c in dict.fromkeys(there) for run in STAGES["law"].runs(c)]


def plain(chosen: Chosen) -> Configuration:
    """Softmax without anything, at its best."""
    return dict(chosen.softmaxes)["softmax"]


def longer(configuration: Configuration, tokens: int) -> list[Run]:
    """So many inputs, and as many words in a batch as ever."""
    return STAGES["length"].runs(configuration, tokens=tokens)


def larger(configuration: Configuration) -> list[Run]:
    """Six layers, 256 inputs; training ends once validation stops improving."""
    slower = replace(configuration, learning_rate=LARGE_RATE * configuration.learning_rate)
    return [
        replace(run, model=replace(run.model, **LARGE), patience=LARGE_PATIENCE)
        for run in STAGES["scale"].runs(slower, tokens=LARGE_TOKENS)
    ]


def trained_longer(configuration: Configuration, rate: float) -> list[Run]:
    """30 epochs, at such a part of its learning rate."""
    slower = replace(configuration, learning_rate=rate * configuration.learning_rate)
    return STAGES["epochs"].runs(slower)


def epochs_runs(chosen: Chosen) -> list[Run]:
    rates, both = MORE_EPOCHS.values(), (chosen.ours, chosen.best)
    return [run for rate in rates for c in both for run in trained_longer(c, rate)]


def length_runs(chosen: Chosen) -> list[Run]:
    return [run for t in LENGTHS for c in (chosen.ours, chosen.best) for run in longer(c, t)]


def scale_runs(chosen: Chosen) -> list[Run]:
    three = dict.fromkeys((chosen.ours, chosen.best, plain(chosen)))
    return [run for c in three for run in larger(c)]


def confirmed_spheres(chosen: Chosen) -> dict[str, Configuration]:
    """Ours as chosen, and at the dimensions that the question asks about, by name."""
    return {"ours": chosen.ours} | narrower(chosen.ours)


def with_rotations(
    ours: Configuration, chosen: Chosen, kind: type[OscillatorRope]
) -> Configuration:
    """One of them with the rotations of the best rotary softmax in its couplings; nothing is tuned.

    Whether there are sinusoids besides is taken from there, too.
    """
    m, rotary = _any(ours.mechanism), _any(chosen.rotary.mechanism)
    mechanism = kind(m.d_osc, m.sharpness, m.gain, rotary.base)
    return replace(ours, mechanism=mechanism, positions=chosen.rotary.positions)


def turned(chosen: Chosen) -> dict[str, tuple[Configuration, Configuration]]:
    """Each of ours without and with rotations: those of softplus, then the exponential ones."""
    kinds = {"rotary": OscillatorRope, "rotary, exp": ExponentialRope}
    return {
        f"{name}, {how}": (plain, with_rotations(plain, chosen, kind))
        for how, kind in kinds.items()
        for name, plain in confirmed_spheres(chosen).items()
    }


def with_both(chosen: Chosen) -> Configuration:
    """Their opponent besides the best softmax: a rotary softmax with a table in every layer, too.

    It has what an oscillator with rotary couplings has of positions.
    """
    rotary, tables = _any(chosen.rotary.mechanism), _any(chosen.matched.mechanism)
    return replace(chosen.rotary, mechanism=SoftmaxRopePositions(rotary.base, tables.deviation))


def _any(mechanism: Mechanism) -> Any:
    """With the fields of its own kind, which its type does not tell."""
    return mechanism


def rotary_runs(chosen: Chosen) -> list[Run]:
    ours = [c for _, c in turned(chosen).values()]
    return [run for c in (*ours, with_both(chosen)) for run in STAGES["rotary"].runs(c)]


# what each stage after the choice trains
LATER_RUNS: Mapping[str, Callable[[Chosen], list[Run]]] = {
    "confirm": confirm_runs,
    "controls": control_runs,
    "law": law_runs,
    "published": published_runs,
    "length": length_runs,
    "scale": scale_runs,
    "epochs": epochs_runs,
    "rotary": rotary_runs,
}


def as_text(configuration: Configuration) -> str:
    """For people: the mechanism, and how it is trained."""
    c = configuration
    trained = f"learning rate {c.learning_rate:g}, dropout {c.dropout:g}"
    return f"{brief(c.mechanism)}, {trained}" + (", no sinusoids" if c.positions == "none" else "")


def seconds(run: Run, seeds: int) -> float:
    """What a pack may take on the protocol's GPU, from the speed that the protocol states."""
    speed = protocol()["speed"]
    factor = speed["tf32"] if run.precision == "tf32" else 1.0
    factor *= speed["large"] if run.model.layers == LARGE["layers"] else 1.0
    epoch = factor * (speed["epoch"] + speed["seed_epoch"] * seeds)
    return speed["start"] + run.epochs * epoch


def seconds_in_all(packs: Iterable[tuple[Run, int]]) -> float:
    """Of packs, each a run and its number of seeds; a first one of a kind compiles its kernels."""
    packs = list(packs)
    kinds = {(type(run.model.attention), run.precision) for run, _ in packs}
    compiling = protocol()["speed"]["compile"] * len(kinds)
    return compiling + sum(seconds(run, seeds) for run, seeds in packs)


def generated() -> dict[str, Any]:
    """The parts of protocol.json that follow from this module."""
    return {
        "seed": SEED,
        "space": {k: list(v) for k, v in SHARED.items()},
        "search": {
            "after trials of": list(TRIED),
            "settings compared at": COMPARED_AT,
            "learning rates": list(RATES),
            "of the best in stage epochs": list(MORE_EPOCHS.values()),
            "of the best in stage scale": LARGE_RATE,
        },
        "stages": {
            name: asdict(stage) | {"seeds": list(stage.seeds)} for name, stage in STAGES.items()
        },
        "families": {
            name: {
                "mechanism": type(family.mechanism).__name__,
                "choices": {k: list(v) for k, v in family.choices.items()},
                "trials": [dict(t.options) | {"seeds": list(t.seeds)} for t in draw(name)],
            }
            for name, family in FAMILIES.items()
        },
    }
