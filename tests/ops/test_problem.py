"""What stands between a user's tensors and a kernel."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from lohe.ops import dispatch, oscillator_attention
from lohe.ops.available import HAS_TRITON
from lohe.ops.problem import problem


class Sizes(TorchDispatchMode):
    """How many numbers each tensor has that an operation makes, views aside."""

    def __init__(self):
        super().__init__()
        self.made: list[int] = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        if isinstance(out, torch.Tensor) and not function.is_view:
            self.made.append(out.numel())
        return out


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_inputs_reach_the_kernels_uncopied(dtype):
    """At 16k tokens a copy of f, g and v takes longer than the drive at T = 1k."""
    f, g, v = (torch.randn(2, 3, 40, 16, dtype=dtype) for _ in range(3))
    anchors = torch.randn(3, 40, 2)
    with Sizes() as sizes:
        p = problem(f, g, v, anchors, causal=True, key_mask=torch.ones(2, 40, dtype=torch.bool))
    assert p.v is not None
    assert (p.f.dtype, p.g.dtype, p.v.dtype, p.anchors.dtype) == (dtype,) * 3 + (torch.float32,)
    assert max(sizes.made, default=0) <= anchors.numel()


@pytest.mark.skipif(not HAS_TRITON, reason="needs Triton")
def test_values_reach_a_sharp_readout_uncopied(monkeypatch):
    from lohe.ops.triton import attention, sharp

    f, g, v = (torch.randn(2, 3, 40, 16, dtype=torch.bfloat16) for _ in range(3))
    h, seen = torch.randn(2, 3, 40, 2), []
    monkeypatch.setattr(dispatch, "INTERPRETED", True)  # kernels that are not run
    monkeypatch.setattr(attention, "drive", lambda *_, **__: h)
    monkeypatch.setattr(sharp, "readout", lambda z, r, v, *_, **__: seen.append(v) or v)
    with Sizes() as sizes:
        oscillator_attention(f, g, v, torch.randn(3, 40, 2), sharpness=2, backend="triton")
    assert seen == [v]
    assert max(sizes.made) <= h.numel()


def test_dtypes_that_differ_meet_in_the_widest():
    f, g, v = (torch.randn(1, 1, 4, 4).to(d) for d in (torch.float16, torch.bfloat16, torch.half))
    for anchors in (torch.randn(1, 4, 2), torch.randn(1, 4, 2, dtype=torch.float64)):
        p = problem(f, g, v, anchors)
        assert p.v is not None
        assert {x.dtype for x in (p.f, p.g, p.v, p.anchors)} == {anchors.dtype}
