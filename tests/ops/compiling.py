"""torch.compile and torch.export; run by test_transforms.py without the hook that checks shapes."""

import shutil
from functools import partial

import pytest
import torch

import lohe
from kernels import INTERPRETED
from lohe.ops.available import HAS_TRITON

pytestmark = pytest.mark.filterwarnings("default")  # torch's compiler raises its own deprecations
EVERY = ["reference", "chunked", "auto"]
EVERY += ["triton"] if INTERPRETED and HAS_TRITON else []
BACKENDS = pytest.mark.parametrize("backend", EVERY)
CALLS = pytest.mark.parametrize(
    "call",
    [
        {"causal": True},
        {"sharpness": 2, "causal": True},
        {"sharpness": 3.5, "gain": 2.0},
        {"coupling": "exp", "causal": True},
    ],
)


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch._dynamo.reset()


@BACKENDS
@CALLS
def test_compile_without_graph_breaks(make, backend, call):
    x = {n: t.float().requires_grad_() for n, t in make(40, batch=1, heads=2).items()}
    attention = partial(lohe.oscillator_attention, backend=backend, **call)
    compiled = torch.compile(attention, fullgraph=True, backend="aot_eager")
    for found, wanted in zip(
        _value_and_gradients(compiled, x), _value_and_gradients(attention, x), strict=True
    ):
        torch.testing.assert_close(found, wanted)


@pytest.mark.skipif("triton" not in EVERY, reason="kernels run in the interpreter here")
@pytest.mark.parametrize("coupling", ["softplus", "exp"])
def test_a_few_queries_against_many_keys_compile(make, monkeypatch, coupling):
    """They split the keys, inside the same op."""
    from lohe.ops.triton import decode

    monkeypatch.setattr(decode, "LONG", 30)
    x = {n: t.float().requires_grad_() for n, t in make(3, 40, batch=1, heads=2).items()}
    attention = partial(
        lohe.oscillator_attention, backend="triton", coupling=coupling, sharpness=2, causal=True
    )
    compiled = torch.compile(attention, fullgraph=True, backend="aot_eager")
    for found, wanted in zip(
        _value_and_gradients(compiled, x), _value_and_gradients(attention, x), strict=True
    ):
        torch.testing.assert_close(found, wanted)


def _value_and_gradients(function, x):
    out = function(**x)
    return (out, *torch.autograd.grad(out.sin().sum(), list(x.values())))


@pytest.mark.skipif(shutil.which("g++") is None, reason="inductor needs a C++ compiler on the CPU")
@pytest.mark.parametrize("backend", ["chunked", "auto"])
def test_inductor_compiles_a_layer(rng, backend):
    layer = lohe.OscillatorAttention(16, 2, 30, causal=True, backend=backend, generator=rng)
    x = torch.randn(2, 20, 16, generator=rng)
    compiled = torch.compile(layer, fullgraph=True)
    torch.testing.assert_close(compiled(x), layer(x))


@BACKENDS
def test_export(rng, backend):
    layer = lohe.OscillatorAttention(16, 2, 30, sharpness=2.5, backend=backend, generator=rng)
    x = torch.randn(2, 20, 16, generator=rng)
    key_mask = torch.rand(2, 20, generator=rng) > 0.3
    program = torch.export.export(layer, (x,), {"key_mask": key_mask})
    torch.testing.assert_close(program.module()(x, key_mask=key_mask), layer(x, key_mask=key_mask))
