"""Seeds trained together are the seeds trained alone."""

from dataclasses import replace

import pytest
import torch
from torch.nn.utils import clip_grad_norm_

import short_sva
from accuracy import ROUNDING, TRAINED
from lohe.models import Oscillator
from lohe.ops import affine
from lohe.train import Adam, AdamW, Pack, train
from lohe.train.pack import clip, clip_by_slices

SEEDS = [3, 1, 7]
CPU = torch.device("cpu")
EACH = pytest.mark.parametrize("attention", short_sva.MECHANISMS.values(), ids=short_sva.MECHANISMS)


@pytest.mark.parametrize(
    "how",
    [
        {"optimizer": AdamW(lr=5e-3), "schedule": "step", "clip": 0.3},
        {"optimizer": Adam(lr=5e-3, weight_decay=1e-2), "schedule": "epoch", "clip": 100.0},
    ],
    ids=["AdamW, by step, clipped", "Adam, by epoch, not clipped"],
)
@EACH
def test_a_pack_ends_where_its_seeds_end_alone(data, attention, how):
    run = short_sva.run(attention, dropout=0.0, precision="float64", **how)
    together = train(run, SEEDS, data)
    for n, seed in enumerate(SEEDS):
        alone = train(run, [seed], data)
        for name, parameter in together.parameters.items():
            torch.testing.assert_close(
                parameter[n], alone.parameters[name][0], rtol=0, atol=TRAINED
            )
        ours, theirs = together.outcomes[n], alone.outcomes[0]
        assert (ours.seed, ours.epoch) == (theirs.seed, theirs.epoch) == (seed, run.epochs - 1)
        for line, other in zip(ours.curve, theirs.curve, strict=True):
            assert line == pytest.approx(other, rel=0, abs=TRAINED)
        for split in ("valid", "test"):
            assert ours.result[split] == pytest.approx(theirs.result[split], rel=0, abs=TRAINED)


@EACH
def test_the_products_made_for_a_gpu_change_nothing(data, attention, monkeypatch):
    run = short_sva.run(attention, dropout=0.0, precision="float64")
    plain = train(run, SEEDS, data)
    with monkeypatch.context() as patch:
        patch.setattr(affine, "_pays", lambda x: True)
        packed = train(run, SEEDS, data)
    for name, parameter in packed.parameters.items():
        torch.testing.assert_close(parameter, plain.parameters[name], rtol=0, atol=TRAINED)
    for ours, theirs in zip(packed.outcomes, plain.outcomes, strict=True):
        assert ours.result["valid"] == pytest.approx(theirs.result["valid"], rel=0, abs=TRAINED)


def test_training_depends_on_what_the_pack_is_compared_under(data):
    """Or the comparison above would say little: each of its options changes the parameters."""
    run = short_sva.run(dropout=0.0, precision="float64", optimizer=AdamW(lr=5e-3), clip=0.3)
    variants = [
        replace(run, optimizer=Adam(lr=5e-3)),
        replace(run, optimizer=AdamW(lr=5e-3, weight_decay=0.1)),
        replace(run, schedule="epoch"),
        replace(run, clip=100.0),
        replace(run, limit=128),
        replace(run, batch=50),
    ]
    base = train(run, [0], data).parameters
    for variant in variants:
        other = train(variant, [0], data).parameters
        assert max((other[k] - base[k]).abs().max() for k in base) > 1e4 * TRAINED


def test_each_seed_is_clipped_as_if_alone(data, rng):
    run = short_sva.run(precision="float64", clip=0.5)
    pack = Pack(run, SEEDS, data, CPU)
    scales = torch.tensor([1e-4, 1.0, 1e3], dtype=torch.float64)  # far below the clip, and above
    for parameter in pack.trained:
        noise = torch.randn(parameter.shape, generator=rng, dtype=torch.float64)
        parameter.grad = noise * scales.view(-1, *(1,) * (parameter.ndim - 1))
    alone = [[_with_gradient(p, n) for p in pack.trained] for n in range(len(SEEDS))]
    pack._clip()
    for n, parameters in enumerate(alone):
        norm = clip_grad_norm_(parameters, run.clip)
        assert (norm > run.clip) == (n > 0)
        for mine, theirs in zip(pack.trained, parameters, strict=True):
            torch.testing.assert_close(mine.grad[n], theirs.grad, rtol=ROUNDING, atol=0)


def _with_gradient(parameter: torch.Tensor, n: int) -> torch.Tensor:
    single = parameter[n].detach().clone().requires_grad_()
    single.grad = parameter.grad[n].clone()
    return single


def test_the_order_of_a_seed_does_not_depend_on_the_pack(data):
    run = short_sva.run()
    together = Pack(run, SEEDS, data, CPU)
    alone = [Pack(run, [seed], data, CPU) for seed in SEEDS]
    seen = []
    for _ in range(2):  # epochs
        orders = together.order(150)
        for n, pack in enumerate(alone):
            assert torch.equal(orders[n], pack.order(150)[0])
        seen += list(orders)
    assert len({tuple(order.tolist()) for order in seen}) == 6
    assert all(torch.equal(order.sort().values, torch.arange(150)) for order in seen)


def test_paired_models_see_the_same_batches_by_seed(data):
    """Without it the order depends on how many numbers the model has drawn before."""
    softmax, wide = short_sva.run(), short_sva.run(Oscillator(d_osc=8))
    for paired in (None, True):
        packs = [Pack(replace(r, paired=paired), SEEDS, data, CPU) for r in (softmax, wide)]
        for _ in range(2):  # epochs
            ours, theirs = (pack.order(150) for pack in packs)
            assert torch.equal(ours, theirs) == bool(paired)
            assert len({tuple(order.tolist()) for order in ours}) == len(SEEDS)
        first = Pack(softmax, SEEDS, data, CPU).parameters
        assert all(torch.equal(p, first[name]) for name, p in packs[0].parameters.items())


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_seeds_draw_their_own_masks(data, dropout):
    pack = Pack(short_sva.run(dropout=dropout), [0, 1], data, CPU)
    with torch.no_grad():  # the same model twice, on the same batch
        for parameter in pack.parameters.values():
            parameter[1] = parameter[0]
    first, second = pack.step(torch.arange(64).expand(2, 64))
    assert (first == second) == (dropout == 0)


@EACH
def test_a_pack_repeats_itself_bitwise(data, attention):
    run = short_sva.run(attention)
    first, second = (train(run, SEEDS, data) for _ in range(2))
    assert run.model.dropout > 0
    assert first.outcomes == second.outcomes
    for name, parameter in first.parameters.items():
        assert torch.equal(parameter, second.parameters[name])


def test_a_pack_has_seeds_and_each_once(data):
    for seeds in ([], [1, 2, 1]):
        with pytest.raises(ValueError, match="at least one seed and each only once"):
            train(short_sva.run(), seeds, data)


def test_clipping_by_slices_is_clipping(rng):
    """Few kernels on a GPU, and what clip_grad_norm_ does to each seed alone."""
    shapes = (3, 7, 5), (3, 4), (3, 2, 2, 2)
    size = torch.tensor([0.01, 1.0, 100.0], dtype=torch.float64)
    gradients = [
        torch.randn(s, generator=rng, dtype=torch.float64) * size.view(-1, *(1,) * (len(s) - 1))
        for s in shapes
    ]
    alone = [
        [torch.nn.Parameter(torch.zeros_like(g[seed])) for g in gradients] for seed in range(3)
    ]
    for seed, parameters in enumerate(alone):
        for parameter, g in zip(parameters, gradients, strict=True):
            parameter.grad = g[seed].clone()
        clip_grad_norm_(parameters, 1.0)
    for function in (clip, clip_by_slices):
        found = [g.clone() for g in gradients]
        function(found, 1.0)
        for n, g in enumerate(found):
            wanted = torch.stack([parameters[n].grad for parameters in alone])
            torch.testing.assert_close(g, wanted)


def test_a_checkpoint_of_another_kind_of_device_is_refused(data):
    pack = Pack(short_sva.run(), [0], data, CPU)
    tensors = pack.tensors() | {"dropout": torch.zeros(16, dtype=torch.uint8)}
    with pytest.raises(ValueError, match="another kind of device"):
        pack.restore(tensors)
