"""Subject-verb agreement cut short: some of the published sentences, runs of a second."""

from dataclasses import replace
from typing import Any

from lohe.experiments.recipes import agreement
from lohe.models import Mechanism, Oscillator, Softmax
from lohe.tasks import Data, Split, Task, sva
from lohe.tasks.dataset import checksum
from lohe.train import Run

# 150 is no multiple of the recipe's batch of 64: the last batch of an epoch is smaller
SENTENCES = {"train": 150, "valid": 120, "test": 60}

MECHANISMS: dict[str, Mechanism] = {
    "softmax": Softmax(),
    "oscillator, as published": Oscillator(anchors="free", pads="as-published"),
    "oscillator, p = 4, learned gain": Oscillator(sharpness=4, gain="learned"),
}


def data() -> Data:
    """The first sentences of each published split."""
    splits: dict[str, Split] = {
        name: sva._encode(sva.generate(sva.PUBLISHED[name].seed, n))
        for name, n in SENTENCES.items()
    }
    return Data(splits, sva.VOCABULARY, checksum(splits), {"sentences": 150, "cut": [1, 2]})


def load(task: Task) -> Data:
    """In the place of task.load."""
    assert task == sva.SVA()
    return data()


def run(attention: Mechanism = MECHANISMS["softmax"], *, seed: int = 0, **changes: Any) -> Run:
    """Table 2's recipe over two epochs, with changes; those of the model under their own names."""
    whole = replace(agreement(attention, seed), epochs=2)
    inside = {name: changes.pop(name) for name in ("d_model", "d_ff", "dropout") if name in changes}
    return replace(whole, model=replace(whole.model, **inside), **changes)
