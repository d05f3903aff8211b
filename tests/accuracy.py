"""Every tolerance of the tests, each with its reason.

Kernels are measured with a yardstick: the same inputs in float64 through `ops.reference`. A path
may lose twice what plain PyTorch loses at that dtype (another order of summation is worth that
much), plus a few units in the last place, since plain PyTorch sometimes loses nothing at all by
luck.
"""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

ROUNDING = 1e-12  # float64 identities over a few hundred terms
FEW_ULP = 4
# parameters in float64 after a dozen steps of 5e-3: Adam divides by |g| + 1e-8, so the rounding of
# a small gradient, 1e-17, comes out as up to 1e-9 of a step
TRAINED = 1e-10
CANCELLED = 2**-23  # of float32 terms that cancel (the gradient of a single weight is 0)

Outputs = dict[str, Tensor]


def outputs_and_gradients(
    function: Callable[..., Tensor],
    tensors: dict[str, Tensor],
    direction: Tensor,
    dtype: torch.dtype,
) -> Outputs:
    """`function(**tensors)` at `dtype`, and the gradient of its inner product with `direction`."""
    inputs = {name: x.to(dtype).requires_grad_() for name, x in tensors.items()}
    out = function(**inputs)
    gradients = torch.autograd.grad(out, list(inputs.values()), direction.to(out.dtype))
    return {"output": out.detach()} | dict(zip(inputs, gradients, strict=True))


def assert_as_accurate(
    candidate: Callable[..., Tensor],
    plain: Callable[..., Tensor],
    tensors: dict[str, Tensor],
    direction: Tensor,
    condition: Tensor,
    dtype: torch.dtype,
    amplified: Mapping[str, float] | None = None,
) -> None:
    """`candidate` is as close to float64 as `plain` is, in the output and in each gradient.

    `condition` weighs the rows, in [0, 1]. Where the drive nearly cancels, z amplifies the rounding
    of any order of summation by 1/‖h‖: unweighted, that one row is all that would be compared.
    `amplified`: by how much terms that cancel are multiplied on their way into a gradient.
    """
    by = amplified or {}
    tensors = {name: x.to(dtype) for name, x in tensors.items()}  # all three see the rounded inputs
    paths = ((plain, torch.float64), (plain, dtype), (candidate, dtype))
    exact, expected, found = (
        outputs_and_gradients(f, tensors, direction * condition, d) for f, d in paths
    )
    terms = (direction * exact["output"]).sum(dim=-1).abs().max().clamp(min=1).item()
    for name, truth in exact.items():
        assert found[name].isfinite().all(), name
        weight = condition if name == "output" else 1
        loss, error = (
            ((x[name].double() - truth).abs() * weight).max().item() for x in (expected, found)
        )
        cancelled = CANCELLED * terms * max(1.0, by.get(name, 1.0))
        ulp = torch.finfo(dtype).eps * truth.abs().max().item() + cancelled
        assert error <= 2 * loss + FEW_ULP * ulp, f"{name}: {error:.2e}, plain PyTorch {loss:.2e}"
