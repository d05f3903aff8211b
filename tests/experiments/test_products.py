"""Products of float32 are handed to oneDNN where that is faster, and only where it is as exact."""

import pytest
import torch

from lohe.experiments import products

MATMUL = torch.backends.mkldnn.matmul


@pytest.fixture(autouse=True)
def nothing_chosen():
    MATMUL.fp32_precision = "none"


def test_products_that_are_handed_over_are_still_of_float32(monkeypatch):
    """Against float64, twice what MKL or OpenBLAS lose at most; whatever this processor does."""
    g = torch.Generator().manual_seed(0)
    a, b = torch.randn(3, 200, 300, generator=g), torch.randn(3, 300, 100, generator=g)
    exact = a.double() @ b.double()
    before = ((a @ b) - exact).norm() / exact.norm()
    monkeypatch.setattr(products, "held_back", lambda: True)
    products.quick_products()
    assert ((a @ b) - exact).norm() / exact.norm() <= 2 * before
    assert not products.rounded()


def test_where_they_would_be_rounded_nothing_is_changed(monkeypatch):
    monkeypatch.setattr(products, "held_back", lambda: True)
    monkeypatch.setattr(products, "rounded", lambda: True)
    assert not products.quick_products()
    assert MATMUL.fp32_precision == "none"


def test_where_they_are_exact_the_setting_stays(monkeypatch):
    monkeypatch.setattr(products, "held_back", lambda: True)
    monkeypatch.setattr(products, "rounded", lambda: False)
    assert products.quick_products()
    assert MATMUL.fp32_precision == "bf16"
    assert not products.quick_products()  # somebody has chosen by now


@pytest.mark.parametrize("chosen", ["ieee", "bf16"])
def test_what_was_chosen_is_left_alone(monkeypatch, chosen):
    MATMUL.fp32_precision = chosen
    monkeypatch.setattr(products, "held_back", lambda: True)
    assert not products.quick_products()
    assert MATMUL.fp32_precision == chosen


def test_elsewhere_nothing_is_done(monkeypatch):
    monkeypatch.setattr(products, "held_back", lambda: False)
    assert not products.quick_products()
    assert MATMUL.fp32_precision == "none"


@pytest.mark.parametrize(
    ("vendor", "capability", "asked"),
    [
        ("AuthenticAMD", "AVX512", True),
        ("AuthenticAMD", "AVX2", False),
        ("GenuineIntel", "AVX512", False),
    ],
)
def test_mkl_holds_back_on_amd_processors_with_avx512(
    monkeypatch, tmp_path, vendor, capability, asked
):
    info = tmp_path / "cpuinfo"
    info.write_text(f"processor\t: 0\nvendor_id\t: {vendor}\n", encoding="utf-8")
    monkeypatch.setattr(products, "CPUINFO", info)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    for library in (torch.backends.mkl, torch.backends.mkldnn):
        monkeypatch.setattr(library, "is_available", lambda: True)
    assert products.held_back() == asked
    info.unlink()  # another system
    assert not products.held_back()
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: False)
    assert not products.held_back()


@pytest.mark.parametrize(("as_float", "rounds"), [(torch.bfloat16, True), (torch.float32, False)])
def test_operands_of_fewer_bits_are_seen(monkeypatch, as_float, rounds):
    product = torch.Tensor.__matmul__

    def of_fewer(a, b):
        return product(a.to(as_float).float(), b.to(as_float).float())

    monkeypatch.setattr(torch.Tensor, "__matmul__", of_fewer)
    assert products.rounded() == rounds
