"""The readout over tiles against the float64 reference: outputs and gradients by name."""

import pytest
import torch
from torch.func import grad, vmap

from accuracy import CANCELLED, FEW_ULP
from kernels import DEVICE, DTYPES, INTERPRETED
from lohe import sphere
from lohe.ops import reference
from lohe.ops.masks import Allowed
from lohe.ops.triton import sharp

pytestmark = [
    # numpy says so in the interpreter, of log 0 = -inf
    pytest.mark.filterwarnings("ignore:divide by zero"),
    pytest.mark.filterwarnings("ignore:invalid value encountered"),
]
EACH_DTYPE = pytest.mark.parametrize("dtype", DTYPES)
PER_HEAD = {"sharpness": torch.tensor([1.0, 2.6]), "gain": torch.tensor([0.7, 3.0])}


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch):
    """So that a short sequence has several, and their edges do not line up with its end."""
    monkeypatch.setattr(sharp, "blocks", lambda *_: (sharp.Blocks(16, 32, 4, 2),))


@pytest.fixture
def make(rng):
    """make(queries, keys, ...) -> z, r, v in float64."""

    def inputs(queries, keys, *, batch=1, heads=2, d_osc=3, d_v=5, lengths=(1.0, 1.0)):
        double = {"dtype": torch.float64, "generator": rng}
        low, high = lengths
        length = low + (high - low) * torch.rand(heads, keys, 1, **double)
        return (
            sphere.uniform(batch, heads, queries, d_osc, **double),
            sphere.uniform(heads, keys, d_osc, **double) * length,
            torch.randn(batch, heads, keys, d_v, **double),
        )

    return inputs


def plain(z, r, v, gain, p, allowed):
    """Eqs. 5 and 6 by the reference; γ and p may differ from row to row, (batch, heads, i, 1)."""
    c = reference.masked(reference.similarity(gain * z, r).clamp(min=0), allowed.dense(), 0)
    top = c.detach().amax(dim=-1, keepdim=True)  # of the scale of a row nothing depends
    powers = torch.where(c > 0, c / torch.where(top > 0, top, 1), 1) ** p * (c > 0)
    return reference.output(reference.attention(powers, allowed=allowed.dense()), v)


def fused(z, r, v, gain, p, allowed):
    return sharp.readout(z, r, v, allowed, sharpness=p, gain=gain)


def value_and_gradients(function, tensors, direction, *rest):
    tensors = [x.detach().requires_grad_() for x in tensors]
    out = function(*tensors, *rest)
    return out.detach(), *torch.autograd.grad(out, tensors, direction.to(out.dtype))


def check(rng, x, dtype, allowed=None, *, sharpness=4, gain=1.7):
    """As close to float64 as plain PyTorch is, up to a factor of two and a few ulp.

    c^p multiplies the rounding of c by p, hence p ulp in float32; 16 bits leave room for that, and
    gradients through c are bfloat16 in both. The gradients of γ and p are sums over rows that
    cancel: their ulp is that of the sum of sizes. With a single key do·v and do·o cancel, of which
    o is rounded.
    """
    heads, per_head = x[0].shape[1], isinstance(sharpness, torch.Tensor)
    z, r, v = (
        t.to(DEVICE, d) for t, d in zip(x, (torch.float32, torch.float32, dtype), strict=True)
    )
    direction = torch.randn(*z.shape[:3], v.shape[-1], generator=rng).to(DEVICE, dtype)
    if allowed is None:
        allowed = Allowed(z.shape[2], v.shape[2], DEVICE)
    gamma, p = (
        torch.as_tensor(t, dtype=torch.float32).expand(heads).to(DEVICE) for t in (gain, sharpness)
    )

    def of_rows(d):  # one γ and p for each row
        return [t.to(d)[:, None, None].expand(*z.shape[:3], 1).contiguous() for t in (gamma, p)]

    exact = value_and_gradients(
        plain, [z.double(), r.double(), v.double(), *of_rows(torch.float64)], direction, allowed
    )
    wide = value_and_gradients(plain, [z, r, v, *of_rows(torch.float32)], direction, allowed)
    if per_head:
        found = value_and_gradients(fused, [z, r, v, gamma, p], direction, allowed)
    else:
        found = value_and_gradients(fused, [z, r, v, gamma], direction, sharpness, allowed)
    assert [t.dtype for t in found[:4]] == [dtype, torch.float32, torch.float32, dtype]
    strict, power = dtype == torch.float32, p.max().item()
    term = (direction.double().square() @ v.double().square().mT).max().sqrt().item()
    names = ("output", "z", "anchors", "values", "gain", "sharpness")
    for name, truth, other, mine in zip(names, exact, wide, found, strict=False):
        size = truth.abs()
        if name in ("gain", "sharpness"):
            truth, other, size = (t.sum(dim=(0, 2, 3)) for t in (truth, other, size))
        assert mine.isfinite().all(), name
        loss, error = ((t.double() - truth).abs().max().item() for t in (other, mine))
        rounded = dtype if strict or name in ("output", "values") else torch.bfloat16
        eps = torch.finfo(rounded).eps * (power if strict else 1)
        bound = 2 * loss + FEW_ULP * (eps * size.max().item() + power * CANCELLED)
        if not strict and name in ("z", "anchors", "gain"):
            bound += torch.finfo(dtype).eps * power * gamma.abs().max().item() * term
        assert error <= bound, f"{name}: {error:.2e}, plain PyTorch {loss:.2e}, bound {bound:.2e}"


@EACH_DTYPE
@pytest.mark.parametrize("sharpness", [1, 2, 3, 4, 8, 2.5, PER_HEAD["sharpness"]])
def test_powers(make, rng, deterministic, dtype, sharpness):
    allowed = Allowed(21, 43, DEVICE, causal=not isinstance(sharpness, int))
    check(rng, make(21, 43, batch=2), dtype, allowed, sharpness=sharpness, gain=PER_HEAD["gain"])


@EACH_DTYPE
@pytest.mark.parametrize(("d_osc", "d_v"), [(2, 16), (3, 5), (8, 33), (16, 64), (33, 17)])
def test_dimensions(make, rng, deterministic, dtype, d_osc, d_v):
    check(rng, make(19, 35, d_osc=d_osc, d_v=d_v), dtype)


@EACH_DTYPE
@pytest.mark.parametrize(
    ("queries", "keys", "causal"),
    [(1, 1, False), (1, 40, True), (5, 1, True), (16, 32, False), (33, 20, True), (17, 33, False)],
)
def test_sizes(make, rng, deterministic, dtype, queries, keys, causal):
    # a small gain: the gradient of a single weight is 0, times p / c
    check(rng, make(queries, keys), dtype, Allowed(queries, keys, DEVICE, causal), gain=0.5)


@EACH_DTYPE
def test_masks_of_every_shape(make, rng, dtype):
    x = make(20, 37, batch=2)
    shapes = [(2, 1, 1, 37)], [(1, 2, 20, 1)], [(2, 2, 20, 37), (1, 1, 1, 37), (2, 1, 1, 1)]
    for parts, causal in zip(shapes, (True, False, True), strict=True):
        masks = tuple(torch.rand(shape, generator=rng) > 0.3 for shape in parts)
        masks[0][-1, -1, -1] = False  # where it counts queries too, a row without any allowed key
        allowed = Allowed(20, 37, DEVICE, causal, tuple(m.to(DEVICE) for m in masks))
        check(rng, x, dtype, allowed, sharpness=PER_HEAD["sharpness"], gain=PER_HEAD["gain"])


@EACH_DTYPE
@pytest.mark.parametrize("sharpness", [1, 4])
def test_free_anchors_reach_the_clamp(make, rng, dtype, sharpness):
    x = make(30, 45, lengths=(0.1, 3.0))
    assert (reference.similarity(x[0], x[1]) < 0).any()
    check(rng, x, dtype, sharpness=sharpness, gain=PER_HEAD["gain"])


@EACH_DTYPE
@pytest.mark.parametrize("sharpness", [1, PER_HEAD["sharpness"]])
def test_a_row_that_vanishes_is_uniform_and_moves_only_the_values(make, rng, dtype, sharpness):
    z, r, v = make(20, 37)
    allowed = reference.similarity(z, r, 3.0)[..., 3:4, :] < -0.1  # only keys that weigh nothing
    mask = torch.ones(1, 2, 20, 37, dtype=torch.bool)
    mask[:, :, 3:4] = allowed
    assert allowed.any(dim=-1).all()
    given = Allowed(20, 37, DEVICE, parts=(mask.to(DEVICE),))
    check(rng, (z, r, v), dtype, given, sharpness=sharpness, gain=3.0)
    tensors = [t.float().to(DEVICE) for t in (z, r, v)]
    gamma = torch.full((2,), 3.0, device=DEVICE)
    only = torch.zeros(1, 2, 20, 5, device=DEVICE)
    only[:, :, 3] = 1
    p = torch.as_tensor(sharpness).float().expand(2).to(DEVICE)
    out, dz, dr, dv, *of_head = value_and_gradients(fused, [*tensors, gamma, p], only, given)
    mean = (allowed.double() @ v) / allowed.sum(dim=-1, keepdim=True)
    torch.testing.assert_close(out[:, :, 3:4].cpu(), mean.float())
    assert not any(t.any() for t in (dz, dr, *of_head))
    assert dv.any()


@EACH_DTYPE
@pytest.mark.parametrize("sharpness", [8, 31, 40.5])
def test_rows_far_below_the_bound_of_their_head(make, rng, deterministic, dtype, sharpness):
    z, r, v = make(20, 37)
    # seen by nobody, but the bound is that of all anchors, and so is the last bit of float16
    r[:, 5] *= 1e5 if dtype == torch.float32 else 1e2
    mask = torch.ones(1, 1, 1, 37, dtype=torch.bool, device=DEVICE)
    mask[..., 5] = False
    allowed = Allowed(20, 37, DEVICE, parts=(mask,))
    check(rng, (z, r, v), dtype, allowed, sharpness=sharpness, gain=1.0)


@pytest.mark.parametrize("d_osc", [3, 10, 16])
@pytest.mark.parametrize("lengths", [(1.0, 1.0), (1e5, 2e5)])
def test_float16_operands_forward(make, deterministic, d_osc, lengths):
    # in the interpreter too; the first two dimensions are split, and float16 ends at 65504
    z, r, v = make(20, 100, d_osc=d_osc, d_v=16, lengths=lengths)
    allowed = Allowed(20, 100, DEVICE)
    z, r, v = z.float().to(DEVICE), r.float().to(DEVICE), v.half().to(DEVICE)
    found = fused(z, r, v, 1.7, 4, allowed)
    truth = plain(z.double(), r.double(), v.double(), 1.7, 4, allowed)
    error = (found.double() - truth).abs().max() / truth.abs().max()
    assert error < 2 * torch.finfo(torch.float16).eps


def test_the_operands_of_a_split_product_have_22_bits(rng):
    x = torch.randn(1, 50, 5, generator=rng).to(DEVICE)
    one = torch.ones(1, device=DEVICE)
    packed = torch.full((1, 50, 16), torch.nan, dtype=torch.float16, device=DEVICE)
    sharp.kernels._pack[(1,)](x, one, packed, 50, D=5, K=16, SPLIT=True, ROWS=64)
    high, low, again, rest = packed.double().split([5, 5, 5, 1], dim=-1)
    assert torch.equal(high, again)
    assert not rest.any()
    torch.testing.assert_close(high + low, x.double(), rtol=2.0**-22, atol=2.0**-25)


@EACH_DTYPE
def test_the_same_bits_every_time(make, rng, deterministic, dtype):
    z, r, v = make(20, 70)
    x = [z.float().to(DEVICE), r.float().to(DEVICE), v.to(DEVICE, dtype)]
    x += [PER_HEAD["gain"].to(DEVICE), PER_HEAD["sharpness"].to(DEVICE)]
    allowed = Allowed(20, 70, DEVICE, causal=True)
    direction = torch.randn(1, 2, 20, 5, generator=rng).to(DEVICE)
    first, second = (value_and_gradients(fused, x, direction, allowed) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_nan_is_not_lost(make):
    z, r, v = (t.float().to(DEVICE) for t in make(20, 37))
    z[0, 1, 7, 0] = torch.nan
    out = fused(z, r, v, 1.0, 4, Allowed(20, 37, DEVICE))
    assert out.isnan().any(dim=-1).nonzero().tolist() == [[0, 1, 7]]


def test_values_may_lie_in_any_layout(make):
    z, r, v = (t.float().to(DEVICE) for t in make(20, 37))
    allowed = Allowed(20, 37, DEVICE)
    wanted = fused(z, r, v, 1.0, 4, allowed)
    for order in ((0, 2, 1, 3), (3, 1, 2, 0)):
        back = sorted(range(4), key=order.__getitem__)
        other = v.permute(order).contiguous().permute(back)
        assert not other.is_contiguous()
        assert torch.equal(fused(z, r, other, 1.0, 4, allowed), wanted)


@pytest.mark.skipif(not INTERPRETED, reason="on a device it would take 4 GB")
def test_a_mask_of_keys_far_apart_in_memory(make, tmp_path):
    """As the diagonal of a mask of pairs is from 46,341 tokens on; a file with holes holds it."""
    z, r, v = (t.float() for t in make(4, 3))
    file = torch.from_file(str(tmp_path / "holes"), True, 2**32 + 1, dtype=torch.uint8)
    mask = file.view(torch.bool).as_strided((1, 1, 1, 3), (0, 0, 0, 2**30), 2**31)
    mask.copy_(torch.tensor([True, False, True]))  # an offset that wraps finds False
    found, wanted = (
        fused(z, r, v, 1.7, 4, Allowed(4, 3, DEVICE, parts=(m,)))
        for m in (mask, torch.tensor([[[[True, False, True]]]]))
    )
    assert torch.equal(found, wanted)


def test_vmap_over_models_is_a_loop(make):
    packs = [[t.float().to(DEVICE) for t in make(10, 20)] for _ in range(2)]
    allowed = Allowed(10, 20, DEVICE, causal=True)

    def loss(z, r, v):
        return fused(z, r, v, PER_HEAD["gain"].to(DEVICE), 2.5, allowed).square().sum()

    together = vmap(grad(loss, argnums=(0, 1, 2)))(
        *(torch.stack(t) for t in zip(*packs, strict=True))
    )
    for n, x in enumerate(packs):
        for a, b in zip(together, grad(loss, argnums=(0, 1, 2))(*x), strict=True):
            torch.testing.assert_close(a[n], b, rtol=1e-5, atol=1e-6)


def test_the_registered_ops_keep_their_promises(make, rng):
    z, r, v = (t.float().to(DEVICE) for t in make(10, 20))
    gain, p = PER_HEAD["gain"].to(DEVICE), PER_HEAD["sharpness"].to(DEVICE)
    key = (torch.rand(1, 1, 1, 20, generator=rng) > 0.3).to(DEVICE)
    tests = ("test_schema", "test_faketensor", "test_autograd_registration")
    args = tuple(t.requires_grad_() for t in (z, r, v, gain, p))
    torch.library.opcheck(sharp.readout_forward, (*args, [key], 0.0, True), test_utils=tests)
    args = tuple(t.detach() for t in args)
    o, s = sharp.readout_forward(*args, [key], 0.0, True)
    for turn in (lambda x: x, lambda x: x.mT.contiguous().mT):  # gradients lie as they lie
        turned = [turn(x) for x in args[:3]]
        given = (torch.ones_like(o), *turned, *args[3:], o, s, [key], 0.0, True)
        torch.library.opcheck(sharp.readout_backward, given, test_utils=tests[:2])


@pytest.mark.skipif(INTERPRETED, reason="tiles of full size take the interpreter minutes")
@EACH_DTYPE
@pytest.mark.parametrize(("d_v", "d_osc"), [(64, 2), (64, 32), (128, 32), (256, 64)])
@pytest.mark.parametrize("causal", [False, True])
def test_tiles_of_full_size(make, rng, monkeypatch, dtype, d_v, d_osc, causal):
    monkeypatch.undo()
    allowed = Allowed(300, 517, DEVICE, causal)
    check(rng, make(300, 517, batch=2, d_v=d_v, d_osc=d_osc), dtype, allowed)
