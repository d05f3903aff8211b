"""Inputs of the mechanism."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from lohe import sphere
from lohe.ops import chunked


@pytest.fixture
def make(rng) -> Callable[..., dict[str, Tensor]]:
    """make(queries, keys, ...) -> f, g, v, anchors, in float64."""

    def inputs(
        queries: int = 7,
        keys: int | None = None,
        *,
        batch: int = 2,
        heads: int = 3,
        d_h: int = 8,
        d_v: int = 5,
        d_osc: int = 2,
    ) -> dict[str, Tensor]:
        keys = queries if keys is None else keys
        double = {"dtype": torch.float64, "generator": rng}
        return {
            "f": torch.randn(batch, heads, queries, d_h, **double),
            "g": torch.randn(batch, heads, keys, d_h, **double),
            "v": torch.randn(batch, heads, keys, d_v, **double),
            "anchors": sphere.uniform(heads, keys, d_osc, **double),
        }

    return inputs


@pytest.fixture
def small_tiles(monkeypatch):
    """Tiles of awkward size, so that a short sequence has many and their edges do not line up, and
    heads in groups that do not come out even."""
    monkeypatch.setattr(chunked, "ROWS", 24)
    monkeypatch.setattr(chunked, "COLUMNS", 40)
    monkeypatch.setattr(chunked, "HEADS_A_THREAD", 2)
