"""What is true of Eqs. 2-6, whatever computes them."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

import lohe
from accuracy import ROUNDING
from lohe import ops, sphere
from lohe.ops import reference

BACKENDS = ("reference", "chunked")
EVERY_BACKEND = pytest.mark.parametrize("backend", BACKENDS)
EVERY_COUPLING = pytest.mark.parametrize("coupling", ["softplus", "relu", "elu", "exp"])


@given(
    tokens=st.integers(1, 12),
    d_osc=st.integers(2, 9),
    sharpness=st.floats(1, 8),
    gain=st.floats(0.1, 8),
    spread=st.floats(0, 30),
    seed=st.integers(0, 2**32),
    causal=st.booleans(),
)
def test_weights_are_a_distribution(tokens, d_osc, sharpness, gain, spread, seed, causal):
    rng = torch.Generator().manual_seed(seed)
    f, g = spread * torch.randn(2, 1, 2, tokens, 4, generator=rng, dtype=torch.float64)
    anchors = torch.randn(2, tokens, d_osc, generator=rng, dtype=torch.float64)
    a = lohe.attention_weights(f, g, anchors, sharpness=sharpness, gain=gain, causal=causal)
    assert (a >= 0).all()
    assert (a.sum(dim=-1) - 1).abs().max() < ROUNDING


@EVERY_COUPLING
def test_couplings_are_positive_and_masked_ones_zero(make, coupling):
    x = make(9)
    p = ops.problem(x["f"], x["g"], None, x["anchors"], coupling=coupling, causal=True)
    w = ops.couplings(p)
    earlier = torch.ones(9, 9, dtype=torch.bool).tril()
    assert (w[..., earlier] > 0).all()
    assert (w[..., ~earlier] == 0).all()


@EVERY_BACKEND
@pytest.mark.parametrize("coupling", ["softplus", "elu"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_small_couplings_keep_their_digits(make, rng, backend, coupling, dtype):
    """Far below 0 they are e^s, of which what all scores have in common changes nothing."""
    x = {name: t.to(dtype) for name, t in make(9).items()}
    x["f"] = torch.ones_like(x["f"][..., :1])
    scores = x["g"][..., :1]

    def at(s, coupling):
        g = (scores + s).requires_grad_()
        call = x | {"g": g, "coupling": coupling, "scale": 1.0, "backend": backend}
        out = lohe.oscillator_attention(**call)
        return out, torch.autograd.grad(out.square().sum(), g)[0]

    # scores of -50 are rounded by 4e-6 in float32
    torch.testing.assert_close(at(-50.0, coupling), at(0.0, "exp"), rtol=1e-4, atol=3e-5)


def test_oscillators_settle_on_the_sphere(make):
    x = make(30, d_osc=5)
    z = reference.fixed_point(ops.drive(ops.problem(x["f"], x["g"], None, x["anchors"])))
    assert (z.norm(dim=-1) - 1).abs().max() < 1e-15


@EVERY_BACKEND
@pytest.mark.parametrize("sharpness", [1, 3])
def test_rotating_all_anchors_changes_nothing(make, rng, backend, sharpness):
    x = make(20, d_osc=4)
    rotation = torch.linalg.qr(torch.randn(4, 4, generator=rng, dtype=torch.float64)).Q
    call = {"sharpness": sharpness, "causal": True, "backend": backend}
    before = lohe.oscillator_attention(**x, **call)
    after = lohe.oscillator_attention(**x | {"anchors": x["anchors"] @ rotation}, **call)
    torch.testing.assert_close(before, after, rtol=0, atol=ROUNDING)


@EVERY_BACKEND
def test_dimensions_beyond_the_number_of_tokens_add_nothing(make, backend):
    # the weights see only R Rᵀ, and T anchors in any dimension have the Gram matrix of T in R^T
    x = make(6, d_osc=40)
    values, vectors = torch.linalg.eigh(x["anchors"] @ x["anchors"].mT)
    reduced = vectors * values.clamp(min=0).sqrt()[:, None, :]
    assert reduced.shape == (3, 6, 6)
    before = lohe.oscillator_attention(**x, backend=backend)
    after = lohe.oscillator_attention(**x | {"anchors": reduced}, backend=backend)
    torch.testing.assert_close(before, after, rtol=0, atol=ROUNDING)


@EVERY_BACKEND
def test_permuting_tokens_with_their_anchors_permutes_outputs(make, rng, backend):
    x = make(11)
    order = torch.randperm(11, generator=rng)
    moved = {n: t[..., order, :] for n, t in x.items()}
    before = lohe.oscillator_attention(**x, backend=backend)
    after = lohe.oscillator_attention(**moved, backend=backend)
    torch.testing.assert_close(before[..., order, :], after, rtol=0, atol=ROUNDING)


@EVERY_BACKEND
@EVERY_COUPLING
@pytest.mark.parametrize("sharpness", [1, 2.5])
def test_the_future_gets_exactly_no_gradient(make, small_tiles, backend, coupling, sharpness):
    x = {n: t.requires_grad_() for n, t in make(70).items()}
    call = {"coupling": coupling, "sharpness": sharpness, "causal": True, "backend": backend}
    out = lohe.oscillator_attention(**x, **call)
    now = 41
    grads = torch.autograd.grad(out[..., now, :].sum(), list(x.values()))
    for name, grad in zip(x, grads, strict=True):
        assert (grad[..., now + 1 :, :] == 0).all(), name
        assert (grad[..., : now + 1, :] != 0).any(), name


@EVERY_BACKEND
@pytest.mark.parametrize("queries", [1, 5, 37, 64])
def test_causality_aligns_the_last_query_with_the_last_key(make, small_tiles, backend, queries):
    x = make(64)
    full = lohe.oscillator_attention(**x, causal=True, backend=backend)
    last = lohe.oscillator_attention(
        **x | {"f": x["f"][:, :, -queries:]}, causal=True, backend=backend
    )
    torch.testing.assert_close(last, full[:, :, -queries:], rtol=0, atol=ROUNDING)


@EVERY_BACKEND
def test_more_queries_than_keys_leave_the_first_without_any(make, small_tiles, backend):
    x = make(50, 30)
    out = lohe.oscillator_attention(**x, causal=True, backend=backend)
    square = lohe.oscillator_attention(**x | {"f": x["f"][:, :, 20:]}, causal=True, backend=backend)
    assert (out[:, :, :20] == 0).all()
    torch.testing.assert_close(out[:, :, 20:], square, rtol=0, atol=ROUNDING)


@EVERY_BACKEND
@pytest.mark.parametrize("sharpness", [1, 4])
def test_a_masked_key_might_as_well_not_exist(make, backend, sharpness):
    x = make(9)
    keep = torch.tensor([0, 1, 3, 4, 6, 8])
    key_mask = torch.zeros(2, 9, dtype=torch.bool)
    key_mask[:, keep] = True
    masked = lohe.oscillator_attention(**x, key_mask=key_mask, sharpness=sharpness, backend=backend)
    fewer = {n: t if n == "f" else t[..., keep, :] for n, t in x.items()}
    without = lohe.oscillator_attention(**fewer, sharpness=sharpness, backend=backend)
    torch.testing.assert_close(masked, without, rtol=0, atol=ROUNDING)


@EVERY_BACKEND
@pytest.mark.parametrize("sharpness", [1, 2, 3.5])
def test_rows_without_a_key_are_zero(make, backend, sharpness):
    x = {n: t.requires_grad_() for n, t in make(6).items()}
    mask = torch.rand(6, 6, generator=torch.Generator().manual_seed(1)) > 0.4
    mask[2] = False
    out = lohe.oscillator_attention(**x, mask=mask, sharpness=sharpness, backend=backend)
    assert (out[:, :, 2] == 0).all()
    grads = torch.autograd.grad(out.sum(), list(x.values()))
    assert all(g.isfinite().all() for g in grads)
    assert (grads[0][:, :, 2] == 0).all()


@EVERY_BACKEND
@pytest.mark.parametrize("sharpness", [1, 4])
def test_zero_drive_reads_uniformly_and_gives_the_scores_no_gradient(make, backend, sharpness):
    x = make(2)
    x["anchors"] = torch.tensor([[[1.0, 0.0], [-1.0, 0.0]]] * 3, dtype=torch.float64)
    x["f"] = torch.zeros_like(x["f"])  # equal couplings of opposite anchors cancel exactly
    x = {n: t.requires_grad_() for n, t in x.items()}
    out = lohe.oscillator_attention(**x, sharpness=sharpness, backend=backend)
    mean = x["v"].mean(dim=2, keepdim=True).expand_as(out)
    torch.testing.assert_close(out, mean, rtol=0, atol=1e-15)
    df, dg = torch.autograd.grad(out.sum(), [x["f"], x["g"]])
    assert (df == 0).all()
    assert (dg == 0).all()


@EVERY_BACKEND
@pytest.mark.parametrize("sharpness", [1, 2])
def test_a_row_of_vanished_weights_is_uniform(make, backend, sharpness):
    # off the fixed point an oscillator can sit opposite to all anchors: 1 + z·r = 0
    x = make(4)
    east = torch.tensor([1.0, 0.0], dtype=torch.float64)
    p = ops.problem(**x | {"anchors": east.expand(3, 4, 2)}, sharpness=sharpness)
    out = ops.readout(p, -east.expand(2, 3, 4, 2), backend)
    mean = x["v"].mean(dim=2, keepdim=True).expand_as(out)
    torch.testing.assert_close(out, mean, rtol=0, atol=1e-15)


@EVERY_BACKEND
def test_a_key_that_is_not_read_may_be_much_nearer(backend):
    """One key drives, another is read, nearly opposite to it: of the first, (1 + z·r)^p relative to
    the second is infinite in float32, and masked."""
    f = torch.zeros(1, 1, 2, 4)
    v = torch.tensor([[[[1.0], [2.0]]]], requires_grad=True)
    anchors = torch.tensor([[[1.0, 0.0], [-1.0, 1e-3]]], requires_grad=True)
    masks = {"key_mask": [[True, False]], "readout_mask": [[[[False, True]]]]}
    masks = {name: torch.tensor(m) for name, m in masks.items()}
    out = ops.oscillator_attention(f, f, v, anchors, sharpness=8, backend=backend, **masks)
    assert out.flatten().tolist() == [2, 2]
    dv, da = torch.autograd.grad(out.sum(), [v, anchors])
    assert dv.flatten().tolist() == [0, 2]
    assert da.isfinite().all()


@EVERY_BACKEND
def test_no_heads_at_all(backend):
    none = torch.zeros(2, 0, 3, 4)
    out = ops.oscillator_attention(none, none, none, torch.zeros(0, 3, 2), backend=backend)
    assert out.shape == (2, 0, 3, 4)


def test_readout_mask_overrides_the_masks_of_the_readout_only(make):
    x = make(6)
    key_mask = torch.ones(2, 6, dtype=torch.bool)
    key_mask[:, 4:] = False
    everything = torch.ones(1, 1, 1, 1, dtype=torch.bool)
    for backend in BACKENDS:
        out = lohe.oscillator_attention(
            **x, key_mask=key_mask, readout_mask=everything, backend=backend
        )
        w = ops.couplings(ops.problem(**x, key_mask=key_mask))
        z = reference.fixed_point(reference.drive(w, x["anchors"]))
        a = reference.attention(reference.similarity(z, x["anchors"]))
        assert (a[..., 4:] > 0).any()
        torch.testing.assert_close(out, reference.output(a, x["v"]), rtol=0, atol=ROUNDING)


def test_exponential_coupling_is_softmax_attention_over_the_anchors(make):
    x = make(12, d_osc=3)
    r = x["anchors"].expand(2, -1, -1, -1)
    h = F.scaled_dot_product_attention(x["f"], x["g"], r, is_causal=True)
    z = reference.fixed_point(h)
    later = torch.ones(12, 12, dtype=torch.bool).tril()
    expected = reference.output(
        reference.attention(reference.similarity(z, r), allowed=later), x["v"]
    )
    for backend in BACKENDS:
        out = lohe.oscillator_attention(**x, coupling="exp", causal=True, backend=backend)
        torch.testing.assert_close(out, expected, rtol=0, atol=ROUNDING)


@pytest.mark.parametrize(
    ("d_osc", "sharpness", "rank"), [(2, 1, 3), (2, 4, 9), (4, 2, 14), (4, 4, 55)]
)
def test_sharpening_raises_the_rank_to_its_bound(rng, d_osc, sharpness, rank):
    # (11ᵀ + Z Rᵀ)^∘p: polynomials of degree p on a sphere, C(d+p-1, p) + C(d+p-2, p-1) of them
    bound = math.comb(d_osc + sharpness - 1, sharpness)
    bound += math.comb(d_osc + sharpness - 2, sharpness - 1)
    assert rank == bound
    z, r = sphere.uniform(2, 120, d_osc, generator=rng, dtype=torch.float64)
    similarity = reference.similarity(z, r) ** sharpness
    assert torch.linalg.matrix_rank(similarity, rtol=1e-11).item() == bound


@pytest.mark.parametrize("scale", [None, 0.3])
def test_scale_multiplies_the_scores(make, scale):
    x = make(5)
    used = 8**-0.5 if scale is None else scale
    out = lohe.oscillator_attention(**x, scale=scale)
    by_hand = lohe.oscillator_attention(**x | {"f": x["f"] * used}, scale=1.0)
    torch.testing.assert_close(out, by_hand, rtol=0, atol=ROUNDING)


def test_raising_a_coupling_need_not_raise_its_weight():
    # the paper says the readout preserves monotonicity in the score; it does so only in z·r
    rng = torch.Generator().manual_seed(0)
    f, g = torch.randn(2, 400, 1, 6, 4, generator=rng, dtype=torch.float64)
    anchors = torch.randn(1, 6, 2, generator=rng, dtype=torch.float64)
    p = ops.problem(f, g, None, anchors)
    w = ops.couplings(p)
    raised = w.clone()
    raised[..., 0, 0] *= 1.01

    def weight(w):
        z = reference.fixed_point(reference.drive(w, p.anchors))
        return reference.attention(reference.similarity(z, p.anchors))[..., 0, 0]

    assert (weight(raised) < weight(w)).any()


@pytest.mark.parametrize("sharpness", [1, 2.5])
def test_what_is_not_a_number_is_not_read_as_one(rng, sharpness):
    """A row of NaN stays one: as uniform weights, a model that diverged would look fine."""
    similarity = torch.rand(2, 3, 4, generator=rng)
    similarity[0, 1, 2] = torch.nan
    a = reference.attention(similarity, sharpness=sharpness)
    assert a[0, 1].isnan().all()
    assert a.isnan().sum() == 4


@pytest.mark.parametrize("backend", ["reference", "chunked", "auto"])
def test_keys_that_are_read_alone_may_stand_opposite(rng, backend):
    """z rests at one anchor, and the two that are read lie nearly against it."""
    f, g, v = (torch.randn(1, 1, 60, 4, generator=rng) for _ in range(3))
    angle = torch.zeros(60, dtype=torch.float64)
    angle[58:] = torch.pi - torch.tensor([0.2, 0.1])
    anchors = torch.stack([angle.cos(), angle.sin()], dim=-1)[None]
    drives, reads = torch.ones(2, 1, 1, 1, 60).bool()
    drives[..., 58:], reads[..., :58] = False, False
    call = {"mask": drives, "readout_mask": reads, "sharpness": 3, "backend": backend}
    out = lohe.oscillator_attention(f, g, v, anchors.float(), **call)
    exact = (1 + angle[58:].cos()) ** 3
    expected = (exact / exact.sum()) @ v[0, 0, 58:].double()
    torch.testing.assert_close(out[0, 0].double(), expected.expand(60, -1), rtol=0, atol=1e-3)


@pytest.mark.parametrize("name", ["gain", "sharpness"])
def test_a_number_for_each_head_may_be_more_precise_than_the_rest(make, name):
    inputs = {k: x.float() for k, x in make(9).items()}
    given = torch.full((inputs["anchors"].shape[0],), 2.0)
    with_float, with_double = (
        lohe.oscillator_attention(**inputs, **{name: x}) for x in (given, given.double())
    )
    assert torch.equal(with_float, with_double)
