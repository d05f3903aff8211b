"""A run is a value: everything that decides its numbers, and nothing else."""

import math
import re
from collections.abc import Collection
from dataclasses import dataclass, fields, is_dataclass, replace
from numbers import Real
from typing import Any, Literal

import torch
from torch import Tensor

from lohe.tasks import Data, Task

LATER = ("patience", "paired")  # options that earlier recipes did not have
PRECISIONS = ("float32", "tf32", "bf16", "float64")


@dataclass(frozen=True)
class AdamW:
    """Adam with decoupled weight decay, on every parameter (SVA and language models)."""

    lr: float
    weight_decay: float = 1e-4

    def __post_init__(self) -> None:
        _check_rates(self)

    def build(
        self, parameters: list[Tensor], lr: Tensor | float, **how: Any
    ) -> torch.optim.Optimizer:
        return torch.optim.AdamW(parameters, lr=lr, weight_decay=self.weight_decay, **how)


@dataclass(frozen=True)
class Adam:
    """Adam with L2 decay inside the gradient: what the published keyword spotting used (D4)."""

    lr: float
    weight_decay: float = 1e-4

    def __post_init__(self) -> None:
        _check_rates(self)

    def build(
        self, parameters: list[Tensor], lr: Tensor | float, **how: Any
    ) -> torch.optim.Optimizer:
        return torch.optim.Adam(parameters, lr=lr, weight_decay=self.weight_decay, **how)


@dataclass(frozen=True)
class Run:
    """One model trained once.

    The learning rate falls as a cosine to 0, step by step or (`schedule="epoch"`) epoch by epoch.
    Gradients are clipped at a global norm of `clip`. `select` says which epoch is reported: "last",
    or "lowest perplexity" / "highest accuracy" over epochs on the split `valid`, as published.
    `limit` cuts every split (for smoke runs). `patience` ends a pack once none of its seeds has
    improved for so many epochs; the schedule stays that of `epochs`. `paired`: the order of the
    examples depends on the seed alone, so that other models with this seed see the same batches.
    """

    task: Task
    model: Any  # a configuration of lohe.models, with build(data, generator)
    optimizer: AdamW | Adam
    batch: int
    epochs: int
    schedule: str = "step"
    clip: float = 1.0
    select: str = "last"
    precision: str = "float32"
    limit: int | None = None
    patience: int | None = None
    paired: Literal[True] | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.batch < 1 or self.epochs < 1:
            raise ValueError(
                f"A run needs batch >= 1 and epochs >= 1, got {self.batch}, {self.epochs}."
            )
        _one_of("schedule", self.schedule, ("step", "epoch"))
        _one_of("precision", self.precision, PRECISIONS)
        if not self.clip > 0 or (self.limit is not None and self.limit < 1):
            raise ValueError(
                f"A run needs clip > 0 and limit >= 1 or None, got {self.clip}, {self.limit}."
            )
        if self.patience is not None and (not self.patience >= 1 or self.select == "last"):
            raise ValueError(
                f"patience={self.patience} with select={self.select!r}: give a number of epochs "
                "from 1 on, and select by a metric that can stop improving."
            )
        if not re.fullmatch(r"last|(lowest|highest) \S+", self.select):
            raise ValueError(
                f'select={self.select!r} is not known. Write "last", "lowest METRIC" or "highest '
                'METRIC".'
            )

    def limited(self, data: Data) -> Data:
        """The data as the run sees it: every split cut to `limit` examples."""
        if self.limit is None:
            return data
        cut = {id(s): s.take(slice(self.limit)) for s in data.splits.values()}
        splits = {name: cut[id(split)] for name, split in data.splits.items()}
        return replace(data, splits=splits)

    def steps(self, data: Data) -> int:
        """Optimiser steps in an epoch; the last batch may be smaller."""
        return -(-self.examples(data) // self.batch)

    def examples(self, data: Data) -> int:
        return min(len(data.train), self.limit or len(data.train))

    def recipe(self) -> dict[str, Any]:
        """The run without its seed, as plain data; types by name.

        Options that came later are left out at their default, so that older records keep their key.
        """
        named = described(replace(self, seed=0))
        left_out = {"seed"} | {name for name in LATER if named[name] is None}
        return {k: v for k, v in named.items() if k not in left_out}


def described(value: Any) -> Any:
    """Nested dataclasses as dicts that also say their type; what JSON can hold."""
    if is_dataclass(value) and not isinstance(value, type):
        inside = {f.name: described(getattr(value, f.name)) for f in fields(value)}
        return {"type": type(value).__name__, **inside}
    if isinstance(value, (tuple, list)):
        return [described(v) for v in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(
        f"A run is made of dataclasses, numbers and strings, so that its hash names a record; got "
        f"{type(value).__name__}."
    )


def brief(value: Any, without: Collection[str] = ()) -> str:
    """repr without what is at its default, for people.

    >>> brief(AdamW(lr=0.01))
    'AdamW(lr=0.01)'
    """
    if not is_dataclass(value) or isinstance(value, type):
        return repr(value)
    given = unusual(value, without)
    return f"{type(value).__name__}({given})" if given else type(value).__name__


def unusual(value: Any, without: Collection[str] = ()) -> str:
    """What is not at its default: lr=0.01, for people."""
    return ", ".join(
        f"{f.name}={brief(getattr(value, f.name))}"
        for f in fields(value)
        if f.name not in without and getattr(value, f.name) != f.default
    )


def _check_rates(optimizer: AdamW | Adam) -> None:
    for rate in (optimizer.lr, optimizer.weight_decay):
        if not isinstance(rate, Real) or not 0 <= rate < math.inf:
            raise ValueError(f"Rates are numbers >= 0, got {optimizer}.")


def _one_of(name: str, given: str, known: tuple[str, ...]) -> None:
    if given not in known:
        raise ValueError(f"{name}={given!r} is not known. Choose from {', '.join(known)}.")
