"""The fused kernels of the drive and of attention at p = 1 against the float64 reference."""

from functools import partial

import pytest
import torch
from torch.func import grad, vmap

import lohe
from kernels import DEVICE, DTYPES, INTERPRETED
from lohe import ops, sphere
from lohe.ops import dispatch, reference
from lohe.ops.available import tf32_allowed
from lohe.ops.triton import attention, sizes

pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered")  # numpy, of masked scores
EACH_DTYPE = pytest.mark.parametrize("dtype", DTYPES)
# ‖error‖ / ‖truth‖, of rows weighted by how well their drive is conditioned: float32 sums over a
# few hundred keys; 16 bits: a rounding of each coupling's gradient and of the result
BOUND = {torch.float32: 1e-5, torch.float16: 5e-3, torch.bfloat16: 2e-2}
SHAPES = [(37, 37), (5, 40), (40, 21), (1, 33)]


@pytest.fixture
def small_tiles(monkeypatch):
    """So that a short sequence has several, and their edges do not line up with its end."""
    monkeypatch.setattr(attention, "BLOCK", 16)
    monkeypatch.setattr(attention, "tiles", lambda *_: (attention.Tiles(32, 4, 2),))
    monkeypatch.setattr(dispatch, "SMALL", 0)


@pytest.fixture
def make(rng):
    def inputs(queries, keys, *, batch=2, heads=2, d_h=12, d_v=20, d_osc=2):
        double = {"dtype": torch.float64, "generator": rng}
        return {
            "f": torch.randn(batch, heads, queries, d_h, **double),
            "g": torch.randn(batch, heads, keys, d_h, **double),
            "v": torch.randn(batch, heads, keys, d_v, **double),
            "anchors": sphere.uniform(heads, keys, d_osc, **double),
        }

    return inputs


def condition(x, options):
    """‖h‖ / Σ w in [0, 1]: z amplifies the rounding of a sum that cancels by its inverse."""
    given = {k: v for k, v in options.items() if k in ("coupling", "causal", "key_mask")}
    p = ops.problem(x["f"], x["g"], None, x["anchors"], **given)
    w = ops.couplings(p, shifted=True)
    return reference.drive(w, p.anchors).norm(dim=-1, keepdim=True) / w.sum(-1, True).clamp(min=1)


def check(rng, x, dtype, **options):
    x = {name: t.to(DEVICE, dtype if name != "anchors" else torch.float32) for name, t in x.items()}
    options = {k: v.to(DEVICE) if isinstance(v, torch.Tensor) else v for k, v in options.items()}
    exact = {name: t.double() for name, t in x.items()}
    weight = condition(exact, options)
    shape = (*x["f"].shape[:3], x["v"].shape[-1])
    direction = torch.randn(shape, dtype=torch.float64, generator=rng).to(DEVICE) * weight
    found = value_and_gradients(x, direction, backend="triton", **options)
    with lohe.checks(False):
        wanted = value_and_gradients(exact, direction, backend="reference", **options)
    for name, truth in wanted.items():
        error = found[name].double() - truth
        if name == "output":
            error, truth = error * weight, truth * weight
        assert error.norm() <= BOUND[dtype] * truth.norm(), name


def value_and_gradients(x, direction, **options):
    x = {name: t.detach().requires_grad_() for name, t in x.items()}
    out = lohe.oscillator_attention(**x, **options)
    gradients = torch.autograd.grad(out, list(x.values()), direction.to(out.dtype))
    return {"output": out.detach()} | dict(zip(x, gradients, strict=True))


@EACH_DTYPE
@pytest.mark.parametrize("causal", [False, True], ids=["all", "causal"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("coupling", ["relu", "softplus"])
def test_output_and_gradients(rng, make, small_tiles, dtype, causal, shape, coupling):
    check(rng, make(*shape, heads=1), dtype, causal=causal, coupling=coupling)


@EACH_DTYPE
@pytest.mark.parametrize("d_osc", [3, 6, 33])
@pytest.mark.parametrize("coupling", ["relu", "elu", "exp"])
def test_couplings_on_spheres_of_any_dimension(rng, make, small_tiles, dtype, d_osc, coupling):
    x = make(30, 30, d_osc=d_osc, batch=1, heads=1)
    check(rng, x, dtype, coupling=coupling, causal=True, gain=0.6)


@EACH_DTYPE
@pytest.mark.parametrize("d_osc", [2, 33])
def test_every_key_at_once_on_spheres_of_any_dimension(rng, make, small_tiles, dtype, d_osc):
    check(rng, make(35, 30, d_osc=d_osc, heads=1), dtype, coupling="relu")


def test_a_scale_of_next_to_nothing(rng, make):
    """As 0 does: all keys of a head are coupled equally."""
    x = {name: t.to(DEVICE, torch.float32) for name, t in make(20, 20, d_osc=3).items()}
    how = {"coupling": "softplus", "backend": "triton"}
    tiny, none = (lohe.oscillator_attention(**x, **how, scale=s) for s in (1e-40, 0.0))
    torch.testing.assert_close(tiny, none, rtol=0, atol=0)


def test_a_masked_score_may_be_huge(rng, make):
    x = {name: t.to(DEVICE, torch.float32) for name, t in make(20, 20, d_osc=3).items()}
    x["g"][:, :, 3] *= 1e4
    mask = torch.ones(x["g"].shape[0], 20, dtype=torch.bool, device=DEVICE)
    mask[:, 3] = False
    p = ops.problem(x["f"], x["g"], None, x["anchors"], coupling="exp", key_mask=mask)
    for backend in ("triton", "chunked"):
        found, wanted = ops.drive(p, backend), ops.drive(p, "reference")
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


@EACH_DTYPE
@pytest.mark.parametrize("coupling", ["relu", "exp"])
@pytest.mark.parametrize("causal", [False, True], ids=["all", "causal"])
def test_masked_keys(rng, make, small_tiles, dtype, coupling, causal):
    mask = torch.rand(2, 41, generator=rng) > 0.4
    mask[1, :20] = False  # the first rows of a causal sequence see nothing at all
    check(rng, make(41, 41, d_osc=4), dtype, coupling=coupling, causal=causal, key_mask=mask)


@EACH_DTYPE
@pytest.mark.parametrize("call", [{"sharpness": 4, "gain": 3.0}, {"normalize_anchors": False}])
def test_the_drive_by_itself_before_a_sharp_readout(rng, make, small_tiles, dtype, call):
    x = make(40, 40, d_osc=5)
    x["anchors"] = 1.5 * x["anchors"]
    check(rng, x, dtype, causal=True, coupling="relu", **call)


@pytest.mark.skipif(INTERPRETED, reason="minutes in the interpreter")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("d_h", [16, 64, 128, 256])
@pytest.mark.parametrize("call", [{}, {"causal": True}, {"causal": True, "coupling": "relu"}])
def test_full_tiles(rng, make, dtype, d_h, call):
    check(rng, make(333, 400, d_h=d_h, d_v=64, d_osc=2), dtype, **call)


@pytest.mark.skipif(INTERPRETED, reason="minutes in the interpreter")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("d_h", [64, 128])
@pytest.mark.parametrize("d_osc", [3, 8, 32, 64])
@pytest.mark.parametrize(
    "call", [{"causal": True, "coupling": "relu"}, {"sharpness": 4, "gain": 1.7}], ids=str
)
def test_full_tiles_on_spheres(rng, make, dtype, d_h, d_osc, call):
    check(rng, make(333, 400, d_h=d_h, d_v=d_h, d_osc=d_osc), dtype, **call)


def test_a_drive_that_is_not_shifted(rng, make, small_tiles):
    """Physics settles at a rate of ‖h‖: then exp must be exp."""
    x = {name: t.to(DEVICE, torch.float32) for name, t in make(20, 30).items()}
    p = ops.problem(x["f"], x["g"], None, x["anchors"], coupling="exp", causal=True)
    found, wanted = (ops.drive(p, backend) for backend in ("triton", "reference"))
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


def test_the_same_bits_again_and_nothing_left_unwritten(make, small_tiles, deterministic):
    """In deterministic mode torch.empty is full of NaN."""
    x = {name: t.to(DEVICE, torch.float32) for name, t in make(37, 50).items()}
    direction = torch.ones(2, 2, 37, 20, dtype=torch.float64, device=DEVICE)
    one, two = (value_and_gradients(x, direction, causal=True, backend="triton") for _ in range(2))
    for name, found in one.items():
        assert torch.equal(found, two[name]), name
        assert found.isfinite().all(), name


@pytest.mark.skipif(INTERPRETED, reason="minutes in the interpreter")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("d_osc", "sharpness"), [(2, 1), (32, 1), (32, 4)])
def test_the_same_bits_again_from_full_tiles(rng, make, deterministic, dtype, d_osc, sharpness):
    """Those that are the default, with enough programs to come in another order."""
    x = {n: t.to(DEVICE, dtype) for n, t in make(1003, 1003, d_h=64, d_v=64, d_osc=d_osc).items()}
    x["anchors"] = x["anchors"].float()
    if sharpness > 1:
        x["gain"] = torch.tensor([0.7, 1.7], device=DEVICE)
    direction = torch.randn(2, 2, 1003, 64, generator=rng).to(DEVICE)
    call = {"coupling": "relu", "sharpness": sharpness, "causal": True, "backend": "triton"}
    first, *others = (value_and_gradients(x, direction, **call) for _ in range(3))
    for name, found in first.items():
        assert found.isfinite().all(), name
        assert all(torch.equal(found, other[name]) for other in others), name


def test_heads_side_by_side_in_memory(rng, make, small_tiles):
    """(batch, tokens, heads, features), as projections leave them, is read where it is."""
    x = {name: t.to(DEVICE, torch.float32) for name, t in make(20, 20).items()}
    apart = dict(x) | {n: x[n].transpose(1, 2).contiguous().transpose(1, 2) for n in "fgv"}
    one, two = (lohe.oscillator_attention(**t, causal=True, backend="triton") for t in (x, apart))
    assert torch.equal(one, two)


@pytest.mark.parametrize("sharpness", [1, 4])
def test_tokens_far_apart_in_memory_are_copied(make, small_tiles, monkeypatch, sharpness):
    """Beyond 2^31 numbers of a head; here beyond 2^8."""
    x = {name: t.to(DEVICE, torch.float32) for name, t in make(20, 20).items()}
    apart = dict(x) | {n: x[n].transpose(1, 2).contiguous().transpose(1, 2) for n in "fgv"}
    direction = torch.ones(2, 2, 20, 20, device=DEVICE)
    call = {"causal": True, "sharpness": sharpness, "backend": "triton"}
    wanted = value_and_gradients(x, direction, **call)
    monkeypatch.setattr(sizes, "FAR", 2**8)
    copied = [sizes.rows_together(apart[n]) for n in "fgv"]
    assert all(t.is_contiguous() for t in copied)
    for name, found in value_and_gradients(apart, direction, **call).items():
        assert torch.equal(found, wanted[name]), name


@pytest.mark.parametrize(("tokens", "stride"), [(2**18, 8192), (2**18 + 1, 64)])
def test_offsets_that_32_bits_hold(tokens, stride):
    """Of one head in (tokens, 128 heads x 64), the first that is too long is copied."""
    x = torch.empty(1, tokens, 128, 64, device="meta").transpose(1, 2)
    assert sizes.rows_together(x).stride(2) == stride


def test_more_tokens_than_32_bits_count_are_refused():
    f = torch.zeros(1, 1, 1, 16, device=DEVICE).expand(1, 1, 2**23 + 1, 16)
    anchors = torch.ones(1, 1, 2, device=DEVICE).expand(1, 2**23 + 1, 2)
    with pytest.raises(ValueError, match="more than 8388608 tokens"):
        lohe.oscillator_attention(f, f, f, anchors, normalize_anchors=False, backend="triton")


@pytest.mark.parametrize("heads", [1, 3])
def test_vmap_of_gradients(make, small_tiles, heads):
    x = {name: t.to(DEVICE, torch.float32) for name, t in make(20, 20, heads=heads).items()}

    def loss(f, backend):
        call = partial(lohe.oscillator_attention, causal=True, backend=backend)
        return call(f, x["g"], x["v"], x["anchors"]).sin().sum()

    two = torch.stack([x["f"], 2 * x["f"]])
    found, wanted = (vmap(grad(partial(loss, backend=b)))(two) for b in ("triton", "reference"))
    torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-5)


def test_ops_are_registered_as_torch_wants_them(make, small_tiles):
    x = {n: t.to(DEVICE, torch.float32) for n, t in make(18, 20).items()}
    f, g, v, r = (x[n].requires_grad_() for n in ("f", "g", "v", "anchors"))
    tests = ("test_schema", "test_faketensor", "test_autograd_registration")
    torch.library.opcheck(
        attention.attention_forward, (f, g, v, r, [], "relu", True, 0.3, 1.0), test_utils=tests
    )
    torch.library.opcheck(
        attention.drive_forward, (f, g, r, [], "exp", True, True, 0.3), test_utils=tests
    )


def test_what_the_kernels_decline_is_said(make):
    x = {n: t.to(DEVICE, torch.float32) for n, t in make(8, 8).items()}
    call = partial(lohe.oscillator_attention, backend="triton")
    with pytest.raises(ValueError, match="differs from query to query"):
        call(**x, mask=torch.ones(8, 8, dtype=torch.bool, device=DEVICE))
    with pytest.raises(ValueError, match="float64"):
        call(**{n: t.double() for n, t in x.items()})
    with pytest.raises(ValueError, match="d_osc = 65 is more than 64"):
        call(x["f"], x["g"], x["v"], torch.ones(2, 8, 65, device=DEVICE))
    with pytest.raises(ValueError, match="callable"):
        call(**x, coupling=torch.exp)


@pytest.mark.skipif(INTERPRETED, reason="decoding takes its kernel on a device only")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_decoding_equals_the_whole_sequence(dtype):
    layer = lohe.OscillatorAttention(64, 2, 400, causal=True).to(DEVICE, dtype)
    x = torch.randn(2, 300, 64, device=DEVICE, dtype=dtype)
    _, cache = layer.decode(x[:, :290])
    steps = []
    for token in range(290, 300):
        out, cache = layer.decode(x[:, token : token + 1], cache)
        steps.append(out)
    assert cache.v is None
    whole = layer(x)[:, 290:]
    torch.testing.assert_close(
        torch.cat(steps, dim=1), whole, rtol=2 * BOUND[dtype], atol=2 * BOUND[dtype]
    )


@pytest.mark.parametrize("scale", [-0.3, 0.0])
@pytest.mark.parametrize("sharpness", [1, 2])
@pytest.mark.parametrize("coupling", ["relu", "softplus", "elu", "exp"])
def test_scores_of_any_sign(rng, scale, sharpness, coupling):
    """A scale that is negative or zero is one that the kernels cannot divide by."""
    f, g, v = (torch.randn(1, 1, 20, 16, generator=rng).to(DEVICE) for _ in range(3))
    anchors = sphere.uniform(1, 20, 3, generator=rng).to(DEVICE)
    x = [t.requires_grad_() for t in (f, g, v, anchors)]
    call = {"coupling": coupling, "sharpness": sharpness, "scale": scale, "causal": True}
    found, wanted = (
        torch.autograd.grad(lohe.oscillator_attention(*x, **call, backend=b).square().sum(), x)
        for b in ("triton", "reference")
    )
    for mine, truth in zip(found, wanted, strict=True):
        torch.testing.assert_close(mine, truth, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("call", [{}, {"sharpness": 4}, {"sharpness": 2.5, "gain": 1.5}])
def test_an_empty_batch_has_gradients(call):
    f, g, v = (torch.zeros(0, 2, 20, 16, device=DEVICE, requires_grad=True) for _ in range(3))
    anchors = sphere.uniform(2, 20, 3).to(DEVICE).requires_grad_()
    out = lohe.oscillator_attention(f, g, v, anchors, **call, backend="triton")
    (gradient,) = torch.autograd.grad(out.sum(), [anchors])
    assert out.shape == (0, 2, 20, 16)
    assert not gradient.any()


def test_more_heads_than_a_grid_has_programs_are_refused():
    f = torch.zeros(1, 1, 4, 16, device=DEVICE).expand(300, 300, 4, 16)
    anchors = sphere.uniform(1, 4, 2).to(DEVICE).expand(300, 4, 2)
    with pytest.raises(ValueError, match="batch x heads is more than 65535"):
        lohe.oscillator_attention(f, f, f, anchors, backend="triton")


def test_so_are_more_heads_of_a_pack(make, monkeypatch):
    """vmap makes heads of models: 3 of 2 x 2."""
    monkeypatch.setattr(dispatch, "MOST_PROGRAMS", 11)
    x = {n: torch.stack([t.to(DEVICE, torch.float32)] * 3) for n, t in make(5, 5).items()}
    with pytest.raises(ValueError, match="batch x heads is more than 11"):
        vmap(lambda x: lohe.oscillator_attention(**x, backend="triton"))(x)
    monkeypatch.setattr(dispatch, "MOST_PROGRAMS", 12)
    vmap(lambda x: lohe.oscillator_attention(**x, backend="triton"))(x)
    fewer = vmap(lambda x: lohe.oscillator_attention(**x, backend="triton"))
    with pytest.raises(ValueError, match="batch x heads is more than 12"):
        vmap(fewer)({n: torch.stack([t] * 2) for n, t in x.items()})


def test_every_switch_of_tf32_is_read():
    """PyTorch has three, and reading an old one raises once a new one was set."""
    f, g, v = (torch.randn(1, 2, 20, 16, device=DEVICE) for _ in range(3))
    anchors = sphere.uniform(2, 20, 3).to(DEVICE)
    before = torch.backends.cuda.matmul.fp32_precision
    try:
        for said in ("tf32", "ieee"):
            torch.backends.cuda.matmul.fp32_precision = said
            assert tf32_allowed() == (said == "tf32")
            for p in (1, 2):
                out = lohe.oscillator_attention(f, g, v, anchors, sharpness=p, backend="triton")
                assert out.isfinite().all()
    finally:
        torch.backends.cuda.matmul.fp32_precision = before


@pytest.mark.skipif(not INTERPRETED, reason="float32; 16-bit couplings have no such room")
def test_rows_of_tiny_couplings(rng):
    """Scores of -60: couplings of 1e-26, whose squares are below what float32 holds."""
    f, g, v = (torch.randn(1, 2, 20, 16, generator=rng).to(DEVICE) for _ in range(3))
    f, g = f.abs() + 1, -(g.abs() + 1)
    scale = -60 / (f @ g.mT).mean().item()
    anchors = sphere.uniform(2, 20, 3, generator=rng).to(DEVICE)
    x = [t.requires_grad_() for t in (f, g, v, anchors)]

    def value_and_gradients(backend, dtype):
        y = lohe.oscillator_attention(
            *(t.to(dtype) for t in x), scale=scale, causal=True, backend=backend
        )
        return y, *torch.autograd.grad(y.square().sum(), x)

    found = value_and_gradients("triton", torch.float32)
    for mine, truth in zip(found, value_and_gradients("reference", torch.float64), strict=True):
        assert (mine - truth).abs().max() < 1e-3 * truth.abs().max()
