"""torch.compile, torch.export, vmap, torch.func, autocast, inference mode."""

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import torch
from torch.func import functional_call, grad, stack_module_state, vmap
from torch.utils._python_dispatch import TorchDispatchMode

import lohe
from accuracy import ROUNDING
from lohe.ops import chunked

BACKENDS = pytest.mark.parametrize("backend", ["reference", "chunked", "auto"])
CALLS = pytest.mark.parametrize(
    "call", [{"causal": True}, {"sharpness": 3.5, "gain": 2.0}, {"coupling": "exp", "causal": True}]
)


@pytest.mark.slow
def test_compile_and_export():
    # the shape checks of the other tests and torch.compile do not mix: a process of its own
    tests = Path(__file__).with_name("compiling.py")
    call = [sys.executable, "-m", "pytest", "-q", "-o", "addopts=", str(tests)]
    environment = os.environ | {
        "TRITON_INTERPRET": "1",  # kernels too, on the CPU
        "TORCHINDUCTOR_VEC_ISA_OK": "1",  # what the CPU says it has is not tried out first
    }
    done = subprocess.run(call, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stdout[-5000:]


@BACKENDS
@CALLS
def test_vmap_over_a_pack_of_models_is_a_loop(make, backend, call):
    packs = [make(9) for _ in range(4)]
    stacked = {n: torch.stack([x[n] for x in packs]) for n in packs[0]}
    attention = partial(lohe.oscillator_attention, backend=backend, **call)
    together = vmap(lambda x: attention(**x))(stacked)
    apart = torch.stack([attention(**x) for x in packs])
    torch.testing.assert_close(together, apart, rtol=0, atol=ROUNDING)


@BACKENDS
@CALLS
@pytest.mark.parametrize("heads", [1, 2])
def test_gradients_of_a_pack_are_those_of_its_models(rng, backend, call, heads):
    """With one head, too, where the axis of models and that of heads are one."""
    sizes = {"f": (9, 4), "g": (9, 4), "v": (9, 3)}
    packs = {n: torch.randn(2, 3, heads, *s, generator=rng).double() for n, s in sizes.items()}
    packs["anchors"] = torch.randn(2, heads, 9, 2, generator=rng).double()
    weight = torch.randn(3, heads, 9, 3, generator=rng).double()

    def loss(x):
        return (weight * lohe.oscillator_attention(**x, backend=backend, **call)).sum()

    together = vmap(grad(loss))(packs)
    for name, found in together.items():
        apart = [grad(loss)({n: x[m] for n, x in packs.items()})[name] for m in range(2)]
        torch.testing.assert_close(found, torch.stack(apart), rtol=0, atol=ROUNDING)


@pytest.mark.parametrize("backend", ["chunked", "auto"])
@pytest.mark.parametrize("mapped", ["f", "v", "anchors"])
def test_vmap_over_one_input_leaves_the_others_shared(make, backend, mapped):
    x = make(9)
    many = torch.stack([make(9)[mapped] for _ in range(3)], dim=1)  # not the leading axis
    mask = torch.rand(2, 3, 9, 9, generator=torch.Generator().manual_seed(0)) > 0.3
    key_mask = torch.tensor([[True] * 9, [True] * 5 + [False] * 4])
    call = partial(
        lohe.oscillator_attention, mask=mask, key_mask=key_mask, sharpness=2, backend=backend
    )
    together = vmap(lambda one: call(**x | {mapped: one}), in_dims=1)(many)
    apart = torch.stack([call(**x | {mapped: one}) for one in many.unbind(1)])
    torch.testing.assert_close(together, apart, rtol=0, atol=ROUNDING)


class Names(TorchDispatchMode):
    """The operations of this library that are called."""

    def __init__(self):
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function.namespace == "lohe":
            self.seen.append(function.name())
        return function(*args, **(kwargs or {}))


def test_an_op_is_one_to_those_who_look_and_a_function_to_others(make):
    """Dispatch modes (tracers, checkpoints) see it; the result is that of the direct call."""
    x = {name: t.requires_grad_() for name, t in make(9).items()}

    def gradients():
        out = lohe.oscillator_attention(**x, causal=True, sharpness=2.5, backend="chunked")
        return torch.autograd.grad(out.sum(), list(x.values()))

    alone = gradients()
    with Names() as names:
        watched = gradients()
    forward = ["lohe::chunked_drive", "lohe::chunked_readout"]
    assert names.seen == forward + [f"{name}_backward" for name in reversed(forward)]
    assert all(map(torch.equal, watched, alone))


@pytest.mark.parametrize("backend", ["chunked", "auto"])
@pytest.mark.parametrize("sharpness", [1, 2.5])
def test_per_model_gradients_by_vmap_of_grad(rng, backend, sharpness):
    options = {"sharpness": sharpness, "gain": "learned", "backend": backend, "generator": rng}
    layers = [lohe.OscillatorAttention(8, 2, 12, **options).double() for _ in range(3)]
    parameters, _ = stack_module_state(layers)
    x = torch.randn(3, 2, 10, 8, dtype=torch.float64, generator=rng)

    def loss(parameters, x):
        return functional_call(layers[0], parameters, x).square().sum()

    together = vmap(grad(loss))(parameters, x)
    for n, layer in enumerate(layers):
        alone = grad(loss)(dict(layer.named_parameters()), x[n])
        for name, gradient in alone.items():
            torch.testing.assert_close(together[name][n], gradient, rtol=1e-10, atol=1e-11)


@BACKENDS
def test_autocast_touches_the_projections_and_not_the_physics(rng, backend):
    layer = lohe.OscillatorAttention(16, 2, 30, sharpness=2, backend=backend, generator=rng)
    x = torch.randn(2, 20, 16, generator=rng)
    settled = []
    layer.settle = lambda h: settled.append(h.dtype) or lohe.ops.fixed_point(h)
    with torch.autocast("cpu", torch.bfloat16):
        out = layer(x)
    assert out.dtype == torch.bfloat16
    assert settled == [torch.float32]
    assert all(p.dtype == torch.float32 for p in layer.parameters())
    torch.testing.assert_close(out.float(), layer(x), atol=0.02, rtol=0.02)
    out.float().sum().backward()
    assert all(p.grad is not None and p.grad.dtype == torch.float32 for p in layer.parameters())


@BACKENDS
def test_what_has_left_a_transform_is_a_tensor_like_others(make, backend):
    x, kept = make(9), []

    def loss(f):
        kept.append(2 * f)
        return kept[0].sum()

    grad(loss)(x["f"])
    found = lohe.oscillator_attention(**x | {"f": kept[0]}, backend=backend)
    wanted = lohe.oscillator_attention(**x | {"f": 2 * x["f"]}, backend=backend)
    torch.testing.assert_close(found, wanted, rtol=0, atol=0)


@BACKENDS
def test_inference_mode(make, backend):
    x = make(20)
    wanted = lohe.oscillator_attention(**x, backend=backend)
    with torch.inference_mode():
        assert torch.equal(lohe.oscillator_attention(**x, backend=backend), wanted)


def test_results_are_the_same_when_run_again(make):
    x = {n: t.float() for n, t in make(300).items()}
    for backend in ("reference", "chunked"):
        first, second = (lohe.oscillator_attention(**x, backend=backend) for _ in range(2))
        assert torch.equal(first, second)


@pytest.mark.parametrize("turn", [lambda x: x, lambda x: x.mT.contiguous().mT], ids=["", "turned"])
def test_what_compilers_are_told_of_chunks_is_so(rng, turn):
    """Shapes and strides of the registered ops, however their inputs lie."""
    f, g, v = (turn(torch.randn(2, 3, 5, 4, generator=rng)) for _ in range(3))
    r, z = turn(torch.randn(3, 5, 2, generator=rng)), turn(torch.randn(2, 3, 5, 2, generator=rng))
    gain, p = torch.ones(3), torch.full((3,), 2.0)
    how = ([], "relu", 0.5, True, False)
    h, top = chunked.drive_forward(f, g, r, *how)
    o, *rows = chunked.readout_forward(z, r, v, gain, p, [], 2.0, True)
    for op, given in (
        (chunked.drive_forward, (f, g, r, *how)),
        (chunked.drive_backward, (h, f, g, r, h, top, *how)),
        (chunked.readout_forward, (z, r, v, gain, p, [], 2.0, True)),
        (chunked.readout_backward, (o, z, r, v, gain, p, o, *rows, [], 2.0, True)),
    ):
        tests = ("test_schema", "test_faketensor")
        torch.library.opcheck(op, given, test_utils=tests)
