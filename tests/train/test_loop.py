"""The loop is what it says: a plain one gives the same, and the selected epoch is kept."""

import math

import pytest
import torch
from torch.nn.utils import clip_grad_norm_

import short_sva
from accuracy import TRAINED
from lohe.models import Oscillator
from lohe.train import AdamW, assembled, train
from lohe.train.pack import cosine
from lohe.train.stepper import Stepper

RATE = 1e-15  # of a rate of 5e-3: CosineAnnealingLR multiplies its way from step to step


def by_hand(run, seed, data) -> tuple[torch.nn.Module, list[float]]:
    """The recipe as one would write it for one model; the model and its losses by epoch."""
    rng = torch.Generator().manual_seed(seed)
    model = run.model.build(data, rng).double()
    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW(
        parameters, lr=run.optimizer.lr, weight_decay=run.optimizer.weight_decay
    )
    batches = math.ceil(len(data.train) / run.batch)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, run.epochs * batches)
    losses = []
    for _ in range(run.epochs):
        total = 0.0
        for index in torch.randperm(len(data.train), generator=rng).split(run.batch):
            batch = data.train.take(index)
            optimizer.zero_grad()
            loss = run.task.loss(model(**batch.inputs), batch.targets)
            loss.backward()
            clip_grad_norm_(parameters, run.clip)
            optimizer.step()
            schedule.step()
            total += loss.item() * len(index)
        losses.append(total / len(data.train))
    return model, losses


def right(model, split) -> float:
    """Percent of right answers."""
    every = split.take(slice(None))
    with torch.no_grad():
        answers = model(**every.inputs) > 0
    return 100 * (answers == (every.targets["label"] == 1)).double().mean().item()


@pytest.mark.parametrize("attention", short_sva.MECHANISMS.values(), ids=short_sva.MECHANISMS)
def test_a_plain_loop_trains_the_same_model(data, attention):
    run = short_sva.run(
        attention, dropout=0.0, precision="float64", optimizer=AdamW(lr=5e-3), clip=0.5, epochs=3
    )
    plain, losses = by_hand(run, 11, data)
    trained = train(run, [11], data)
    for name, parameter in plain.named_parameters():
        torch.testing.assert_close(trained.parameters[name][0], parameter, rtol=0, atol=TRAINED)
    (outcome,) = trained.outcomes
    assert [line["loss"] for line in outcome.curve] == pytest.approx(losses, abs=TRAINED)
    assert outcome.result["valid"]["overall"] == pytest.approx(right(plain, data.valid))
    assert outcome.result["test"]["overall"] == pytest.approx(right(plain, data.splits["test"]))


def test_the_rate_falls_as_a_cosine_step_by_step():
    run = short_sva.run(optimizer=AdamW(lr=5e-3), epochs=4)
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=5e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 12)
    for rate in cosine(run, steps_per_epoch=3).tolist():
        assert rate == pytest.approx(schedule.get_last_lr()[0], abs=RATE)
        optimizer.step()
        schedule.step()


def test_the_rate_falls_epoch_by_epoch():
    run = short_sva.run(optimizer=AdamW(lr=2.0), epochs=4, schedule="epoch")
    rates = cosine(run, steps_per_epoch=3).view(4, 3)
    falling = [1 + math.cos(math.pi * epoch / 4) for epoch in range(4)]
    assert rates.tolist() == [[pytest.approx(rate, abs=RATE)] * 3 for rate in falling]


@pytest.mark.parametrize("select", ["lowest overall", "highest overall"])
def test_an_epoch_that_is_no_number_is_never_the_best(data, monkeypatch, select):
    """Nothing is smaller than NaN: the first epoch would have stayed."""
    seen = iter([math.nan, 60.0, math.nan, 50.0, 70.0, math.nan])
    scored = lambda self, split: {"overall": torch.tensor([next(seen)])}  # noqa: E731
    monkeypatch.setattr(Stepper, "score", scored)
    (outcome,) = train(short_sva.run(epochs=6, select=select), [0], data).outcomes
    assert outcome.epoch == {"lowest overall": 3, "highest overall": 4}[select]


@pytest.mark.parametrize("select", ["last", "highest overall", "lowest overall", "lowest loss"])
def test_the_selected_epoch_of_each_seed_is_kept(data, memory, select):
    run = short_sva.run(Oscillator(), optimizer=AdamW(lr=5e-3), epochs=6, select=select, clip=10)
    trained = train(run, list(range(4)), data, checkpoint=memory)
    for n, outcome in enumerate(trained.outcomes):
        goal, _, metric = select.partition(" ")
        values = [line[metric] for line in outcome.curve] if metric else []
        # of equal epochs the first
        expected = values.index({"highest": max, "lowest": min}[goal](values)) if metric else 5
        assert outcome.epoch == expected
        then, _ = memory.saved[outcome.epoch]
        for name, parameter in trained.parameters.items():
            assert torch.equal(parameter[n], then[f"parameters.{name}"][n])
        line = outcome.curve[outcome.epoch]
        assert outcome.result["valid"] == {k: x for k, x in line.items() if k != "loss"}
    if select != "last":  # or the test would not tell one seed from another
        assert len({outcome.epoch for outcome in trained.outcomes}) > 1


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_a_trained_model_scores_what_its_outcome_says(data, precision):
    run = short_sva.run(optimizer=AdamW(lr=2e-2), select="highest overall", precision=precision)
    trained = train(run, [4, 2], data)
    for outcome in trained.outcomes:
        model = trained.model(data, outcome.seed)
        assert {str(p.dtype) for p in model.parameters()} == {f"torch.{precision}"}
        assert not model.training
        assert right(model, data.valid) == pytest.approx(outcome.result["valid"]["overall"])


def test_a_metric_that_no_epoch_has_is_refused(data):
    with pytest.raises(ValueError, match=r"an epoch has loss, overall, .*, no perplexity"):
        train(short_sva.run(select="lowest perplexity"), [0], data)


def test_every_epoch_is_reported(data):
    heard = []
    trained = train(
        short_sva.run(), [5, 6], data, report=lambda epoch, lines: heard.append((epoch, lines))
    )
    assert [epoch for epoch, _ in heard] == [0, 1]
    for n, outcome in enumerate(trained.outcomes):
        assert outcome.curve == [lines[n] for _, lines in heard]
    assert trained.seconds > 0


def test_tf32_is_refused_where_it_would_be_float32(data):
    with pytest.raises(ValueError, match="cpu would compute float32 under its name"):
        train(short_sva.run(precision="tf32"), [0], data)


def test_half_precision_trains_and_leaves_no_trace(data):
    before = torch.get_float32_matmul_precision()
    run = short_sva.run(dropout=0.0, precision="bf16")
    trained = train(run, [0, 1], data)
    for parameter in trained.parameters.values():
        assert parameter.dtype == torch.float32
        assert parameter.isfinite().all()
    assert all(math.isfinite(line["loss"]) for o in trained.outcomes for line in o.curve)
    assert torch.get_float32_matmul_precision() == before
    # it is not float32 under another name
    exact = train(short_sva.run(dropout=0.0), [0, 1], data)
    assert exact.outcomes[0].curve[0]["loss"] != trained.outcomes[0].curve[0]["loss"]


def test_a_model_is_not_assembled_of_weights_of_another(data):
    """What lacks would stay as it was drawn, and what is left over would be dropped in silence."""
    run = short_sva.run()
    trained = train(run, [0], data)
    weights = trained.weights(0)
    first, *others = weights
    with pytest.raises(ValueError, match=rf"lack {first} .*Assemble"):
        assembled(run, data, {name: weights[name] for name in others})
    with pytest.raises(ValueError, match=r"have other\.weight besides"):
        assembled(run, data, weights | {"other.weight": weights[first]})
    model = assembled(run, data, weights)
    assert all(torch.equal(p, weights[name]) for name, p in model.named_parameters())
