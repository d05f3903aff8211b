"""The kernels as users get them on a CUDA device: TF32 where it is allowed, and autocast."""

import copy

import pytest
import torch

import lohe
from lohe import sphere
from lohe.ops.available import HAS_TRITON

if not torch.cuda.is_available() or not HAS_TRITON:
    pytest.skip("needs a GPU and Triton", allow_module_level=True)

from lohe.ops.triton import attention, sharp

pytestmark = pytest.mark.gpu
CUDA = torch.device("cuda")
TOKENS = 333
# ‖error‖ / ‖truth‖: TF32 keeps 10 bits and cuts off the others, and c^p multiplies that by p;
# bfloat16 keeps 7 bits, before and after a layer's products, too
TF32, STRICT, BFLOAT16 = 5e-3, 1e-4, 3e-2
POWERS = pytest.mark.parametrize(
    ("sharpness", "gain"), [(1, None), (4, 1.7)], ids=["linear", "sharp"]
)


@pytest.fixture(params=["older", "newer"])
def allow_tf32(request):
    """Says by one of PyTorch's switches that TF32 will do."""
    older, newer = torch.get_float32_matmul_precision(), torch.backends.cuda.matmul.fp32_precision

    def allow():
        if request.param == "older":
            torch.set_float32_matmul_precision("high")
        else:
            torch.backends.cuda.matmul.fp32_precision = "tf32"

    yield allow
    if request.param == "older":
        torch.set_float32_matmul_precision(older)
    else:
        torch.backends.cuda.matmul.fp32_precision = newer


@pytest.fixture
def inputs(rng):
    f, g, v = (torch.randn(2, 2, TOKENS, 64, generator=rng).to(CUDA) for _ in range(3))
    anchors = sphere.uniform(2, TOKENS, 8, generator=rng).to(CUDA)
    return {"f": f, "g": g, "v": v, "anchors": anchors}


@pytest.fixture
def dtypes(monkeypatch):
    """What f or v was when kernels were launched."""
    seen = []
    for module, which in ((attention, 0), (sharp, 2)):
        call = module._call
        monkeypatch.setattr(
            module, "_call", lambda *x, c=call, n=which: seen.append(x[n].dtype) or c(*x)
        )
    return seen


def value_and_gradients(x, **options):
    x = {name: t.detach().requires_grad_() for name, t in x.items()}
    out = lohe.oscillator_attention(**x, **options)
    gradients = torch.autograd.grad(out.sin().sum(), list(x.values()))
    return {"output": out} | dict(zip(x, gradients, strict=True))


def errors(found, exact):
    return {
        name: ((found[name].double() - truth).norm() / truth.norm()).item()
        for name, truth in exact.items()
    }


@POWERS
def test_tf32_where_it_is_allowed(inputs, allow_tf32, sharpness, gain):
    """Each error is one that TF32 explains, and larger than that of three products for one."""
    call = {"sharpness": sharpness, "gain": gain}
    exact = {name: t.double() for name, t in inputs.items()}
    exact = value_and_gradients(exact, **call, backend="reference")
    strict = errors(value_and_gradients(inputs, **call, backend="triton"), exact)
    allow_tf32()
    found = errors(value_and_gradients(inputs, **call, backend="triton"), exact)
    for name, error in found.items():
        assert strict[name] < STRICT, name
        assert 3 * strict[name] < error < TF32 * sharpness, name


@POWERS
def test_autocast_reaches_the_kernels(rng, dtypes, sharpness, gain):
    """The projections of a layer make bfloat16 of float32, and the kernels take what they get."""
    options = {"d_osc": 8, "sharpness": sharpness, "gain": gain, "generator": rng}
    layer = lohe.OscillatorAttention(128, 2, TOKENS, **options, backend="triton").to(CUDA)
    exact = copy.deepcopy(layer).double()
    exact.backend = "reference"
    x, direction = (torch.randn(2, TOKENS, 128, generator=rng).to(CUDA) for _ in range(2))

    def call(layer, x):
        x = x.requires_grad_()
        out = layer(x)
        named = {"x": x, **dict(layer.named_parameters())}
        gradients = torch.autograd.grad(out, list(named.values()), direction.to(out.dtype))
        return {"output": out} | dict(zip(named, gradients, strict=True))

    with torch.autocast("cuda", torch.bfloat16):
        layer(x)
        forward = len(dtypes)
        found = call(layer, x)
    assert set(dtypes) == {torch.bfloat16}
    assert len(dtypes) > 2 * forward > 0  # backward, too
    assert found["output"].dtype == torch.bfloat16
    for name, error in errors(found, call(exact, x.detach().double())).items():
        assert error < BFLOAT16, name


@POWERS
def test_autocast_leaves_the_physics_as_it_is_typed(inputs, dtypes, sharpness, gain):
    """float32 that is handed over by itself stays float32, as with every backend."""
    call = {"sharpness": sharpness, "gain": gain, "backend": "triton"}
    with torch.autocast("cuda", torch.bfloat16):
        found = value_and_gradients(inputs, **call)
    assert set(dtypes) == {torch.float32}
    for name, wanted in value_and_gradients(inputs, **call).items():
        assert torch.equal(found[name], wanted), name
