"""Tiles are timed on a GPU that nobody has measured."""

import pytest
import torch

import lohe
from lohe import sphere
from lohe.ops.available import HAS_TRITON

if not torch.cuda.is_available() or not HAS_TRITON:
    pytest.skip("needs a GPU and Triton", allow_module_level=True)

from lohe.ops.triton import fitting

pytestmark = pytest.mark.gpu
CUDA = torch.device("cuda")


@pytest.mark.parametrize(("sharpness", "gain"), [(1, 1.0), (2, 1.5)])
def test_an_unknown_gpu(monkeypatch, tmp_path, sharpness, gain):
    rng = torch.Generator(CUDA).manual_seed(0)
    place = {"device": CUDA, "generator": rng}
    f, g, v, do = (torch.randn(2, 4, 1024, 64, **place).bfloat16() for _ in range(4))
    r = sphere.uniform(4, 1024, 2, **place)
    inputs = [x.requires_grad_() for x in (f, g, v, r)]

    def call():
        o = lohe.oscillator_attention(
            *inputs, coupling="relu", sharpness=sharpness, gain=gain, causal=True, backend="triton"
        )
        return [o, *torch.autograd.grad(o, inputs, do)]

    usual = call()
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(fitting, "_measured", lambda device: False)
    monkeypatch.setattr(fitting, "ENOUGH", 2**20)
    monkeypatch.setattr(fitting, "_FASTEST", {})
    tuned = call()
    kernels = {kernel[0] for kernel in fitting._FASTEST}
    assert kernels >= {"forward", "queries", "keys"}
    assert len(list(tmp_path.rglob(fitting.FILE))) == len(fitting._FASTEST)
    for x, y in zip(tuned, usual, strict=True):
        torch.testing.assert_close(x, y, rtol=0, atol=2e-2 * y.abs().max().item())

    monkeypatch.setattr(fitting, "_FASTEST", {})
    monkeypatch.setattr(fitting, "_milliseconds", None)  # nothing is timed again
    for x, y in zip(call(), tuned, strict=True):
        assert torch.equal(x, y)
