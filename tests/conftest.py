"""Fixtures shared by all tests. Randomness enters only through `rng`."""

import signal
from collections.abc import Iterator
from importlib.util import find_spec

import pytest
import torch
from hypothesis import settings

if find_spec("beartype"):  # without it shapes are not checked: a machine with a GPU and little else
    import typecheck  # noqa: F401  before the first module that it checks

# CI machines are shared and slow: no deadlines, and the same examples every time
settings.register_profile("lohe", deadline=None, derandomize=True, max_examples=40)
settings.load_profile("lohe")

# a shell's background jobs do not hear Ctrl-C, nor does what they start: tests send it
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The slow ones first, so that no worker is left alone with one of them at the end."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


@pytest.fixture(autouse=True)
def products_unchosen() -> Iterator[None]:
    """Commands that train on a CPU choose for the whole process, which all tests share; so do
    fixtures of a module that call one."""
    yield
    torch.backends.mkldnn.matmul.fp32_precision = "none"


@pytest.fixture
def rng() -> torch.Generator:
    return torch.Generator().manual_seed(0)
