"""The shape that every task loads into, so that one loop can train any of them, many seeds at once.

A task is a small frozen dataclass. `load` turns files into `Data`; the loop then needs three pure
functions:

    loss(outputs, targets)  -> what a step minimises, one number
    tally(outputs, targets) -> sums over a batch, to be added up over batches (`total`)
    score(tally)            -> the metrics the paper prints, from such sums

All three work under `torch.func.vmap`, where each seed sees its own batch.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from lohe.tasks.progress import Progress, silent

Index = Int[Tensor, "*pack batch"] | slice
Examples = dict[str, Shaped[Tensor, "..."]]
Sums = dict[str, Shaped[Tensor, "..."]]


@dataclass(frozen=True, eq=False)
class Split:
    """Examples of one split: row n of every tensor is example n.

    `inputs` are the model's arguments, under their names and in the order of its signature;
    `targets` is what `loss` and `tally` read. Ids are kept as 16-bit integers (TinyStories would
    fill 5 GB as int64) and widened by `take`.
    """

    inputs: Examples
    targets: Examples

    def __len__(self) -> int:
        return len(next(iter(self.inputs.values())))

    def take(self, index: Index) -> "Split":
        """The examples at `index`, ids as int64, ready for a model.

        An index of shape (seeds, batch) gives every tensor these two leading axes: a batch for each
        seed of a pack.

        >>> tokens = torch.tensor([[1, 5, 2], [1, 7, 2]], dtype=torch.int16)
        >>> split = Split({"tokens": tokens}, {"label": torch.tensor([0, 1], dtype=torch.int16)})
        >>> split.take(torch.tensor([[0, 1], [1, 1]])).inputs["tokens"].shape
        torch.Size([2, 2, 3])
        """
        return self.each(lambda rows: _widen(rows[index]))

    def to(self, device: torch.device | str) -> "Split":
        return self.each(lambda rows: rows.to(device))

    def each(self, function: Callable[[Tensor], Tensor]) -> "Split":
        """A split with `function` of every tensor."""
        return Split(
            {name: function(rows) for name, rows in self.inputs.items()},
            {name: function(rows) for name, rows in self.targets.items()},
        )

    def tensors(self) -> list[Tensor]:
        return [*self.inputs.values(), *self.targets.values()]


@dataclass(frozen=True, eq=False)
class Data:
    """A loaded task: `train`, `valid`, often `test`, and any further split that has a name.

    `names[k]` is what id k stands for: a word of the vocabulary, or a class. `checksum` names the
    examples, and `facts` (JSON-able: release, front end, counts, checksums of the sources) says
    where they came from; records keep both.
    """

    splits: dict[str, Split]
    names: tuple[str, ...]
    checksum: str
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def train(self) -> Split:
        return self.splits["train"]

    @property
    def valid(self) -> Split:
        return self.splits["valid"]

    @property
    def test(self) -> Split | None:
        return self.splits.get("test")


@runtime_checkable
class Task(Protocol):
    """What the training loop knows of a task."""

    def load(self, root: Path | None = None, progress: Progress = silent) -> Data: ...

    def loss(self, outputs: Float[Tensor, "..."], targets: Examples) -> Float[Tensor, ""]: ...

    def tally(self, outputs: Float[Tensor, "..."], targets: Examples) -> Sums: ...

    def score(self, sums: Sums) -> dict[str, Float[Tensor, "*pack"]]: ...


def load_aloud(task: Task, root: Path | None, progress: Progress) -> Data:
    """The task's data; `progress` hears that loading begins and ends, and of long parts of it."""
    what = f"loading {type(task).__name__}"
    progress(what, 0, None)
    data = task.load(root, progress)
    progress(what, 1, 1)
    return data


def total(tallies: Iterable[Sums]) -> Sums:
    """Sum of the tallies of many batches, on the CPU; floats in float64, as the terms are many.

    >>> total([{"nll": torch.tensor(1.5), "targets": torch.tensor(3)}] * 2)
    {'nll': tensor(3., dtype=torch.float64), 'targets': tensor(6)}
    """
    sums: Sums = {}
    for tally in tallies:
        for name, value in tally.items():
            value = value.detach().cpu()
            value = value.double() if value.is_floating_point() else value
            sums[name] = sums[name] + value if name in sums else value
    return sums


def percent(
    correct: Int[Tensor, "*pack"], count: Int[Tensor, "*pack"], broken: Int[Tensor, "*pack"]
) -> Float[Tensor, "*pack"]:
    """Accuracy as the paper prints it; NaN where there was nothing to count, or some outputs are
    no numbers: argmax takes NaN for a word, and a model that diverged would be right by chance."""
    return torch.where(broken > 0, torch.nan, 100 * correct.double() / count.double())


def broken(outputs: Float[Tensor, "..."]) -> Int[Tensor, ""]:
    """How many outputs are no finite numbers."""
    return (~outputs.isfinite()).sum()


def checksum(splits: Mapping[str, Split]) -> str:
    """sha256 of every tensor of every split: name, dtype, shape and contents."""
    digest = hashlib.sha256()
    for split in sorted(splits):
        for name, rows in sorted((splits[split].inputs | splits[split].targets).items()):
            digest.update(f"{split} {name} {rows.dtype} {tuple(rows.shape)}\n".encode())
            for block in rows.split(1 << 16):  # a view is copied to be read: never all of it
                digest.update(block.contiguous().numpy().data)
    return digest.hexdigest()


def one_of(task: str, option: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(
            f"{task} has no {option} {value!r}. Choose one of {', '.join(map(repr, choices))}."
        )


def at_least(task: str, option: str, value: int, least: int) -> None:
    if value < least:
        raise ValueError(f"{task} needs {option} >= {least}, got {value}.")


def _widen(rows: Shaped[Tensor, "..."]) -> Shaped[Tensor, "..."]:
    return rows.long() if rows.dtype == torch.int16 else rows
