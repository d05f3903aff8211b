"""No clock for wrong answers: output and gradients against the reference in float64.

Two problems are put to each kernel, with fresh inputs and memory that is NaN until it is written: a
small one with an odd number of tokens, compared as a whole, and one of the size that is timed,
where only a few queries of one head get a gradient and are compared.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from math import log2
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
from torch import Tensor

from lohe.ops import couplings, oscillator_attention, problem, reference
from lohe.ops.available import tf32_allowed

Inputs = dict[str, Tensor]  # f, g, v, anchors, and gain where there is one
Errors = dict[str, float]

QUERIES = 32  # that are compared at full size
AT_ZERO = 8  # of so many queries one is 0
# Some ten roundings lie between an input and a gradient, each by up to 2^-9 in bfloat16, 2^-12 in
# float16 and TF32, 2^-24 in float32 (whose sums are as long as the sequence).
BOUNDS = {
    torch.bfloat16: 2e-2,
    torch.float16: 4e-3,
    torch.float32: 1e-4,
    torch.float64: 1e-10,
}
ONE_ROW = 3  # a single row may be wrong by so many times the bound
# In rows of few keys 16-bit outputs and couplings do more harm: with d_osc = 2, causal, one draw of
# inputs in 200 errs by more than the bound, and one in 2,000 by more than this many times.
UNLUCKY = 3


def bound(dtype: torch.dtype) -> float:
    """The largest relative error that rounding explains."""
    tf32 = dtype == torch.float32 and tf32_allowed()
    return BOUNDS[torch.float16 if tf32 else dtype]


def verdict(errors: Errors, dtype: torch.dtype) -> str:
    """What is wrong, in words; empty if nothing is."""
    # `not <=` rather than `>`: a NaN is wrong
    wrong = [f"{name} {e:.1e}" for name, e in errors.items() if not e <= bound(dtype)]
    return f"relative error {', '.join(wrong)}; at most {bound(dtype):.0e} is rounding" * bool(
        wrong
    )


def unlucky(errors: Errors, dtype: torch.dtype) -> bool:
    """Wrong, but by so little that it is worth asking again, with fresh inputs."""
    wrong = bool(verdict(errors, dtype))
    return wrong and all(e <= UNLUCKY * bound(dtype) for e in errors.values())


def relative_error(found: Tensor, exact: Tensor) -> float:
    """‖found - exact‖ / ‖exact‖; or a third of that of the worst row, if it is more.

    A row that is smaller than most counts as one of typical size.
    """
    exact = exact.detach().double()
    error = found.detach().double() - exact
    rows, wrong = (x.reshape(-1, x.shape[-1]).norm(dim=1) for x in (exact, error))
    typical = rows.square().mean().sqrt()
    worst = (wrong / torch.maximum(rows, typical)).max()
    return torch.maximum(wrong.square().mean().sqrt() / typical, worst / ONE_ROW).item()


def whole(
    attention: Callable[..., Tensor], inputs: Inputs, generator: torch.Generator, **call: Any
) -> Errors:
    """Errors of the output and of the gradient of each input, by name."""
    inputs = coarse(inputs, some_zero=not call.get("causal"))
    truth = _truth(inputs, generator, **call)
    found = _passes(attention, inputs, lambda out: truth.direction.to(out.dtype))
    return _errors(found, truth)


def few_queries(
    attention: Callable[..., Tensor],
    inputs: Inputs,
    generator: torch.Generator,
    *,
    causal: bool,
    **call: Any,
) -> Errors:
    """The same for a few queries of the last sequence and head, at any size.

    Where all other queries get no gradient, that of the keys is due to these few.
    """
    inputs = coarse(inputs, some_zero=not causal)
    f = inputs["f"]
    queries, keys = f.shape[2], inputs["g"].shape[2]
    drawn = torch.rand(queries, generator=generator, device=generator.device).to(f.device)
    drawn[[-1] if causal else [1, -1]] = 1  # the last is always among them, and one that is 0
    some = drawn.topk(min(QUERIES, queries)).indices

    def part(name: str, x: Tensor) -> Tensor:
        x = x[-1:, -1:] if x.ndim == 4 else x[-1:]
        return x[:, :, some] if name in ("f", "output") else x

    def direction(out: Tensor) -> Tensor:
        sparse = torch.zeros_like(out)
        sparse[-1, -1, some] = truth.direction[0, 0].to(out.dtype)
        return sparse

    seen = torch.arange(keys, device=f.device) <= some[:, None] + keys - queries
    truth = _truth(
        {name: part(name, x) for name, x in inputs.items()},
        generator,
        mask=seen if causal else None,
        **call,
    )
    found = _passes(attention, inputs, direction)
    return _errors({name: part(name, x) for name, x in found.items()}, truth)


def coarse_scale(d_h: int) -> float:
    """A power of two near 1 / sqrt(d_h): it leaves a score of 0 what it is."""
    return 2.0 ** round(-log2(d_h) / 2)


def coarse(inputs: Inputs, *, some_zero: bool = True) -> Inputs:
    """f and g on a grid of 1/16, where every precision has the same scores f·g.

    The derivative of relu jumps at 0. Of a million random scores, rounding moves one across, and
    that is an error of some percent in a row of the gradient.

    Some queries are 0, and so are their scores: of relu its floor is left, which hardly shows in a
    row that has a score above 0. Not under a causal mask: the first queries have few keys, and the
    floor shows in them.
    """
    on_grid = {name: (16 * inputs[name]).round() / 16 for name in ("f", "g")}
    if some_zero:
        on_grid["f"][:, :, 1::AT_ZERO] = 0
    return inputs | on_grid


class _Truth(NamedTuple):
    """Output and gradients in float64; `condition` weighs the rows, in [0, 1]."""

    exact: Inputs
    direction: Tensor
    condition: Tensor


def _truth(inputs: Inputs, generator: torch.Generator, **call: Any) -> _Truth:
    """The reference, and a direction in which to differentiate it.

    Where the drive nearly cancels, z amplifies every rounding of w by 1/c, c = ‖h_i‖ / ‖w_i‖, and
    its derivative by 1/c²: such a row counts less. Half of the direction is random, half the output
    itself, so that the sum behind a single number (the gradient of a gain) does not cancel.
    """
    x = {name: t.detach().double().requires_grad_() for name, t in inputs.items()}
    out = oscillator_attention(**x, backend="reference", **call)
    masks = {name: call[name] for name in ("coupling", "causal", "mask", "scale") if name in call}
    with torch.no_grad():
        w = couplings(problem(x["f"], x["g"], None, x["anchors"], **masks), shifted=True)
        h = reference.drive(w, reference.sphere.normalize(x["anchors"]))
        condition = (h.norm(dim=-1) / w.norm(dim=-1).clamp(min=1e-300)).clamp(max=1)[..., None]
        # Of one key there is no gradient, and of two that are coupled equally none either: z lies
        # half-way between their anchors, wherever these are. What is left there is rounding.
        chooses = (w > 0).sum(dim=-1, keepdim=True) > 2
        noise = torch.randn(out.shape, generator=generator, device=generator.device).to(out)
        direction = chooses * condition**2 * (noise + out / out.square().mean().sqrt())
        direction = direction.to(inputs["v"].dtype).double()
    gradients = torch.autograd.grad(out, list(x.values()), direction)
    return _Truth(dict(zip(x, gradients, strict=True)) | {"output": out}, direction, condition)


def _passes(
    attention: Callable[..., Tensor], inputs: Inputs, direction: Callable[[Tensor], Tensor]
) -> Inputs:
    """Output and gradients of what is to be judged."""
    x = {name: t.detach().requires_grad_() for name, t in inputs.items()}
    with poisoned(inputs["f"].device):
        out = attention(**x)
        gradients = torch.autograd.grad(out, list(x.values()), direction(out))
    return dict(zip(x, gradients, strict=True)) | {"output": out}


def _errors(found: Inputs, truth: _Truth) -> Errors:
    weight = {"output": truth.condition}
    return {
        name: relative_error(found[name] * weight.get(name, 1), exact * weight.get(name, 1))
        for name, exact in truth.exact.items()
    }


@contextmanager
def poisoned(device: torch.device) -> Iterator[None]:
    """Memory comes full of NaN, so that an element which nobody writes shows."""

    def full_of_nan(make: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def made(*args: Any, **options: Any) -> Tensor:
            x = make(*args, **options)
            return x.detach().fill_(torch.nan) if x.is_floating_point() else x

        return made

    if device.type == "cuda":  # also what the allocator keeps for later
        for size in [2**28] + [2**17] * 64:
            torch.full((size,), torch.nan, device=device)
    with ExitStack() as patches:
        for owner, name in (
            (torch, "empty"),
            (torch, "empty_like"),
            (torch, "empty_strided"),
            (torch.Tensor, "new_empty"),
        ):
            patches.enter_context(patch.object(owner, name, full_of_nan(getattr(owner, name))))
        yield
