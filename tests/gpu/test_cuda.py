"""The same mathematics on a CUDA device; skipped where there is none.

python -m pytest -o addopts= tests/gpu       # also without beartype
"""

from functools import partial

import pytest
import torch
from torch.func import vmap

import lohe
from accuracy import assert_as_accurate
from lohe import ops, sphere
from lohe.dynamics import flow
from lohe.ops import reference
from lohe.substrates import FiniteHorizon, FrequencyDisorder, Mismatch, StateNoise

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.filterwarnings("ignore:The AccumulateGrad node's stream"),
]
CUDA = torch.device("cuda")
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])


def inputs(tokens, d_osc=2):
    rng = torch.Generator().manual_seed(tokens)
    f, g, v = (torch.randn(2, 3, tokens, 16, dtype=torch.float64, generator=rng) for _ in range(3))
    anchors = sphere.uniform(3, tokens, d_osc, dtype=torch.float64, generator=rng)
    return {"f": f.cuda(), "g": g.cuda(), "v": v.cuda(), "anchors": anchors.cuda()}


@DTYPES
@pytest.mark.parametrize("tokens", [1, 63, 257, 1500])
@pytest.mark.parametrize(
    "call",
    [{}, {"causal": True, "coupling": "exp"}, {"sharpness": 2.5, "gain": 2.0, "causal": True}],
)
def test_chunked_is_as_accurate_as_plain(dtype, tokens, call):
    x = inputs(tokens, d_osc=3)
    w = ops.couplings(
        ops.problem(x["f"], x["g"], None, x["anchors"], causal="causal" in call), shifted=True
    )
    h = reference.drive(w, x["anchors"])
    condition = h.norm(dim=-1, keepdim=True) / w.sum(dim=-1, keepdim=True)
    paths = (
        partial(lohe.oscillator_attention, backend=b, **call) for b in ("chunked", "reference")
    )
    rng = torch.Generator(CUDA).manual_seed(tokens)
    direction = torch.randn(x["v"].shape, dtype=torch.float64, device=CUDA, generator=rng)
    with lohe.checks(False):
        assert_as_accurate(*paths, x, direction, condition, dtype)


def test_memory_stays_linear_on_the_device():
    peaks = []
    for tokens in (4096, 8192, 16384):
        x = {n: t.float().requires_grad_() for n, t in inputs(tokens).items()}
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        out = lohe.oscillator_attention(**x, causal=True, backend="chunked", sharpness=2.5)
        out.sum().backward()
        peaks.append(torch.cuda.max_memory_allocated() - before)
        del x, out
    assert peaks[2] < 2.5 * peaks[1]
    assert peaks[2] < 16384**2 * 4  # less than one T x T matrix of one head


def test_layer_swaps_devices_and_autocasts():
    layer = lohe.OscillatorAttention(
        32, 4, 64, causal=True, generator=torch.Generator().manual_seed(0)
    )
    x = torch.randn(2, 50, 32)
    wanted = layer(x)
    layer.cuda()
    torch.testing.assert_close(layer(x.cuda()).cpu(), wanted, atol=1e-5, rtol=1e-4)
    with torch.autocast("cuda", torch.bfloat16):
        out = layer(x.cuda())
    assert out.dtype == torch.bfloat16
    torch.testing.assert_close(out.float().cpu(), wanted, atol=0.03, rtol=0.05)
    rows, cache = [], None
    for n in range(50):
        out, cache = layer.decode(x[:, n : n + 1].cuda(), cache)
        rows.append(out)
    torch.testing.assert_close(torch.cat(rows, 1).cpu(), wanted, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("backend", ["chunked", "auto"])
def test_a_step_can_be_captured_in_a_graph(backend):
    x = {n: t.float().requires_grad_() for n, t in inputs(70).items()}

    def step():
        out = lohe.oscillator_attention(**x, sharpness=2, gain=1.5, causal=True, backend=backend)
        return out, torch.autograd.grad(out.square().sum(), list(x.values()))

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    with torch.no_grad():
        for t in x.values():
            t.mul_(0.5)
    graph.replay()
    with torch.cuda.stream(side):
        out, grads = step()
    torch.cuda.synchronize()
    torch.testing.assert_close(captured[0], out)
    torch.testing.assert_close(captured[1], grads, atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize("how", ["make_graphed_callables", "reduce-overhead"])
@pytest.mark.filterwarnings("default")  # those of torch.compile
def test_a_layer_behind_graphs(how):
    rng = torch.Generator().manual_seed(0)
    layer = lohe.OscillatorAttention(64, 2, 256, causal=True, generator=rng).cuda()
    x, dy = (torch.randn(4, 256, 64, generator=rng).cuda() for _ in range(2))
    x.requires_grad_()

    def call(layer):
        y = layer(x)
        return [y.detach().clone(), *torch.autograd.grad(y, [x, *layer.parameters()], dy)]

    plain = call(layer)
    if how == "make_graphed_callables":
        fast = torch.cuda.make_graphed_callables(layer, (x,))
    else:
        fast = torch.compile(layer, mode=how)
    _, _, last = (call(fast) for _ in range(3))  # the first calls warm up
    for wanted, found in zip(plain, last, strict=True):
        torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-4)


def test_vmap_on_the_device():
    packs = [inputs(t) for t in (40, 40)]
    stacked = {n: torch.stack([x[n] for x in packs]) for n in packs[0]}
    attention = partial(lohe.oscillator_attention, backend="chunked", sharpness=2.5)
    together = vmap(lambda x: attention(**x))(stacked)
    torch.testing.assert_close(together, torch.stack([attention(**x) for x in packs]))


@pytest.mark.parametrize("frequency", [False, True])
def test_flow_is_the_same_on_both_devices(frequency):
    rng = torch.Generator().manual_seed(0)
    z0 = sphere.uniform(500, 5, generator=rng, dtype=torch.float64)
    h = torch.randn(500, 5, generator=rng, dtype=torch.float64)
    m = torch.randn(500, 5, 5, generator=rng, dtype=torch.float64)
    omega = m - m.mT if frequency else None
    there = flow(z0.cuda(), h.cuda(), 3.0, None if omega is None else omega.cuda())
    torch.testing.assert_close(there.cpu(), flow(z0, h, 3.0, omega), atol=1e-11, rtol=0)


def test_one_seed_gives_one_draw_on_every_device():
    layer = lohe.OscillatorAttention(32, 4, 64, generator=torch.Generator().manual_seed(0))
    x = torch.randn(2, 50, 32)
    outs = []
    for device in ("cpu", "cuda"):
        layer.to(device)
        rng = torch.Generator().manual_seed(3)
        layer.drive = Mismatch(reference.drive, 0.3, rng)
        start = FiniteHorizon(2.0, generator=rng)
        layer.settle = StateNoise(FrequencyDisorder(start, 0.1, 5.0, rng), 0.1, rng)
        outs.append(layer(x.to(device)).cpu())
    torch.testing.assert_close(outs[0], outs[1], atol=1e-4, rtol=1e-3)
