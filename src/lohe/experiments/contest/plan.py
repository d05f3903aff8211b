"""What follows from the code: the generated parts of protocol.json, and how long stages take."""

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from lohe.experiments.contest.stages import (
    LARGE,
    LARGE_FIRST,
    LARGE_PATIENCE,
    LARGE_RATES,
    LARGE_TOKENS,
    MORE_EPOCHS,
)
from lohe.experiments.contest.trials import (
    COMPARED_AT,
    FAMILIES,
    RATES,
    SEED,
    SHARED,
    STAGES,
    TRIED,
    draw,
    protocol,
)
from lohe.train import Run


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
    """The parts of protocol.json that follow from the code."""
    return {
        "seed": SEED,
        "space": {k: list(v) for k, v in SHARED.items()},
        "search": {
            "after trials of": list(TRIED),
            "settings compared at": COMPARED_AT,
            "learning rates": list(RATES),
            "of the best in stage epochs": list(MORE_EPOCHS.values()),
            "stage scale": {
                **LARGE,
                "tokens": LARGE_TOKENS,
                "patience": LARGE_PATIENCE,
                "learning rates": list(LARGE_RATES),
                "first": list(LARGE_RATES[LARGE_FIRST : LARGE_FIRST + 2]),
            },
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
