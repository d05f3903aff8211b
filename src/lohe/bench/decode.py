"""How many tokens a second does a long context let through, and what must be kept of it?

Attention alone: the projections of the layer are the identity, so that f = g = v = x.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from lohe.attention import Cache, OscillatorAttention
from lohe.attention.projections import merge_heads, split_heads
from lohe.bench import gate
from lohe.bench.attention import SMALL_HEADS, SMALL_TOKENS, options
from lohe.bench.clock import captured, waited_for
from lohe.bench.contest import Attend, Contestant, Setup, rivals
from lohe.bench.rows import Case, Kind, Row
from lohe.models import Oscillator
from lohe.ops import oscillator_attention

PIECE = 1024  # tokens of the context that are read at once


class Decoding:
    """A layer that has read all but the last token of a context."""

    def __init__(self, setup: Setup, case: Case, mechanism: Oscillator):
        self.tokens, self.setup, self.mechanism = case.tokens, setup, mechanism
        width = case.heads * case.d_h
        rng = torch.Generator().manual_seed(setup.generator.initial_seed())
        layer = mechanism.build(width, case.heads, case.tokens, causal=True, generator=rng)
        for name in ("to_f", "to_g", "to_v", "to_out"):
            setattr(layer, name, nn.Identity())
        layer.backend = setup.backend
        self.layer: OscillatorAttention = layer.to(setup.device)
        self.cache = Cache(case.tokens)
        past = []
        for start in range(0, case.tokens - 1, PIECE):
            x = setup.randn(case.batch, min(PIECE, case.tokens - 1 - start), width)
            self.layer.decode(x, self.cache)
            past.append(x[-1:])
        self.past = torch.cat(past, dim=1)  # of the last sequence
        self.state = self.cache.state  # kept, since a graph reads it where it is
        self.new = setup.randn(case.batch, 1, width)

    def step(self, new: Tensor | None = None) -> Tensor:
        """The last token; again and again at the same place, so that the context keeps its size."""
        self.cache.tokens, self.cache.state = self.tokens - 1, self.state
        return self.layer.decode(self.new if new is None else new, self.cache)[0]

    def error(self) -> float:
        """Of the first step, in the last sequence, against the whole context in float64.

        In every other head the new token is 0: of relu its floor is left (`gate.coarse`).
        """
        new, heads = self.new.clone(), self.layer.heads
        split_heads(new, heads)[:, 1::2] = 0
        with gate.poisoned(self.setup.device):
            found = self.step(new)[-1:]
        x = torch.cat([self.past, new[-1:]], dim=1).double()
        x, anchors = split_heads(x, heads), self.layer.anchors.detach().double()
        learned = self.layer.log_gain
        gain = {} if learned is None else {"gain": learned.detach().double().exp()}
        call = {**options(self.mechanism), **gain}
        exact = oscillator_attention(x[:, :, -1:], x, x, anchors, **call, backend="reference")
        return gate.relative_error(split_heads(found, heads), exact)


def compare(
    setup: Setup, case: Case, mechanisms: dict[str, Oscillator], *, flex: bool = False
) -> Iterator[Row]:
    """A new token for each sequence, with which the context has `case.tokens`.

    On CUDA replayed from a graph, and "eager": with the time that Python takes to call it.
    """
    entries: list[Contestant] = []
    for name, mechanism in mechanisms.items():
        made: list[Decoding] = []

        def check(mechanism: Oscillator = mechanism, made: list[Decoding] = made) -> gate.Errors:
            tokens, heads = min(case.tokens, SMALL_TOKENS), min(case.heads, SMALL_HEADS)
            small = Decoding(setup, replace(case, batch=2, heads=heads, tokens=tokens), mechanism)
            made.clear()  # asked once more, it has fresh inputs, and one cache at a time
            made.append(Decoding(setup, case, mechanism))
            return {"output": max(small.error(), made[0].error())}

        errors = setup.admit(case, name, check)
        if isinstance(errors, Row):
            yield errors
        else:
            facts = {"errors": errors, "cache_bytes": made[0].cache.nbytes}
            entries.append(contestant(setup, name, "ours", made[0].step, facts))

    k, v = (setup.randn(case.batch, case.heads, case.tokens, case.d_h) for _ in range(2))
    new = setup.randn(case.batch, case.heads, 1, case.d_h)
    k[:, :, -1:], v[:, :, -1:] = new, new  # as every step will leave them

    def rival(name: str, attend: Attend) -> Contestant:
        def step() -> None:
            k[:, :, -1:], v[:, :, -1:] = new, new
            merge_heads(attend(new, k, v))

        kind, facts = "flex" if name == "flex" else "sdpa", {"cache_bytes": k.nbytes + v.nbytes}
        return contestant(setup, name, kind, step, facts)

    found, left_out = rivals(setup, case, (new, k, v), rival, with_flex=flex)
    yield from left_out
    measures = {"decode": slice(0, 1), "decode eager": slice(1, 2)}
    if setup.device.type != "cuda":
        del measures["decode eager"]
    yield from setup.race(case, entries + found, measures, against=("sdpa", "flex"))


def contestant(
    setup: Setup, name: str, kind: Kind, step: Callable[[], object], facts: dict[str, Any]
) -> Contestant:
    """A step replayed from a graph where there are graphs, and the step as it is called."""
    if setup.device.type != "cuda":
        return Contestant(name, kind, (step,), facts)
    eager = waited_for(step)
    try:
        (replay,) = captured((step,), setup.device)
    except RuntimeError as error:
        return Contestant(name, kind, (step, eager), facts | {"note": f"no CUDA graph: {error}"})
    return Contestant(name, kind, (replay, eager), facts)
