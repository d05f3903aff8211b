"""Fixtures shared by all tests. Randomness enters only through `rng`."""

import pytest
import torch
from hypothesis import settings

import typecheck  # noqa: F401  before the first module that it checks

# CI machines are shared and slow: no deadlines, and the same examples every time
settings.register_profile("lohe", deadline=None, derandomize=True, max_examples=40)
settings.load_profile("lohe")


@pytest.fixture
def rng() -> torch.Generator:
    return torch.Generator().manual_seed(0)
