"""New tokens against a cache: drive, output and state, against the float64 reference."""

import math

import pytest
import torch

import lohe
from accuracy import FEW_ULP
from kernels import DEVICE, DTYPES, INTERPRETED
from lohe import sphere
from lohe.ops import dispatch, linear, reference
from lohe.ops.coupling import COUPLINGS
from lohe.ops.masks import Allowed
from lohe.ops.triton import decode

EACH_DTYPE = pytest.mark.parametrize("dtype", DTYPES)
EACH_COUPLING = pytest.mark.parametrize("coupling", COUPLINGS)
NEW = pytest.mark.parametrize("new", [1, 5])
HEADS, KEYS, D_V, SCALE, GAIN = 2, 150, 5, 0.4, 0.8


@pytest.fixture(autouse=True)
def many_parts(monkeypatch, deterministic):
    """So that a short cache is split into parts of several blocks, and the last is not full."""
    monkeypatch.setattr(decode, "FEWEST_KEYS", 64)
    monkeypatch.setattr(decode, "BLOCK", 1024)


@pytest.fixture
def make(rng):
    """make(new, dtype, ...) -> f, g in a longer buffer, v, and anchors of more tokens."""

    def inputs(new, dtype, *, d_osc=3, d_h=20, size=1.0):
        f = size * torch.randn(2, HEADS, new, d_h, generator=rng)
        g = torch.full((2, KEYS + 9, HEADS, d_h + 4), torch.nan)
        g[:, :KEYS, :, :d_h] = torch.randn(2, KEYS, HEADS, d_h, generator=rng)
        v = torch.randn(2, HEADS, KEYS, D_V, generator=rng)
        anchors = sphere.uniform(HEADS, KEYS + 2, d_osc, generator=rng)
        anchors[:, KEYS:] = torch.nan
        f, g, v = (x.to(DEVICE, dtype) for x in (f, g, v))
        return f, g[..., :d_h].transpose(1, 2), v, anchors.to(DEVICE)

    return inputs


def allow(new, rng=None):
    """Causal; with a generator, some keys masked: all of them in one sequence."""
    if rng is None:
        return Allowed(new, KEYS, DEVICE, causal=True)
    mask = torch.rand(2, 1, 1, KEYS, generator=rng) > 0.3
    mask[1] = False
    return Allowed(new, KEYS, DEVICE, causal=True, parts=(mask.to(DEVICE),))


def drive(f, g, anchors, allowed, coupling, shifted=True):
    """h over the keys of longer buffers; where it is shifted, the largest score is found, too."""
    g, anchors = g[:, :, :KEYS], anchors[:, :KEYS]
    h, top = decode.drive(
        f, g, anchors, list(allowed.parts), coupling=coupling, causal=True, scale=SCALE,
        shifted=shifted and coupling == "exp",
    )  # fmt: skip
    if top.shape[-1]:
        scores = (f.double() @ g.double().mT) * (SCALE / math.log(2))
        scores = scores if allowed.dense() is None else scores.where(allowed.dense(), -torch.inf)
        truth = scores.amax(dim=-1, keepdim=True)
        truth = truth.where(truth.isfinite(), 0)
        assert_close(
            top, truth, truth.abs().max() + 1, bits=2.0**-10 if len(DTYPES) > 1 else 2**-21
        )
    return h


def key_mask(allowed):
    return allowed.parts[0][:, 0, 0] if allowed.parts else None


def exact_drive(f, g, anchors, allowed, coupling, shifted=True):
    """h in float64, and the size of the terms that it is the sum of."""
    w = reference.couplings(
        f.double(), g[:, :, :KEYS].double(), coupling, allowed=allowed.dense(), scale=SCALE,
        shifted=shifted,
    )  # fmt: skip
    return reference.drive(w, anchors[:, :KEYS].double()), w.sum(dim=-1, keepdim=True)


def assert_close(found, truth, size, *, bits=2.0**-23):
    error = (found.double() - truth).abs() / size.clamp(min=1e-300)
    assert torch.where(truth == found, 0, error).max() <= FEW_ULP * bits


# products of 16-bit numbers are exact, but TF32 rounds w and r where there are several queries
def precision(dtype, new):
    return 2.0**-23 if dtype == torch.float32 or new == 1 else 2.0**-10


@EACH_DTYPE
@EACH_COUPLING
@NEW
def test_the_drive_over_a_long_cache(make, rng, dtype, coupling, new):
    for allowed, shifted in ((allow(new), True), (allow(new, rng), True), (allow(new), False)):
        f, g, _, anchors = make(new, dtype)
        found = drive(f, g, anchors, allowed, coupling, shifted)
        truth, size = exact_drive(f, g, anchors, allowed, coupling, shifted)
        # a score errs by its own rounding, and exp by that of the score
        assert_close(found, truth, size, bits=(1 + f.norm(dim=-1).max()) * precision(dtype, new))


@EACH_DTYPE
@pytest.mark.parametrize(("d_osc", "d_h"), [(2, 8), (3, 64), (16, 33), (33, 128), (64, 256)])
@pytest.mark.parametrize("new", [1, 2])
def test_dimensions(make, dtype, d_osc, d_h, new):
    f, g, _, anchors = make(new, dtype, d_osc=d_osc, d_h=d_h)
    found = drive(f, g, anchors, allow(new), "relu")
    truth, size = exact_drive(f, g, anchors, allow(new), "relu")
    assert_close(found, truth, size, bits=(1 + f.norm(dim=-1).max()) * precision(dtype, new))


@EACH_COUPLING
@pytest.mark.parametrize("new", [1, 3])
@pytest.mark.parametrize("sign", [1, -1])
def test_scores_far_from_zero(make, coupling, new, sign):
    # -20 to -60, where softplus and elu are exp; or 20 to 60 of them, all of one sign
    f, g, _, anchors = make(new, torch.float32)
    f, g = 5 * f.abs(), sign * g.abs()
    found = drive(f, g, anchors, allow(new), coupling)
    truth, size = exact_drive(f, g, anchors, allow(new), coupling)
    assert_close(found, truth, size, bits=100 * 2.0**-23)  # exp errs by the rounding of its score


@EACH_DTYPE
@EACH_COUPLING
@pytest.mark.parametrize(("new", "masked"), [(1, False), (1, True), (5, True)])
def test_the_state_is_read_and_advanced(make, rng, dtype, coupling, new, masked):
    f, g, v, anchors = make(new, dtype)
    allowed, old = allow(new, rng if masked else None), KEYS - new
    keys = Allowed(1, KEYS, DEVICE, parts=allowed.parts)
    phi = linear.key_features(anchors[:, :KEYS], keys, 1, GAIN)
    before = linear.after(None, phi[:, :, :old], v[:, :, :old].float())
    out, state = decode.decode(
        f, g[:, :, :KEYS], v[:, :, old:], anchors[:, :KEYS], before, key_mask(allowed),
        coupling=coupling, scale=SCALE, gain=GAIN,
    )  # fmt: skip
    after = linear.after(None, phi, v.float())
    for found, wanted in zip(state, after, strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)

    h, size = exact_drive(f, g, anchors, allowed, coupling)
    z = reference.fixed_point(h)
    similarity = reference.similarity(z, anchors[:, :KEYS].double(), GAIN)
    truth = reference.output(reference.attention(similarity, allowed=allowed.dense()), v.double())
    assert out.dtype == dtype
    # where the drive nearly cancels, its direction takes up the rounding of its terms
    loss = (size / h.norm(dim=-1, keepdim=True).clamp(min=1e-9)).clamp(min=1)
    bits = (1 + f.norm(dim=-1).max()) * precision(dtype, new)
    error = (out.double() - truth).abs() / truth.abs().max()
    assert (error <= FEW_ULP * (loss * bits + torch.finfo(dtype).eps)).all()
    if masked:
        assert not out[1].any()


def test_the_first_token_has_no_state_before_it(make):
    f, g, v, anchors = make(1, torch.float32)
    out, state = decode.decode(
        f, g[:, :, :1], v[:, :, :1], anchors[:, :1], None, coupling="softplus", scale=SCALE,
    )  # fmt: skip
    torch.testing.assert_close(out, v[:, :, :1])
    torch.testing.assert_close(state.total[..., 0], torch.ones(2, HEADS, device=DEVICE))


def test_the_same_bits_every_time(make):
    f, g, _, anchors = make(3, torch.float32)
    first, second = (drive(f, g, anchors, allow(3), "exp") for _ in range(2))
    assert torch.equal(first, second)


def test_the_op_of_a_step_is_whole(make, rng):
    """What torch.compile, torch.export and fake tensors need."""
    f, g, v, anchors = make(2, torch.float32)
    state = torch.rand(2, HEADS, 4, D_V), torch.rand(2, HEADS, 4)
    tensors = f, g[:, :, :KEYS], v[:, :, -2:], anchors[:, :KEYS], *(x.to(DEVICE) for x in state)
    for masks in ([], list(allow(2, rng).parts)):
        torch.library.opcheck(
            decode.decode_step, (*tensors, masks, "exp", SCALE, GAIN),
            test_utils=("test_schema", "test_faketensor"),
        )  # fmt: skip


class TestThroughTheFrontDoor:
    """A few queries against many keys, which split them, behave as any call: here from 100 on."""

    @pytest.fixture(autouse=True)
    def soon(self, monkeypatch):
        monkeypatch.setattr(decode, "LONG", 100)
        monkeypatch.setattr(dispatch, "INTERPRETED", INTERPRETED)

    @staticmethod
    def attend(f, g, v, anchors, coupling="softplus", backend="triton"):
        return lohe.oscillator_attention(
            f, g, v, anchors, coupling=coupling, sharpness=2, causal=True, backend=backend
        )

    @pytest.fixture
    def inputs(self, make):
        f, g, v, anchors = make(3, torch.float32)
        return f, g[:, :, :KEYS].contiguous(), v, anchors[:, :KEYS].contiguous()

    @EACH_COUPLING
    def test_gradients(self, inputs, coupling):
        exact = [x.double().requires_grad_() for x in inputs]
        single = [x.clone().requires_grad_() for x in inputs]
        truth = self.attend(*exact, coupling=coupling, backend="reference")
        found = self.attend(*single, coupling=coupling)
        torch.testing.assert_close(found.double(), truth, rtol=1e-4, atol=1e-4)
        direction = torch.randn_like(truth)
        wanted = torch.autograd.grad(truth, exact, direction)
        for mine, true in zip(
            torch.autograd.grad(found, single, direction.float()), wanted, strict=True
        ):
            assert (mine.double() - true).abs().max() <= 1e-4 * true.abs().max()

    def test_vmap(self, inputs):
        packs = [torch.stack([x, x.flip(0)]) for x in inputs]
        each = torch.stack([self.attend(*x) for x in zip(*packs, strict=True)])
        torch.testing.assert_close(torch.vmap(self.attend)(*packs), each)
