"""Chunked and linear against the float64 reference, in every dtype, at awkward sizes."""

from functools import partial

import pytest
import torch
from torch.autograd import gradcheck

import lohe
from accuracy import ROUNDING, assert_as_accurate, outputs_and_gradients
from lohe import ops
from lohe.ops import linear, reference
from lohe.ops.masks import Allowed

DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
attention = lohe.oscillator_attention


def check_accuracy(
    make, rng, dtype, queries, keys=None, *, d_osc=2, spread=1.0, backend="chunked", **call
):
    x = make(queries, keys, d_osc=d_osc)
    x["f"] = x["f"] * spread
    direction = torch.randn(2, 3, queries, 5, dtype=torch.float64, generator=rng)
    shown = {k: m for k, m in call.items() if k in ("coupling", "causal", "mask", "key_mask")}
    w = ops.couplings(ops.problem(x["f"], x["g"], None, x["anchors"], **shown), shifted=True)
    h = reference.drive(w, x["anchors"])
    condition = h.norm(dim=-1, keepdim=True) / w.sum(dim=-1, keepdim=True).clamp(min=1e-300)
    candidate, plain = (partial(attention, backend=b, **call) for b in (backend, "reference"))
    amplified = steepness(x, **shown) if spread > 1 else {}
    with lohe.checks(False):
        assert_as_accurate(candidate, plain, x, direction, condition, dtype, amplified)


def steepness(x, **shown):
    """What a relative rounding of a row's couplings is worth in the gradients of f and g: 50 where
    scores are 1e4 and those of one row happen to be 200 times smaller."""
    f, g = (x[name].clone().requires_grad_() for name in ("f", "g"))
    w = ops.couplings(ops.problem(f, g, None, x["anchors"], **shown), shifted=True)
    steep = torch.autograd.grad(w.sum(dim=-1).log().sum(), (f, g))
    return {name: d.abs().max().item() for name, d in zip(("f", "g"), steep, strict=True)}


@DTYPES
@pytest.mark.parametrize("tokens", [1, 2, 63, 100, 257])
@pytest.mark.parametrize("causal", [False, True])
def test_odd_sizes(make, rng, small_tiles, dtype, tokens, causal):
    check_accuracy(make, rng, dtype, tokens, causal=causal)
    check_accuracy(make, rng, dtype, tokens, causal=causal, sharpness=4, gain=2.0)


@DTYPES
@pytest.mark.parametrize("d_osc", [2, 3, 8, 32])
@pytest.mark.parametrize("sharpness", [1, 2, 4, 2.5])
def test_dimensions_and_sharpness(make, rng, small_tiles, dtype, d_osc, sharpness):
    check_accuracy(make, rng, dtype, 100, d_osc=d_osc, sharpness=sharpness, causal=True)


@DTYPES
@pytest.mark.parametrize("coupling", ["softplus", "relu", "elu", "exp"])
def test_couplings(make, rng, small_tiles, dtype, coupling):
    check_accuracy(make, rng, dtype, 100, coupling=coupling)


@DTYPES
@pytest.mark.parametrize("coupling", ["softplus", "relu", "elu", "exp"])
def test_scores_of_ten_thousand(make, rng, small_tiles, dtype, coupling):
    check_accuracy(make, rng, dtype, 63, coupling=coupling, spread=1e4, causal=True)


@DTYPES
@pytest.mark.parametrize("backend", ["chunked", "auto"])
def test_cross_attention_with_masks(make, rng, small_tiles, dtype, backend):
    mask = torch.rand(2, 1, 57, 91, generator=rng) > 0.5
    mask[0, 0, 3] = False  # a row with no allowed key
    key_mask = torch.rand(2, 91, generator=rng) > 0.2
    for sharpness in (1, 3):
        call = {"sharpness": sharpness, "backend": backend}
        check_accuracy(make, rng, dtype, 57, 91, mask=mask, key_mask=key_mask, **call)
        check_accuracy(make, rng, dtype, 57, 91, key_mask=key_mask, causal=True, **call)


@DTYPES
def test_free_anchors_reach_the_clamp(make, rng, small_tiles, dtype):
    for gain in (None, 7.0):
        check_accuracy(make, rng, dtype, 80, normalize_anchors=False, gain=gain, sharpness=2)


@pytest.mark.parametrize("sharpness", [1, 2, 3, 4])
@pytest.mark.parametrize("d_osc", [2, 3, 5])
@pytest.mark.parametrize("gain", [0.3, 1.0])
def test_features_are_a_factorisation_of_the_power(rng, sharpness, d_osc, gain):
    z, r = torch.randn(2, 10, d_osc, dtype=torch.float64, generator=rng)
    phi, psi = (linear.features(x, sharpness, gain) for x in (r, z))
    assert phi.shape[-1] == linear.feature_count(d_osc, sharpness)
    torch.testing.assert_close(psi @ phi.mT, (1 + gain * z @ r.mT) ** sharpness)


def test_a_state_stands_for_the_keys_before(make):
    x = make(90)
    p = ops.problem(**x, causal=True)
    z = ops.fixed_point(ops.drive(p))
    whole = linear.readout(z, p.anchors, x["v"], p.reads)
    state, rows = None, []
    for start, stop in [(0, 1), (1, 40), (40, 41), (41, 90)]:
        new = Allowed(stop - start, stop - start, z.device, causal=True)
        r, v = p.anchors[:, start:stop], x["v"][:, :, start:stop]
        rows.append(linear.readout(z[:, :, start:stop], r, v, new, state=state))
        state = linear.after(state, linear.key_features(r, new, 1, 1.0), v)
    torch.testing.assert_close(torch.cat(rows, dim=2), whole, rtol=0, atol=ROUNDING)


PATHS = {
    "plain": {},
    "causal": {"causal": True},
    "relu": {"coupling": "relu"},
    "elu, gain below one": {"coupling": "elu", "gain": 0.5},
    "exp, causal": {"coupling": "exp", "causal": True},
    "p = 2": {"sharpness": 2, "causal": True},
    "p = 4, gain": {"sharpness": 4, "gain": 1.7},
    "real p": {"sharpness": 2.3, "causal": True},
    "free anchors": {"normalize_anchors": False, "gain": 2.0},
    "key mask": {"key_mask": torch.tensor([[True] * 7 + [False] * 2, [True] * 9])},
    "mask": {"mask": torch.rand(5, 9, generator=torch.Generator().manual_seed(0)) > 0.4},
    "readout mask": {
        "key_mask": torch.tensor([[True] * 7 + [False] * 2, [True] * 9]),
        "readout_mask": torch.ones(1, 1, 1, 1, dtype=torch.bool),
    },
}


@pytest.mark.parametrize("backend", ["reference", "chunked", "auto"])
@pytest.mark.parametrize("path", PATHS)
def test_gradients_of_every_path(make, monkeypatch, backend, path):
    from lohe.ops import chunked

    monkeypatch.setattr(chunked, "ROWS", 2)
    monkeypatch.setattr(chunked, "COLUMNS", 4)
    monkeypatch.setattr(linear, "BLOCK", 2)
    x = [t.requires_grad_() for t in make(5, 9, heads=2, d_h=2, d_v=2, d_osc=3).values()]
    assert gradcheck(partial(attention, backend=backend, **PATHS[path]), x, fast_mode=True)


@pytest.mark.parametrize("backend", ["reference", "chunked"])
@pytest.mark.parametrize("normalize_anchors", [True, False])
def test_gradients_of_gain_and_sharpness_per_head(make, backend, normalize_anchors):
    x = [t.requires_grad_() for t in make(3, heads=2, d_h=2, d_v=2, d_osc=3).values()]
    gain = torch.tensor([0.7, 2.1], dtype=torch.float64, requires_grad=True)
    sharpness = torch.tensor([1.4, 3.0], dtype=torch.float64, requires_grad=True)

    def call(f, g, v, anchors, gain, sharpness):
        options = {"gain": gain, "sharpness": sharpness, "normalize_anchors": normalize_anchors}
        return attention(f, g, v, anchors, backend=backend, causal=True, **options)

    assert gradcheck(call, [*x, gain, sharpness])


def test_backends_agree_in_float64_to_rounding(make, rng, small_tiles):
    x = make(150, 170, d_osc=3)
    direction = torch.randn(2, 3, 150, 5, dtype=torch.float64, generator=rng)
    gain = torch.tensor([0.5, 1.0, 3.0], dtype=torch.float64)
    for call in ({}, {"sharpness": 2, "causal": True}, {"sharpness": 3.3, "gain": gain}):
        wanted, *found = (
            outputs_and_gradients(
                partial(attention, backend=b, **call), x, direction, torch.float64
            )
            for b in ("reference", "chunked", "auto")
        )
        for other in found:
            for name in wanted:
                torch.testing.assert_close(other[name], wanted[name], rtol=1e-11, atol=1e-12)


def test_second_derivatives_are_refused_with_advice(make):
    x = {n: t.requires_grad_() for n, t in make(5).items()}
    out = attention(**x, backend="chunked", sharpness=2.5)
    (df,) = torch.autograd.grad(out.sum(), x["f"], create_graph=True)
    with pytest.raises(RuntimeError, match='backend="reference"'):
        df.sum().backward()
