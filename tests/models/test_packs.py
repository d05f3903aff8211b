"""A pack of models under vmap is the models one by one."""

import copy

import pytest
import torch
from torch.func import functional_call, grad, stack_module_state, vmap

from lohe.models import (
    Amplified,
    Embedding,
    ExponentialReadout,
    FrozenAnchors,
    LearnedSharpness,
    NoDynamics,
    Oscillator,
    PositionOffset,
    RankMatchedSoftmax,
    Softmax,
    SoftmaxAlibi,
    SoftmaxCosine,
    SoftmaxPositions,
    SoftmaxRope,
    SoftmaxTemperature,
    set_generator,
)

PACK = 3
MECHANISMS = {
    "softmax": Softmax(),
    "frozen values": Softmax(freeze_values=True),
    "rank-matched": RankMatchedSoftmax(d_qk=2),
    "sphere": Oscillator(),
    "free": Oscillator(anchors="free", d_osc=3),
    "sharp with gain": Oscillator(sharpness=4, gain="learned", d_osc=3),
    "as published": Oscillator(anchors="free", pads="as-published"),
    "position offset": PositionOffset(Oscillator(anchors="free")),
    "amplified": Amplified(Oscillator(coupling="relu")),
    "temperature": SoftmaxTemperature(temperature=2.0),
    "positions": SoftmaxPositions(),
    "rope": SoftmaxRope(),
    "alibi": SoftmaxAlibi(),
    "cosine": SoftmaxCosine(),
    "no dynamics": NoDynamics(d_osc=3, sharpness=4, gain="learned"),
    "exponential": ExponentialReadout(d_osc=3),
    "learned sharpness": LearnedSharpness(d_osc=3, gain="learned"),
    "frozen anchors": FrozenAnchors(d_osc=3, sharpness=4, gain="learned"),
}
EACH = pytest.mark.parametrize("attention", MECHANISMS.values(), ids=MECHANISMS)
EXACT = {"rtol": 1e-10, "atol": 1e-11}  # float64, two layers deep


def stack(inputs, rng):
    """The same examples for every model, in an order of its own."""
    orders = [torch.randperm(len(next(iter(inputs.values()))), generator=rng) for _ in range(PACK)]
    return {name: torch.stack([rows[o] for o in orders]) for name, rows in inputs.items()}


def loss(model, state, inputs):
    """Uneven, so that no gradient cancels."""
    out = functional_call(model, state, kwargs=inputs)
    return (out * torch.linspace(1, 2, out.numel(), dtype=out.dtype).view_as(out)).square().mean()


@EACH
def test_pack_equals_each_alone(toy, double, rng, attention):
    models = [toy.build(attention, seed).double().eval() for seed in range(PACK)]
    params, buffers = stack_module_state(models)
    inputs = stack(double(toy.inputs), rng)
    base = copy.deepcopy(models[0])

    together = vmap(lambda p, b, x: functional_call(base, (p, b), kwargs=x))(
        params, buffers, inputs
    )
    inner = vmap(grad(lambda p, b, x: loss(base, (p, b), x)))(params, buffers, inputs)
    vmap(lambda p, b, x: loss(base, (p, b), x))(params, buffers, inputs).sum().backward()
    for n, model in enumerate(models):
        x = {name: rows[n] for name, rows in inputs.items()}
        torch.testing.assert_close(together[n], model(**x), **EXACT)
        loss(model, {}, x).backward()
        for name, parameter in model.named_parameters():
            if not parameter.requires_grad:
                assert params[name].grad is None
                continue
            torch.testing.assert_close(inner[name][n], parameter.grad, **EXACT)
            torch.testing.assert_close(params[name].grad[n], parameter.grad, **EXACT)


@pytest.mark.parametrize("attention", [Softmax(), Oscillator()], ids=["softmax", "oscillator"])
def test_models_of_a_pack_draw_their_own_masks(toy, rng, attention):
    models = [toy.build(attention, seed=0, dropout=0.3).train() for _ in range(PACK)]
    state = stack_module_state(models)
    inputs = toy.inputs
    set_generator(models[0], rng)

    def forward(state):
        return functional_call(models[0], state, kwargs=inputs)

    start = rng.get_state()
    first, second = (vmap(forward, randomness="different")(state) for _ in range(2))
    rng.set_state(start)
    again = vmap(forward, randomness="different")(state)
    assert torch.equal(first, again)
    assert not torch.allclose(first, second)
    assert not torch.allclose(first[0], first[1])
    assert not torch.allclose(first[1], first[2])


def test_gradients_of_a_pack_with_dropout_are_drawn_alike(toy, rng):
    models = [toy.build(Oscillator(), seed, dropout=0.3).train() for seed in range(PACK)]
    params, buffers = stack_module_state(models)
    inputs = stack(toy.inputs, rng)
    set_generator(models[0], rng)

    def pack_loss(p, b, x):
        return loss(models[0], (p, b), x)

    start = rng.get_state()
    inner = vmap(grad(pack_loss), randomness="different")(params, buffers, inputs)
    rng.set_state(start)
    vmap(pack_loss, randomness="different")(params, buffers, inputs).sum().backward()
    for name, gradient in inner.items():
        torch.testing.assert_close(gradient, params[name].grad)


@pytest.mark.parametrize("how", ["grad inside", "backward outside"])
def test_padding_row_gets_no_gradient_in_any_model(rng, how):
    models = [Embedding(5, 2, rng) for _ in range(PACK)]
    params, _ = stack_module_state(models)
    tokens = torch.tensor([[[0, 1, 2]], [[0, 0, 3]], [[0, 4, 1]]])

    def total(p, t):
        return functional_call(models[0], p, (t,)).sum()

    if how == "grad inside":
        gradient = vmap(grad(total))(params, tokens)["weight"]
    else:
        vmap(total)(params, tokens).sum().backward()
        gradient = params["weight"].grad
    counts = torch.stack([torch.bincount(t.flatten(), minlength=5) for t in tokens])
    counts[:, 0] = 0
    assert torch.equal(gradient, counts[..., None].expand(-1, -1, 2).float())
