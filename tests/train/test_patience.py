"""Patience: when a pack stops, what it then reports, and that stopping and resuming is the same."""

from dataclasses import replace

import pytest
import torch

import short_sva
from lohe.experiments.recipes import tinystories
from lohe.experiments.store.records import key
from lohe.models import Softmax
from lohe.train import AdamW, train

SEEDS = [1, 2, 3]
EPOCHS = 8
PATIENCE = (1, 3, EPOCHS)


class Stopped(Exception):
    pass


def impatient(patience: int | None, **changes):
    """Eight epochs at a rate at which the validation accuracy soon goes up and down."""
    how = {"optimizer": AdamW(lr=1e-2), "epochs": EPOCHS, "select": "highest overall"} | changes
    return short_sva.run(patience=patience, **how)


@pytest.fixture(scope="module")
def whole(data):
    """All epochs, without patience; without dropout, which is drawn by the recipe's name."""
    return train(impatient(None, dropout=0.0), SEEDS, data)


def last_epoch(curves: list[list[float]], patience: int) -> int:
    """The rule, from the curves of all epochs: no seed is better than `patience` epochs before."""
    for epoch in range(len(curves[0])):
        best = [curve.index(max(curve[: epoch + 1])) for curve in curves]
        if all(epoch - at >= patience for at in best):
            return epoch
    return len(curves[0]) - 1


@pytest.mark.parametrize("patience", PATIENCE)
def test_it_stops_once_no_seed_has_improved_for_so_long(data, whole, patience):
    curves = [[line["overall"] for line in outcome.curve] for outcome in whole.outcomes]
    last = last_epoch(curves, patience)
    stopped = train(impatient(patience, dropout=0.0), SEEDS, data)
    for outcome, full in zip(stopped.outcomes, whole.outcomes, strict=True):
        # the same epochs as without it: the learning rate falls as over all of them
        assert outcome.curve == full.curve[: last + 1]
        values = [line["overall"] for line in outcome.curve]
        assert outcome.epoch == values.index(max(values))
        assert outcome.result["valid"]["overall"] == max(values)


def test_the_cases_above_are_not_all_the_same(whole):
    curves = [[line["overall"] for line in outcome.curve] for outcome in whole.outcomes]
    lasts = [last_epoch(curves, patience) for patience in PATIENCE]
    assert lasts[0] < lasts[1] <= lasts[2] == EPOCHS - 1
    # a pack waits for its slowest seed
    alone = [last_epoch([curve], 1) for curve in curves]
    assert lasts[0] >= max(alone) > min(alone)


def test_the_parameters_are_those_of_the_best_epoch(data, memory):
    stopped = train(impatient(2), SEEDS, data, checkpoint=memory)
    assert len(memory.saved) == len(stopped.outcomes[0].curve) < EPOCHS
    for n, outcome in enumerate(stopped.outcomes):
        then, _ = memory.saved[outcome.epoch]
        for name, parameter in stopped.parameters.items():
            assert torch.equal(parameter[n], then[f"parameters.{name}"][n])


@pytest.mark.parametrize("after", [1, "the last"])
def test_resumed_it_ends_where_it_would_have(data, memory, after):
    run = impatient(2)
    straight = train(run, SEEDS, data)
    epochs = len(straight.outcomes[0].curve)
    last = epochs - 1 if after == "the last" else after

    def stop(epoch, lines):
        if epoch == last:
            raise Stopped

    with pytest.raises(Stopped):
        train(run, SEEDS, data, checkpoint=memory, report=stop)
    heard = []
    resumed = train(run, SEEDS, data, checkpoint=memory, report=lambda e, _: heard.append(e))
    assert heard == list(range(last + 1, epochs))
    assert resumed.outcomes == straight.outcomes
    for name, parameter in straight.parameters.items():
        assert torch.equal(resumed.parameters[name], parameter)


def test_a_recipe_without_patience_has_the_key_it_always_had():
    run = tinystories(Softmax())
    assert run.patience is None
    assert "patience" not in run.recipe()
    patient = replace(run, patience=4)
    assert patient.recipe() == run.recipe() | {"patience": 4}
    assert key(patient.recipe()) != key(run.recipe())
    assert key(patient.recipe()) != key(replace(run, patience=5).recipe())


@pytest.mark.parametrize(
    ("patience", "select"), [(0, "lowest perplexity"), (-1, "highest overall"), (4, "last")]
)
def test_patience_without_a_meaning_is_refused(patience, select):
    with pytest.raises(ValueError, match=rf"patience={patience} with select='{select}': give a"):
        replace(tinystories(Softmax()), patience=patience, select=select)
