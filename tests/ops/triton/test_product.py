"""Products of float32 matrices in three parts against float64."""

import pytest
import torch
from torch.func import vmap
from torch.nn import functional as F

from accuracy import FEW_ULP
from kernels import DEVICE, INTERPRETED
from lohe.ops import affine
from lohe.ops.triton.product import Tile, product, product_and_sums

SMALL = Tile(32, 32, 16, 4, 2)  # more than one of everything


@pytest.mark.parametrize("laid", ["rows rows", "rows columns", "columns rows", "columns columns"])
@pytest.mark.parametrize("shape", [(2, 70, 52, 40), (1, 33, 5, 7), (3, 64, 64, 64)], ids=str)
def test_every_layout(rng, shape, laid):
    """As exact as PyTorch's: a few units in the last place of Σ |a b|, with sizes that are
    multiples of four and some that are not."""
    models, rows, terms, columns = shape
    a, b = (
        torch.randn(models, rows, terms, generator=rng),
        torch.randn(models, terms, columns, generator=rng),
    )
    a, b = (
        (x if way == "rows" else x.mT.contiguous().mT).to(DEVICE)
        for x, way in zip((a, b), laid.split(), strict=True)
    )
    for tile in (SMALL, None):
        assert_close(product(a, b, tile=tile), a, b)


def assert_close(found, a, b, bias=None):
    a, b = a.cpu().double(), b.cpu().double()
    truth = a @ b + (0 if bias is None else bias.cpu().double()[:, None])
    bound = FEW_ULP * torch.finfo(torch.float32).eps * (a.abs() @ b.abs()).max()
    assert (found.cpu().double() - truth).abs().max() <= bound


def test_bias_and_what_models_share(rng):
    a = torch.randn(1, 40, 24, generator=rng).to(DEVICE)
    b, bias = (torch.randn(*s, generator=rng).to(DEVICE) for s in ((3, 24, 36), (3, 36)))
    assert_close(product(a, b, bias, SMALL), a, b, bias)
    assert_close(product(b.mT, a.mT, tile=SMALL), b.mT, a.mT)
    assert_close(product(a, b, bias[:1], SMALL), a, b, bias[:1])


@pytest.mark.parametrize("tile", [SMALL, None])
def test_tf32_is_the_product_of_eleven_bits(rng, tile):
    """Both factors are rounded to the nearest, which does not shorten them as cutting off would;
    the sums are exact."""
    a, b = (torch.randn(*s, generator=rng) for s in ((2, 70, 52), (2, 52, 40)))
    found, sums = product_and_sums(*(x.to(DEVICE) for x in (a, b)), tile, exact=False)
    torch.testing.assert_close(sums.cpu(), a.sum(-1), rtol=0, atol=1e-5)
    found, weight = found.cpu().double(), (a.abs() @ b.abs()).max()
    eleven = [(x * 8193 - (x * 8193 - x)).double() for x in (a, b)]  # Veltkamp's split
    assert (found - eleven[0] @ eleven[1]).abs().max() <= 5e-6 * weight
    assert (found - a.double() @ b.double()).abs().max() > 1e-5 * weight


def test_sums_of_rows(rng):
    """Whichever way they lie, and with more than one column of tiles."""
    a, b = (torch.randn(*s, generator=rng).to(DEVICE) for s in ((3, 70, 52), (3, 52, 70)))
    for x in (a, a.mT.contiguous().mT):
        out, sums = product_and_sums(x, b, SMALL)
        assert_close(out, a, b)
        torch.testing.assert_close(sums, a.sum(-1), rtol=0, atol=1e-5)


def test_views(rng):
    """Parts of a larger matrix, and one number seen as many."""
    whole = torch.randn(2, 48, 80, generator=rng).to(DEVICE)
    a, b = whole[:, :40, 5:50], whole[:, 3:48, :30]
    assert_close(product(a, b, tile=SMALL), a, b)
    ones = torch.ones((), device=DEVICE).expand(2, 40, 45)
    assert_close(product(ones, b, tile=SMALL), ones, b)
    thin = whole[:, :45, :1].expand(2, 45, 20)  # strides 80 and 0
    assert_close(product(a, thin, tile=SMALL), a, thin)


@pytest.mark.filterwarnings("ignore:invalid value")  # inf - inf, in the interpreter
def test_what_is_not_finite_stays_so():
    a, b = torch.ones(1, 16, 16, device=DEVICE), torch.ones(1, 16, 16, device=DEVICE)
    for bad in (float("nan"), float("inf")):
        a[0, 3, 5] = bad
        out = product(a, b, tile=SMALL)
        assert not out[0, 3].isfinite().any()
        assert out[0, 4].isfinite().all()


@pytest.mark.parametrize("outputs", [20, 64])
@pytest.mark.parametrize("tf32", [False, True])
def test_an_affine_map_of_a_pack(rng, monkeypatch, outputs, tf32):
    """Value and gradients, a wide layer and the sum over rows in parts included."""

    def units(a, b, *, or_tf32=False):
        return not torch.is_grad_enabled() and (or_tf32 or not tf32)

    monkeypatch.setattr(affine, "_by_matrix_units", units)
    monkeypatch.setattr(affine, "tf32_allowed", lambda: tf32)
    monkeypatch.setattr(affine, "TILE", 2)
    shapes = (3, 2, 12, 8), (3, outputs, 8), (3, outputs)
    exact = [torch.randn(s, generator=rng, dtype=torch.float64) for s in shapes]
    direction = torch.randn(3, 2, 12, outputs, generator=rng, dtype=torch.float64)
    wanted = gradients(vmap(F.linear), exact, direction)
    single = [t.float().to(DEVICE) for t in exact]
    found = gradients(vmap(affine.packed), single, direction.float().to(DEVICE))
    for n, (mine, truth) in enumerate(zip(found, wanted, strict=True)):
        atol = 1e-2 if tf32 and n == 2 else 1e-5  # of the weight
        torch.testing.assert_close(mine.cpu().double(), truth, rtol=1e-5, atol=atol)


def gradients(function, tensors, direction):
    tensors = [t.clone().requires_grad_() for t in tensors]
    out = function(*tensors)
    return out.detach(), *torch.autograd.grad(out, tensors, direction)


@pytest.mark.skipif(not INTERPRETED, reason="on a device it would take 17 GB")
def test_models_far_apart_in_memory(rng, tmp_path):
    """The second begins 2^31 numbers behind the first: a file with holes holds them."""
    far = 2**31
    file = torch.from_file(str(tmp_path / "holes"), shared=True, size=2 * far + 4096)
    a = file.as_strided((2, 64, 64), (far, 64, 1), far)  # an offset that wraps finds zeros
    a.copy_(torch.randn(2, 64, 64, generator=rng))
    b = torch.randn(2, 64, 64, generator=rng)
    assert_close(product(a, b), a, b)
    assert_close(product(b, a), b, a)
