"""The affine map of a pack is F.linear, in every derivative and under every vmap."""

from itertools import product

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.func import grad, jacrev, vmap
from torch.nn import functional as F

from accuracy import ROUNDING, assert_as_accurate
from lohe.attention.projections import Linear, linear
from lohe.ops import affine as module
from lohe.ops.affine import affine, packed

ROWS = (2, 6)  # batch, tokens
# narrow: the bias is added; wide: it is inside the product, which is padded to a multiple of 4
SHAPES = pytest.mark.parametrize(("d_in", "d_out"), [(5, 7), (3, 40), (5, 43)])
# which of x, W and b, or of x and W alone, each model has for itself
MAPPED = [m for n in (2, 3) for m in product([True, False], repeat=n) if any(m)]
BIAS = pytest.mark.parametrize("bias", [True, False])


def inputs(rng, d_in, d_out, bias, models=(None, None, None), dtype=torch.float64):
    shapes = [(*ROWS, d_in), (d_out, d_in), (d_out,)][: 3 if bias else 2]
    return [
        torch.randn(*([] if n is None else [n]), *shape, generator=rng, dtype=dtype)
        for n, shape in zip(models, shapes, strict=False)
    ]


def gradients(function, tensors, direction):
    leaves = [t.clone().requires_grad_() for t in tensors]
    out = function(*leaves)
    return [out.detach(), *torch.autograd.grad(out, leaves, direction)]


def assert_same(found, wanted):
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=ROUNDING)


@SHAPES
@BIAS
def test_derivatives_are_those_of_the_function(rng, d_in, d_out, bias):
    tensors = [t.requires_grad_() for t in inputs(rng, d_in, d_out, bias)]
    assert gradcheck(packed, tensors)
    assert gradgradcheck(packed, tensors, fast_mode=True)


@SHAPES
@pytest.mark.parametrize("mapped", MAPPED)
def test_a_pack_is_a_loop_over_its_models(rng, d_in, d_out, mapped):
    tensors = inputs(rng, d_in, d_out, len(mapped) == 3, [3 if m else None for m in mapped])
    direction = torch.randn(3, *ROWS, d_out, generator=rng, dtype=torch.float64)

    def loop(*args):
        return torch.stack(
            [
                F.linear(*(t[n] if m else t for t, m in zip(args, mapped, strict=True)))
                for n in range(3)
            ]
        )

    pack = vmap(packed, in_dims=tuple(0 if m else None for m in mapped))
    assert_same(gradients(pack, tensors, direction), gradients(loop, tensors, direction))


def test_the_mapped_axis_may_be_anywhere_and_vmap_nested(rng):
    x, w, b = inputs(rng, 3, 40, True, (2, 5, 2))
    wanted = torch.stack(
        [torch.stack([F.linear(x[i], w[j], b[i]) for j in range(5)]) for i in range(2)]
    )
    inner = vmap(packed, in_dims=(None, 1, None))
    found = vmap(inner, in_dims=(2, None, 1))(x.movedim(0, 2), w.movedim(0, 1), b.movedim(0, 1))
    torch.testing.assert_close(found, wanted, rtol=0, atol=ROUNDING)


@SHAPES
def test_transforms_of_torch_func(rng, d_in, d_out):
    x, w, b = inputs(rng, d_in, d_out, True, (3, 3, 3))

    def energy(function):
        return lambda w, b, x: function(x, w, b).sin().sum()

    for transform in (grad, jacrev):
        found, wanted = (
            vmap(transform(energy(f), argnums=(0, 1, 2)))(w, b, x) for f in (packed, F.linear)
        )
        assert_same(found, wanted)


@pytest.mark.parametrize("rows", [1, 7, 36, 53, 0])
def test_a_sum_in_parts_is_the_sum(rng, rows):
    g = torch.randn(2, rows, 5, generator=rng, dtype=torch.float64)
    x = torch.randn(2, rows, 3, generator=rng, dtype=torch.float64)
    assert_same(module._sums_over_rows(g, x, True), (g.mT @ x, g.sum(1)))
    assert module._sums_over_rows(g, x, False)[1] is None


def test_parts_divide_the_rows_and_are_few_where_tiles_are_many():
    for rows, tiles in product(range(1, 200), (1, 80, 320, 2000, 6000)):
        parts = module._parts(rows, tiles)
        assert rows % parts == 0
        assert parts <= module.MOST_PARTS
        assert parts == 1 or tiles * (parts - 1) < module.TILES
    assert [module._parts(64 * 49, 5 * 4 * n) for n in (4, 16, 313)] == [16, 7, 1]


def test_no_gradient_is_made_for_what_is_frozen(rng, monkeypatch):
    x, w, b = inputs(rng, 5, 7, True)
    monkeypatch.setattr(module, "_sums_over_rows", lambda *_: pytest.fail("not asked for"))
    packed(x.requires_grad_(), w, b).sum().backward()
    assert x.grad is not None


@pytest.mark.parametrize(("d_in", "d_out"), [(128, 128), (32, 1000)])
def test_float32_is_as_accurate_as_plain(rng, d_in, d_out):
    shapes = {"input": (64 * 49, d_in), "weight": (d_out, d_in), "bias": (d_out,)}
    x = {k: torch.randn(s, generator=rng, dtype=torch.float64) for k, s in shapes.items()}
    direction = torch.randn(64 * 49, d_out, generator=rng, dtype=torch.float64)

    def candidate(input, weight, bias):
        return packed(input, weight, bias)

    assert_as_accurate(
        candidate, F.linear, x, direction, torch.ones((), dtype=torch.float64), torch.float32
    )


def test_the_columns_of_the_bias_survive_tf32(rng):
    """Each piece has 8 bits, which TF32 keeps, and in float32 nothing is left over."""
    x, w, b = inputs(rng, 5, 43, True, dtype=torch.float32)
    ones, columns = module._with_bias_columns(x.reshape(1, -1, 5), w[None], 10 * b[None])
    assert ones.shape[-1] == columns.shape[-1] == 8
    pieces = columns[0, :, 5:]
    assert torch.equal(pieces.bfloat16().float(), pieces)
    assert torch.equal(pieces.sum(-1), 10 * b)


def test_the_cpu_keeps_pytorchs_own(rng, monkeypatch):
    monkeypatch.setattr(module, "packed", lambda *_: pytest.fail("not on the CPU"))
    x, w, b = inputs(rng, 5, 7, True, (2, 2, 2))
    assert_same([vmap(affine)(x, w, b)], [vmap(F.linear)(x, w, b)])


def test_linear_is_pytorchs_by_another_product(rng):
    layer = linear(5, 7, bias=True, generator=rng)
    assert isinstance(layer, Linear)
    assert isinstance(layer, torch.nn.Linear)
    assert list(layer.state_dict()) == ["weight", "bias"]
    x = torch.randn(3, 5, generator=rng)
    assert torch.equal(layer(x), F.linear(x, layer.weight, layer.bias))
