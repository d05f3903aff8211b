"""What was chosen, and what each later stage trains: configurations by name, and their runs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from lohe.experiments.contest.rotary import ExponentialRope, OscillatorRope, SoftmaxRopePositions
from lohe.experiments.contest.trials import MATCHED, OURS, PUBLISHED, ROTARY, STAGES, Configuration
from lohe.models import ExponentialReadout, FrozenAnchors, LearnedSharpness, Mechanism, NoDynamics
from lohe.train import Run

ASKED = (16, 32)  # d_osc at which a win is asked for
LENGTHS = (48, 128, 256)  # inputs, each of a window of a word more; the first is everyone's
LARGE: Mapping[str, int] = {"layers": 6, "d_model": 384, "heads": 6, "d_ff": 1536}
LARGE_TOKENS, LARGE_PATIENCE = 256, 3
# its learning rates: two in any case, from the one of this index on; the next on the better side
LARGE_RATES, LARGE_FIRST = (2.5e-4, 5e-4, 1e-3, 2e-3, 4e-3, 8e-3), 2
MORE_EPOCHS: Mapping[str, float] = {  # of the learning rate that was chosen for 10 epochs
    "30 epochs": 1.0,
    "30 epochs, half the learning rate": 0.5,
}
FITTED, HELD_OUT = (2, 4, 8, 16, 32), (24, 48)


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
    def families(self) -> dict[str, Configuration]:
        """Ours, then every softmax, by family."""
        return {OURS: self.ours, **dict(self.softmaxes)}

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
        "p = 1, learned gain": replace(o, sharpness=1),
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


def larger(configuration: Configuration, stage: str = "scale") -> list[Run]:
    """Six layers, 256 inputs; training ends once validation stops improving."""
    return [
        replace(run, model=replace(run.model, **LARGE), patience=LARGE_PATIENCE)
        for run in STAGES[stage].runs(configuration, tokens=LARGE_TOKENS)
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


# what stages train that need nothing but the choice; `later` has all
LATER_RUNS: Mapping[str, Callable[[Chosen], list[Run]]] = {
    "confirm": confirm_runs,
    "controls": control_runs,
    "law": law_runs,
    "length": length_runs,
    "epochs": epochs_runs,
    "rotary": rotary_runs,
    "published": published_runs,
}
