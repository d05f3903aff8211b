"""The fused cross-entropy on a CPU, interpreted; run by `ops/triton/test_interpreter.py`."""

from functools import partial

import pytest
import torch
from torch.func import vmap
from torch.nn import functional as F

from accuracy import assert_as_accurate
from lohe.tasks import cross_entropy_kernels as kernels
from lohe.tasks.cross_entropy import fused

IGNORED = 2
SIZES = pytest.mark.parametrize("classes", [3, 7, 2048, 5000, 20000])
REDUCTIONS = pytest.mark.parametrize("reduction", ["mean", "sum"])


def plain(logits, targets, ignore_index, reduction="mean"):
    return F.cross_entropy(logits, targets, ignore_index=ignore_index, reduction=reduction)


@pytest.fixture(autouse=True)
def poisoned():
    """torch.empty is full of NaN: what is not written shows."""
    torch.use_deterministic_algorithms(True)
    assert torch.empty_like(torch.ones(2, 3)).isnan().all()
    yield
    torch.use_deterministic_algorithms(False)


@pytest.fixture
def make(rng):
    """make(models, rows, classes) -> logits in float64 and targets, some of them ignored."""

    def inputs(models, rows, classes, size=1.0):
        logits = size * torch.randn(models, rows, classes, generator=rng, dtype=torch.float64)
        targets = torch.randint(classes, (models, rows), generator=rng)
        targets[:, 1::4] = IGNORED
        targets[:, 0] = classes - 2  # at least one of each kind
        return logits, targets

    return inputs


def assert_fused(logits, targets, direction, reduction="mean", in_dims=(0, 0)):
    def each(function):
        one = partial(function, ignore_index=IGNORED, reduction=reduction)
        return lambda logits: vmap(one, in_dims=in_dims)(logits, targets)

    one = torch.ones((), dtype=torch.float64)
    assert_as_accurate(each(fused), each(plain), {"logits": logits}, direction, one, torch.float32)


@SIZES
@REDUCTIONS
@pytest.mark.parametrize("size", [1.0, 1e4])
def test_loss_and_gradient_are_as_accurate_as_plain(make, classes, reduction, size):
    logits, targets = make(2, 5, classes, size)
    assert_fused(logits, targets, torch.ones(2, dtype=torch.float64), reduction)


@REDUCTIONS
def test_the_gradient_follows_what_comes_from_above(make, reduction):
    logits, targets = make(4, 35, 9)
    assert_fused(logits, targets, torch.tensor([1, -2.5, 0, 1e3], dtype=torch.float64), reduction)


@REDUCTIONS
@pytest.mark.parametrize("in_dims", [(0, None), (None, 0), (2, 1)])
def test_models_may_share_logits_or_targets(make, in_dims, reduction):
    logits, targets = make(3, 5, 30)
    logits = logits[0] if in_dims[0] is None else logits.movedim(0, in_dims[0])
    targets = targets[0] if in_dims[1] is None else targets.movedim(0, in_dims[1])
    direction = torch.tensor([1, 2, 3], dtype=torch.float64)
    assert_fused(logits, targets, direction, reduction, in_dims)


@REDUCTIONS
def test_the_sum_of_a_pack_has_the_gradient_of_each(make, reduction):
    logits, targets = make(3, 5, 30)
    logits = logits.float().requires_grad_()
    gradients = []
    for function in (fused, plain):
        one = partial(function, ignore_index=IGNORED, reduction=reduction)
        losses = vmap(one, in_dims=(0, None))(logits, targets[0])
        gradients += torch.autograd.grad(losses.sum(), logits)  # a 1 that all models share
    torch.testing.assert_close(*gradients)


def test_vmap_nests_and_may_be_absent(make):
    logits, targets = make(6, 5, 30)
    logits = logits.float()
    each = [plain(x, t, IGNORED) for x, t in zip(logits, targets, strict=True)]
    alone = fused(logits[0], targets[0], IGNORED)
    one = partial(fused, ignore_index=IGNORED)
    nested = vmap(vmap(one))(logits.unflatten(0, (2, 3)), targets.unflatten(0, (2, 3)))
    torch.testing.assert_close(alone, each[0])
    torch.testing.assert_close(nested.flatten(), torch.stack(each))


def test_a_model_without_targets_has_no_loss_and_no_gradient(make):
    logits, targets = make(3, 5, 30)
    targets[1] = IGNORED
    logits = logits.float().requires_grad_()
    losses = vmap(partial(fused, ignore_index=IGNORED))(logits, targets)
    (gradient,) = torch.autograd.grad(losses.sum(), logits)
    assert losses.isnan().tolist() == [False, True, False]  # 0 / 0, as PyTorch has it
    assert (gradient[1] == 0).all()
    assert (gradient[[0, 2]] != 0).any(-1).equal(targets[[0, 2]] != IGNORED)


def test_impossible_classes_cost_nothing_and_unknown_ones_are_nan(make):
    logits, targets = make(1, 6, 5000)
    logits[..., :4000] = -torch.inf  # a whole block
    targets.clamp_(min=4500)
    wanted = plain(logits[0], targets[0], IGNORED)
    found = fused(logits[0].float(), targets[0], IGNORED)
    torch.testing.assert_close(found.double(), wanted, rtol=1e-6, atol=0)
    for unknown in (-1, 5000):
        targets[0, 2] = unknown
        logits = logits.float().requires_grad_()
        loss = fused(logits[0], targets[0], IGNORED)
        loss.backward()
        assert loss.isnan()
        assert logits.grad[0].isnan().any(-1).tolist() == [False, False, True] + 3 * [False]


def test_without_gradients_none_is_written(make, monkeypatch):
    given = []
    kernel = kernels.negative_log_likelihood
    monkeypatch.setattr(
        kernels,
        "negative_log_likelihood",
        lambda *args: (given.append(args[-1] is not None), kernel(*args))[1],
    )
    logits, targets = make(3, 5, 30)
    logits = logits.float().requires_grad_()
    one = partial(fused, ignore_index=IGNORED, reduction="sum")
    losses = vmap(one)(logits, targets)
    with torch.no_grad():
        assert torch.equal(vmap(one, in_dims=(0, 0))(logits, targets), losses)
    assert given == [True, False]


REFUSED = pytest.raises(RuntimeError, match=r"differentiated once.*functional\.cross_entropy")


def test_second_derivatives_and_second_passes_are_refused(make):
    logits, targets = make(1, 5, 30)
    logits = logits[0].float().requires_grad_()
    loss = fused(logits, targets[0], IGNORED)
    with REFUSED:
        torch.autograd.grad(loss, logits, create_graph=True)
    torch.autograd.grad(loss, logits, retain_graph=True)
    with REFUSED:
        torch.autograd.grad(loss, logits)
