"""A pack's products and loss on a CUDA device, against float64 and against plain PyTorch.

python -m pytest -o addopts= tests/gpu       # also without beartype
"""

from dataclasses import replace
from functools import partial

import pytest
import torch
from torch.func import vmap
from torch.nn import functional as F

from accuracy import FEW_ULP, assert_as_accurate
from lohe.experiments.store.checkpoints import Checkpoint
from lohe.models import (
    Dropout,
    ExponentialReadout,
    FrozenAnchors,
    LanguageModel,
    LearnedSharpness,
    NoDynamics,
    Oscillator,
    Softmax,
    SoftmaxAlibi,
    SoftmaxCosine,
    SoftmaxPositions,
    SoftmaxRope,
    SoftmaxTemperature,
    set_generator,
)
from lohe.models.dropout import GeluDropout
from lohe.ops import affine, dispatch, drop, norm, unit
from lohe.tasks import Data, WikiText2, cross_entropy, language
from lohe.train import AdamW, Pack, Run, train
from lohe.train import pack as packs
from lohe.train.pack import cosine
from lohe.train.stepper import GraphStepper, Stepper

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.filterwarnings("ignore:The AccumulateGrad node's stream"),
    pytest.mark.filterwarnings("ignore:TRITON_DEFAULT_FP_FUSION"),
]
CUDA = torch.device("cuda")
ONE = partial(torch.ones, (), dtype=torch.float64, device=CUDA)
WORDS = 1500  # more than cross_entropy.MANY, and no multiple of anything
EACH = pytest.mark.parametrize(
    "attention",
    [Softmax(), Oscillator(anchors="free"), Oscillator(sharpness=2)],
    ids=["softmax", "oscillator", "squared"],
)
EVERY = pytest.mark.parametrize(
    "attention",
    [
        Softmax(),
        Oscillator(anchors="free"),
        Oscillator(sharpness=2),
        Oscillator(d_osc=8, sharpness=4, gain="learned"),
        SoftmaxTemperature(),
        SoftmaxPositions(),
        SoftmaxRope(),
        SoftmaxAlibi(),
        SoftmaxCosine(),
        NoDynamics(d_osc=8, sharpness=4, gain="learned"),
        ExponentialReadout(d_osc=8, beta=4.0),
        LearnedSharpness(d_osc=8, gain="learned"),
        FrozenAnchors(d_osc=8, sharpness=4, gain="learned"),
    ],
    ids=repr,
)


def normal(*shape):
    rng = torch.Generator().manual_seed(len(shape))
    return torch.randn(*shape, dtype=torch.float64, generator=rng).to(CUDA)


@pytest.mark.parametrize("classes", [1024, 1500, 10_000])
@pytest.mark.parametrize("size", [1.0, 1e4])
@pytest.mark.parametrize("above", [(1, 1, 1), (1, -2.5, 1e3)])
def test_cross_entropy_is_as_accurate_as_plain(classes, size, above):
    logits = size * normal(3, 301, classes)
    targets = torch.randint(classes, (3, 301), generator=torch.Generator().manual_seed(0)).to(CUDA)
    targets[:, ::7] = 0

    def each(function):
        return lambda logits: vmap(partial(function, ignore_index=0))(logits, targets)

    direction = torch.tensor(above, dtype=torch.float64, device=CUDA)
    assert_as_accurate(
        each(cross_entropy.fused),
        each(F.cross_entropy),
        {"logits": logits},
        direction,
        ONE(),
        torch.float32,
    )


@pytest.mark.parametrize(("d_in", "d_out"), [(128, 128), (128, 512), (512, 128), (128, 10_000)])
def test_products_are_as_accurate_as_plain(d_in, d_out, monkeypatch):
    product = pytest.importorskip("lohe.ops.triton.product")
    calls, run = [], product._run
    monkeypatch.setattr(product, "_run", lambda *a, **k: calls.append(a) or run(*a, **k))
    x = {
        "input": normal(5, 8, 49, d_in),
        "weight": normal(5, d_out, d_in),
        "bias": normal(5, d_out),
    }

    def each(function):
        return lambda input, weight, bias: vmap(function)(input, weight, bias)

    direction = normal(5, 8, 49, d_out)
    assert_as_accurate(each(affine.packed), each(F.linear), x, direction, ONE(), torch.float32)
    assert bool(calls) == (torch.cuda.get_device_capability() == (9, 0))  # y and its gradients


def test_a_bias_inside_a_tf32_product_is_not_rounded():
    x, weight = torch.zeros(5, 40, 128, device=CUDA), normal(5, 2000, 128).float()
    bias = 10 * normal(5, 2000).float()
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        out = vmap(affine.packed)(x, weight, bias)
    finally:
        torch.set_float32_matmul_precision(before)
    torch.testing.assert_close(out, bias[:, None].expand_as(out), rtol=2**-22, atol=0)


def data() -> Data:
    """Chunks of ten words, some padded."""
    rng = torch.Generator().manual_seed(0)
    chunks = torch.randint(4, WORDS, (7 * 16, 10), generator=rng, dtype=torch.int16)
    chunks[::3, 7:] = language.PAD
    split = language.next_token(chunks)
    return Data({"train": split, "valid": split}, tuple(map(str, range(WORDS))), "toy")


def run(attention, **how) -> Run:
    # wide enough for the products of `ops.triton.product`
    model = LanguageModel(d_model=64, d_ff=128, dropout=0.0, attention=attention)
    return Run(WikiText2(), model, AdamW(lr=5e-4), batch=16, epochs=1, **how)


def unfused(monkeypatch):
    for module in (affine, cross_entropy, drop, norm, unit):
        monkeypatch.setattr(module, "_pays", lambda *_: False)
    monkeypatch.setattr(dispatch, "MANY", 2**60)


def spied(monkeypatch, module, name) -> list[str]:
    """A list that grows by a word at each call of the function."""
    calls, function = [], getattr(module, name)
    monkeypatch.setattr(module, name, lambda *args: (calls.append(name), function(*args))[1])
    return calls


@EACH
def test_a_step_is_as_accurate_as_the_plain_one(monkeypatch, attention):
    """Loss and gradients of each seed; and the pack takes the paths that are tested here.

    Anchors lean to one side, so that no drive cancels: where one nearly does, two plain float32
    steps that only add in another order lose what the worst row happens to amplify, and that
    differs by a factor of five.

    Three TF32 products cut their last bits where float32 rounds them, and c^p multiplies by p what
    that leaves in c: hence p times the room.
    """
    power = getattr(attention, "sharpness", 1)
    monkeypatch.setattr(dispatch, "MANY", 0)  # attention, too
    paths = (affine, "packed"), (cross_entropy, "fused"), (norm, "packed")
    taken = [spied(monkeypatch, *path) for path in paths]

    def step(precision):
        pack = Pack(run(attention, precision=precision), [0, 1, 2], data(), CUDA)
        with torch.no_grad():
            for name, parameter in pack.parameters.items():
                if name.endswith("anchors"):
                    parameter[..., 0] += 2
        losses = pack.step(torch.arange(48, device=CUDA).view(3, 16))
        return {"loss": losses} | {
            n: p.grad for n, p in pack.parameters.items() if p.grad is not None
        }

    found = step("float32")
    assert all(taken)
    with monkeypatch.context() as plain:
        unfused(plain)
        before = [len(calls) for calls in taken]
        expected, exact = step("float32"), step("float64")
        assert [len(calls) for calls in taken] == before
    for name, truth in exact.items():
        loss, error = ((x[name].double() - truth).abs().max().item() for x in (expected, found))
        ulp = torch.finfo(torch.float32).eps * truth.abs().max().item()
        room = power * (2 * loss + FEW_ULP * ulp)
        assert error <= room, f"{name}: {error:.2e}, plain PyTorch {loss:.2e}"


@EACH
def test_scores_are_those_of_the_plain_path(monkeypatch, attention):
    pack = Pack(run(attention), [0, 1, 2], data(), CUDA)
    found = pack.score(data().valid)
    unfused(monkeypatch)
    for name, wanted in pack.score(data().valid).items():
        torch.testing.assert_close(found[name], wanted, rtol=1e-5, atol=0)


@EACH
def test_scores_from_a_graph_are_those_made_eagerly(monkeypatch, attention):
    """Of two epochs, each with a smaller last part: the graph sees new parameters and examples."""
    monkeypatch.setattr(packs, "SCORED", 25)
    toy = data()
    before = [rows.clone() for rows in toy.valid.tensors()]
    pack = Pack(run(attention), [0, 1, 2], toy, CUDA)
    stepper = GraphStepper(pack, cosine(pack.run, 2 * pack.run.steps(toy)))
    for epoch in range(2):
        stepper.epoch(7 * epoch, pack.order(7 * 16), 16)
        found = stepper.score(toy.valid)
        for name, wanted in pack.score(toy.valid).items():
            torch.testing.assert_close(found[name], wanted, rtol=1e-6, atol=0)
    assert stepper.scoring is not None
    assert all(map(torch.equal, toy.valid.tensors(), before))


@EVERY
@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_an_epoch_replayed_from_a_graph_repeats_itself(attention, dropout):
    how = run(attention)
    how = replace(how, model=replace(how.model, dropout=dropout))

    def epoch(kind):
        pack = Pack(how, [0, 1, 2], data(), CUDA)
        losses = kind(pack, cosine(how, how.steps(data()))).epoch(0, pack.order(7 * 16), how.batch)
        return losses, pack.parameters

    (losses, parameters), (again, same) = epoch(GraphStepper), epoch(GraphStepper)
    assert torch.equal(losses, again)
    for name, parameter in parameters.items():
        assert torch.equal(parameter, same[name])
    if dropout == 0:
        torch.testing.assert_close(losses, epoch(Stepper)[0], rtol=1e-5, atol=0)


@pytest.mark.parametrize("layer", [Dropout(0.5), GeluDropout(0.5)], ids=repr)
def test_masks_are_drawn_anew_at_each_replay(monkeypatch, layer):
    generator, x = torch.Generator(CUDA).manual_seed(0), torch.ones(3, 5000, device=CUDA)
    set_generator(layer, generator)
    taken = spied(monkeypatch, drop, "_pays")
    call = vmap(layer, randomness="different")
    call(x)
    assert taken
    graph = torch.cuda.CUDAGraph()
    graph.register_generator_state(generator)
    with torch.cuda.graph(graph):
        out = call(x)
    masks = []
    for _ in range(3):
        graph.replay()
        masks += [row != 0 for row in out]
    for n, mask in enumerate(masks):
        assert 0.45 < mask.float().mean() < 0.55
        for other in masks[:n]:
            assert 0.45 < (mask == other).float().mean() < 0.55  # as of two coins


@EACH
def test_stopped_after_an_epoch_and_resumed_is_bitwise_the_same(tmp_path, attention):
    """The graph is captured anew in the middle of the run; dropout, order and best epoch go on."""
    how = replace(run(attention, select="lowest perplexity"), epochs=3)
    how = replace(how, model=replace(how.model, dropout=0.1))
    checkpoint = Checkpoint(tmp_path)

    def stop(epoch, metrics):
        raise KeyboardInterrupt

    whole = train(how, [2, 0], data(), device=CUDA)
    with pytest.raises(KeyboardInterrupt):
        train(how, [2, 0], data(), device=CUDA, checkpoint=checkpoint, report=stop)
    heard = []
    resumed = train(
        how,
        [2, 0],
        data(),
        device=CUDA,
        checkpoint=checkpoint,
        report=lambda epoch, metrics: heard.append(epoch),
    )
    assert heard == [1, 2]
    assert resumed.outcomes == whole.outcomes
    for name, parameter in whole.parameters.items():
        assert torch.equal(resumed.parameters[name], parameter), name
