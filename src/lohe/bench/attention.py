"""Is oscillator attention faster than softmax attention, forward and backward?"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from lohe import sphere
from lohe.bench import gate
from lohe.bench.contest import Attend, Contestant, Passes, Setup, rivals
from lohe.bench.rows import Case, Row
from lohe.models import Oscillator
from lohe.ops import oscillator_attention

# of the gate's first problem, at most
SMALL_HEADS, SMALL_TOKENS = 2, 1003


def compare(
    setup: Setup, case: Case, mechanisms: dict[str, Oscillator], *, flex: bool = False
) -> Iterator[Row]:
    """Forward, backward and both, of all mechanisms and of every softmax kernel there is."""
    x = projections(setup, case)
    grad = setup.randn(*x["v"].shape)
    entries: list[Contestant] = []
    for name, mechanism in mechanisms.items():
        inputs = x | parameters(setup, case, mechanism)
        errors = setup.admit(case, name, partial(check, setup, case, mechanism, inputs))
        if isinstance(errors, Row):
            yield errors
        else:
            passes = Passes(attention(setup, case, mechanism), inputs, grad)
            entries.append(passes.contestant(name, "ours", setup.device, errors=errors))

    def rival(name: str, attend: Attend) -> Contestant:
        kind = "flex" if name == "flex" else "sdpa"
        return Passes(attend, x, grad).contestant(name, kind, setup.device)

    found, left_out = rivals(setup, case, (x["f"], x["g"], x["v"]), rival, with_flex=flex)
    yield from left_out
    eager = Passes.eager if setup.device.type == "cuda" else {}
    yield from setup.race(case, entries + found, {**eager, **Passes.measures})


def projections(setup: Setup, case: Case) -> dict[str, Tensor]:
    """f, g and v; softmax attention takes them as queries, keys and values."""
    shape = case.batch, case.heads, case.tokens, case.d_h
    return {name: setup.randn(*shape) for name in ("f", "g", "v")}


def parameters(setup: Setup, case: Case, mechanism: Oscillator) -> dict[str, Tensor]:
    """Anchors, and a gain around 1 for each head where it is learned: in float32, as modules do."""
    place: Any = {"generator": setup.generator, "device": setup.device}
    found = {"anchors": sphere.uniform(case.heads, case.tokens, mechanism.d_osc, **place)}
    if mechanism.gain == "learned":
        found["gain"] = torch.randn(case.heads, **place).mul(0.5).exp()
    return found


def attention(setup: Setup, case: Case, mechanism: Oscillator) -> Callable[..., Tensor]:
    """Ours, as a function of f, g, v, anchors, and gain where it is learned."""
    return partial(
        oscillator_attention, **options(mechanism), causal=case.causal, backend=setup.backend
    )


def options(mechanism: Oscillator) -> dict[str, Any]:
    fixed = {} if mechanism.gain == "learned" else {"gain": mechanism.gain}
    return {"coupling": mechanism.coupling, "sharpness": mechanism.sharpness} | fixed


def check(
    setup: Setup, case: Case, mechanism: Oscillator, inputs: dict[str, Tensor]
) -> gate.Errors:
    """The larger of the gate's two errors for each output and gradient, by name."""
    heads, tokens = min(case.heads, SMALL_HEADS), min(case.tokens, SMALL_TOKENS)
    small = replace(case, batch=1, heads=heads, tokens=tokens)
    fresh = projections(setup, small) | parameters(setup, small, mechanism)
    scale = gate.coarse_scale(case.d_h)
    call = {**options(mechanism), "causal": case.causal, "scale": scale}
    ours = partial(attention(setup, case, mechanism), scale=scale)
    whole = gate.whole(ours, fresh, setup.generator, **call)
    few = gate.few_queries(ours, inputs, setup.generator, **call)
    return {name: max(error, few[name]) for name, error in whole.items()}
