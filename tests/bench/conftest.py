"""A setup for races that are over in no time."""

from collections.abc import Callable

import pytest
import torch

from lohe.bench.contest import Setup


@pytest.fixture
def setup(rng) -> Callable[..., Setup]:
    """setup(dtype, backend) on the CPU."""

    def make(dtype: torch.dtype = torch.float32, backend: str = "chunked") -> Setup:
        return Setup("test", torch.device("cpu"), dtype, backend, 0.0, rng)

    return make
