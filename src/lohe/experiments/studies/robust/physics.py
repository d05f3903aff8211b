"""A trained model as physics: its oscillators settle for a while, or on an imperfect device.

The perturbation models are Appendix C's, exact where the published ones were integrated:

    settling    the flow from uniform starts, cut off at a horizon
    coupling    w_ij e^ε, ε ~ N(0, s²), anew for every sentence
    state       normalize(z* + s N(0, I))
    frequency   a rotation rate N(0, s²/2) for each oscillator, from z* to the horizon 30; the
                published generator (M - Mᵀ)/2 with M_ij ~ N(0, s²) has this deviation, s/√2
    rotation    the same with deviation s, as the paper words it (D11)

Three are not of the paper. One is a device that keeps its errors; each example meets errors of the
same law as with `coupling`, so the mean over devices is the same, and what is new is how much they
differ. Two say how much there is to lose:

    device      w_ij e^ε, ε ~ N(0, s²), once for each head and pair
    anywhere    every oscillator points in a random direction, whatever its drive
    nowhere     z = 0, so that every key that may be read is read alike
"""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import nn

from lohe.attention import OscillatorAttention
from lohe.models import attention_layers
from lohe.substrates import (
    DeviceMismatch,
    FiniteHorizon,
    FrequencyDisorder,
    Mismatch,
    StateNoise,
    UniformStart,
)
from lohe.tasks import Split, Task, total

HORIZONS = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0)  # Table 9's
SCALES = (0.01, 0.05, 0.1, 0.2, 0.5)  # Figure 8's
LAST = 30.0  # where the published runs end

Change = Callable[[OscillatorAttention, torch.Generator], None]


@dataclass(frozen=True)
class Physics:
    """One way in which a device is not the closed form: its name, its size, what it changes."""

    name: str
    level: float
    change: Change


def settling(horizon: float) -> Physics:
    """Settling from uniform starts, cut short at the horizon."""

    def change(layer: OscillatorAttention, rng: torch.Generator) -> None:
        layer.settle = FiniteHorizon(horizon, generator=rng)

    return Physics("settling", horizon, change)


def coupling(scale: float) -> Physics:
    """Couplings off by factors."""

    def change(layer: OscillatorAttention, rng: torch.Generator) -> None:
        layer.drive = Mismatch(layer.drive, scale, rng)

    return Physics("coupling", scale, change)


def device(scale: float) -> Physics:
    """Couplings off by factors that stay."""

    def change(layer: OscillatorAttention, rng: torch.Generator) -> None:
        layer.drive = DeviceMismatch(layer.drive, scale, layer.heads, layer.max_tokens, rng)

    return Physics("device", scale, change)


def state(scale: float) -> Physics:
    """Noise on the settled states."""

    def change(layer: OscillatorAttention, rng: torch.Generator) -> None:
        layer.settle = StateNoise(layer.settle, scale, rng)

    return Physics("state", scale, change)


def frequency(scale: float) -> Physics:
    """Oscillators with frequencies of their own, in the published unit of `scale`."""

    def change(layer: OscillatorAttention, rng: torch.Generator) -> None:
        layer.settle = FrequencyDisorder(layer.settle, scale / math.sqrt(2), LAST, rng)

    return Physics("frequency", scale, change)


def rotation(scale: float) -> Physics:
    """Oscillators with frequencies of their own, of deviation `scale` itself."""
    return replace(frequency(math.sqrt(2) * scale), name="rotation", level=scale)


def anywhere() -> Physics:
    """Oscillators that know nothing of their drive: what noise leads to in the end."""

    def change(layer: OscillatorAttention, rng: torch.Generator) -> None:
        layer.settle = UniformStart(rng)

    return Physics("anywhere", 1.0, change)


def nowhere() -> Physics:
    """No oscillators: the mean over all keys that may be read."""

    def change(layer: OscillatorAttention, rng: torch.Generator) -> None:
        layer.settle = torch.zeros_like

    return Physics("nowhere", 1.0, change)


GRID = (
    *(settling(t) for t in HORIZONS),
    *(make(s) for make in (coupling, state, frequency) for s in SCALES),
)
AT_STAKE = (anywhere(), nowhere())


@contextmanager
def on(model: nn.Module, physics: Physics, rng: torch.Generator) -> Iterator[nn.Module]:
    """The model with every oscillator layer run by `physics`; as it was afterwards."""
    layers = [x for x in attention_layers(model) if isinstance(x, OscillatorAttention)]
    if not layers:
        raise ValueError(
            f"{type(model).__name__} has no oscillator layer for {physics.name} to act on: only "
            "models with lohe.models.Oscillator run by physics."
        )
    before = [(layer.drive, layer.settle) for layer in layers]
    try:
        for layer in layers:
            physics.change(layer, rng)
        yield model
    finally:
        for layer, (drive, settle) in zip(layers, before, strict=True):
            layer.drive, layer.settle = drive, settle


def spaced(split: Split, examples: int) -> Split:
    """So many examples, evenly spaced, since splits may be sorted; all if there are no more."""
    few = min(examples, len(split))
    return split.take(torch.arange(few) * len(split) // few)


@torch.no_grad()
def scores(model: nn.Module, task: Task, split: Split, batch: int = 1000) -> dict[str, float]:
    """The task's metrics of one model on one split."""
    parts = (split.take(slice(n, n + batch)) for n in range(0, len(split), batch))
    sums = total(task.tally(model(**part.inputs), part.targets) for part in parts)
    return {name: x.item() for name, x in task.score(sums).items()}


@dataclass(frozen=True)
class Measured:
    """Metrics of one trained seed on one draw of a device, minus those of the closed form."""

    name: str
    level: float
    seed: int
    draw: int
    change: dict[str, float]


def measure(
    models: Mapping[int, nn.Module],
    task: Task,
    split: Split,
    grid: tuple[Physics, ...] = GRID,
    draws: int = 3,
    heard: Callable[[], None] = lambda: None,
    batch: int = 1000,
) -> list[Measured]:
    """Every seed's model on `draws` devices of every kind; `heard` is called after each.

    A draw is one stream of random numbers, the same at every level: levels are compared on the
    same device, made better or worse.
    """
    found = []
    for seed, model in models.items():
        ideal = scores(model, task, split, batch)
        for physics in grid:
            for draw in range(draws):
                rng = torch.Generator().manual_seed(1000 * seed + draw)
                with on(model, physics, rng):
                    here = scores(model, task, split, batch)
                change = {name: here[name] - ideal[name] for name in ideal}
                found.append(Measured(physics.name, physics.level, seed, draw, change))
                heard()
    return found


def by_seed(measured: list[Measured], name: str, level: float, metric: str) -> list[float]:
    """The mean change over draws of each seed, in order of seed."""
    groups: dict[int, list[float]] = {}
    for m in measured:
        if (m.name, m.level) == (name, level):
            groups.setdefault(m.seed, []).append(m.change[metric])
    return [sum(groups[seed]) / len(groups[seed]) for seed in sorted(groups)]
