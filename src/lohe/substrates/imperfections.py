"""Appendix C: what a physical array does to the mechanism, each as a wrapper or a replacement.

Attention is computed in two steps that can be replaced, and everything here is one or the other:

    drive(couplings, anchors) -> h    h_i = Σ_j w_ij r_j     Mismatch, DeviceMismatch
    settle(h) -> z                    z_i = h_i / ‖h_i‖      StateNoise, FrequencyDisorder,
                                                             FiniteHorizon, Integrated
    start(h) -> z0                    before settling        UniformStart, SequentialStart

Everything is drawn anew in each call from the generator given, once, so the backward pass sees the
same draw; only the factors of a DeviceMismatch belong to the device and are drawn when it is built.
Draws are made on the generator's device and then moved: one seed gives one sample everywhere.
Gradient checkpointing calls a layer again in its backward pass, and restores only the generators
that are PyTorch's own: there draw from `torch.default_generator`, others are refused.

A settling that looks at previous tokens has `within_sequence` True: it needs the sequence in one
call, and would mistake a token that is decoded alone for the first.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from numbers import Real
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from lohe import sphere
from lohe.dynamics import Solver, fixed_query, flow, solve

Drive = Callable[[Tensor, Tensor], Tensor]
Settle = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Mismatch:
    """Every coupling off by its own factor, w_ij e^ε with ε ~ N(0, scale²), anew in each call.

    This is the published model, in which the error differs between examples; see DeviceMismatch.
    """

    drive: Drive
    scale: float
    generator: torch.Generator = field(repr=False)

    def __post_init__(self) -> None:
        check_scale(self, self.scale)
        check_generator(self, self.generator)

    def __call__(
        self, couplings: Float[Tensor, "*batch i j"], anchors: Float[Tensor, "*#batch j d_osc"]
    ) -> Float[Tensor, "*batch i d_osc"]:
        error = normal(couplings.shape, couplings, self.generator)
        return self.drive(couplings * torch.exp(self.scale * error), anchors)


@dataclass(frozen=True, eq=False)  # a device equals itself alone: tensors have no truth
class DeviceMismatch:
    """Mismatch of one device: the factors e^ε of its heads × tokens × tokens couplings are fixed.

    Drawn when the device is built and the same for every example and call. Fewer queries than
    keys are the last ones (decoding), as in the causal mask.
    """

    drive: Drive
    scale: float
    heads: int
    tokens: int
    generator: torch.Generator = field(repr=False)
    factors: Float[Tensor, "heads tokens tokens"] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        check_scale(self, self.scale)
        check_generator(self, self.generator)
        shape = (self.heads, self.tokens, self.tokens)
        error = torch.randn(shape, generator=self.generator, device=self.generator.device)
        object.__setattr__(self, "factors", torch.exp(self.scale * error))

    def __call__(
        self,
        couplings: Float[Tensor, "*batch heads i j"],
        anchors: Float[Tensor, "*#batch heads j d_osc"],
    ) -> Float[Tensor, "*batch heads i d_osc"]:
        heads, queries, keys = couplings.shape[-3:]
        if heads != self.heads or max(queries, keys) > self.tokens:
            raise ValueError(
                f"This device has {self.heads} heads of {self.tokens} × {self.tokens} couplings, "
                f"got {heads} heads of {queries} × {keys}. Build DeviceMismatch with "
                f"heads={heads}, tokens={max(queries, keys)} or more."
            )
        first = max(keys - queries, 0)
        factors = self.factors[:, first : first + queries, :keys].to(couplings)
        return self.drive(couplings * factors, anchors)


@dataclass(frozen=True)
class StateNoise:
    """Noise added to the settled state, z = normalize(settle(h) + scale N(0, I))."""

    settle: Settle
    scale: float
    generator: torch.Generator = field(repr=False)

    def __post_init__(self) -> None:
        check_scale(self, self.scale)
        check_generator(self, self.generator)

    @property
    def within_sequence(self) -> bool:
        return looks_back(self.settle)

    def __call__(self, h: Float[Tensor, "*batch d_osc"]) -> Float[Tensor, "*batch d_osc"]:
        noise = normal(h.shape, h, self.generator)
        return sphere.normalize(self.settle(h) + self.scale * noise)


@dataclass(frozen=True)
class FrequencyDisorder:
    """Every oscillator with a natural frequency of its own, Ω_i, from `settle(h)` to the horizon.

    The entries of Ω_i above the diagonal are N(0, scale²): on the circle, the rotation rate. They
    are drawn anew in every call, as if each were made on another device.
    The published runs took (M - Mᵀ)/2 with M_ij ~ N(0, s²), whose entries have the deviation
    s/√2: for their s, give scale = s / math.sqrt(2). They started at the undisturbed fixed point
    and ended at 30. Exact, in float64 inside.
    """

    settle: Settle
    scale: float
    horizon: float
    generator: torch.Generator = field(repr=False)

    def __post_init__(self) -> None:
        check_scale(self, self.scale)
        check_generator(self, self.generator)
        check_horizon(self, self.horizon)

    @property
    def within_sequence(self) -> bool:
        return looks_back(self.settle)

    def __call__(self, h: Float[Tensor, "*batch d_osc"]) -> Float[Tensor, "*batch d_osc"]:
        upper = normal((*h.shape, h.shape[-1]), h, self.generator).triu(diagonal=1)
        return flow(self.settle(h), h, self.horizon, self.scale * (upper - upper.mT))


@dataclass(frozen=True)
class UniformStart:
    """Start anywhere: a cold device, whose phases know nothing of the drive."""

    generator: torch.Generator = field(repr=False)

    def __post_init__(self) -> None:
        check_generator(self, self.generator)

    def __call__(self, h: Float[Tensor, "*batch d_osc"]) -> Float[Tensor, "*batch d_osc"]:
        return sphere.normalize(normal(h.shape, h, self.generator))


@dataclass(frozen=True)
class SequentialStart:
    """Start where the previous token came to rest, normalize(z*_(i-1) + scale N(0, I)).

    Tokens are the last axis but one; the first of them starts anywhere. Section 4.4 has 0.05.
    The first is that of the call: decoded one at a time every token would be the first and start
    anywhere, which `within_sequence` is there to prevent.
    """

    within_sequence: ClassVar[bool] = True

    scale: float
    generator: torch.Generator = field(repr=False)

    def __post_init__(self) -> None:
        check_scale(self, self.scale)
        check_generator(self, self.generator)

    def __call__(
        self, h: Float[Tensor, "*batch tokens d_osc"]
    ) -> Float[Tensor, "*batch tokens d_osc"]:
        first = UniformStart(self.generator)(h[..., :1, :])
        before = torch.cat([first, sphere.normalize(h[..., :-1, :])], dim=-2)
        return sphere.normalize(before + self.scale * normal(h.shape, h, self.generator))


@dataclass(frozen=True)
class FiniteHorizon:
    """Settling cut short: the exact flow from a start, up to the horizon.

    Give either `start`, any callable h -> z0, or a `generator` for uniform starts.
    """

    horizon: float
    start: Settle | None = field(default=None, kw_only=True)
    generator: torch.Generator | None = field(default=None, kw_only=True, repr=False)

    def __post_init__(self) -> None:
        check_horizon(self, self.horizon)
        choose_start(self, self.start, self.generator)

    @property
    def within_sequence(self) -> bool:
        return looks_back(self.start)

    def __call__(self, h: Float[Tensor, "*batch d_osc"]) -> Float[Tensor, "*batch d_osc"]:
        return flow(choose_start(self, self.start, self.generator)(h), h, self.horizon)


@dataclass(frozen=True)
class Integrated:
    """Settling by an ODE solver, as published: FiniteHorizon without the closed form.

    A trajectory that fails raises, rather than hand a wrong state to the layers above.
    """

    horizon: float
    solver: Solver
    start: Settle | None = field(default=None, kw_only=True)
    generator: torch.Generator | None = field(default=None, kw_only=True, repr=False)

    def __post_init__(self) -> None:
        check_horizon(self, self.horizon)
        choose_start(self, self.start, self.generator)

    @property
    def within_sequence(self) -> bool:
        return looks_back(self.start)

    def __call__(self, h: Float[Tensor, "*batch d_osc"]) -> Float[Tensor, "*batch d_osc"]:
        z0 = choose_start(self, self.start, self.generator)(h)
        solution = solve(lambda t, z: fixed_query(z, h), z0, self.horizon, self.solver)
        if not solution.succeeded:
            raise RuntimeError(
                f"{self.solver} did not bring every oscillator to t={self.horizon}: "
                f"{solution.failures()} of {solution.status.numel()}. Loosen its tolerance, allow "
                "it more steps, or use FiniteHorizon, which is exact."
            )
        return sphere.normalize(solution.state)


def normal(shape: tuple[int, ...], like: Tensor, generator: torch.Generator) -> Tensor:
    """Standard normal numbers from the generator's device, as `like` in dtype and device."""
    require_same_draw(generator)
    draw = torch.randn(shape, generator=generator, dtype=like.dtype, device=generator.device)
    return draw.to(like.device)


def require_same_draw(generator: torch.Generator) -> None:
    """A layer called in a backward pass is one that is computed again: its draw must be the first.

    Asked of autograd, which has no public name for it; not while torch compiles.
    """
    if torch.compiler.is_compiling() or torch._C._current_graph_task_id() < 0:
        return
    own = (torch.default_generator, *torch.cuda.default_generators)
    if not any(generator is known for known in own):
        raise RuntimeError(
            "Gradient checkpointing computes this layer again and would draw other imperfections "
            "than its forward pass had, since it restores PyTorch's own generators only. Give "
            "generator=torch.default_generator (torch.manual_seed sets its seed), or do not "
            "checkpoint."
        )


def looks_back(part: Settle | None) -> bool:
    """Whether a start or a settling looks at previous tokens of the call."""
    return bool(getattr(part, "within_sequence", False))


def choose_start(owner: object, start: Settle | None, generator: torch.Generator | None) -> Settle:
    if start is not None and generator is None:
        return start
    if generator is not None and start is None:
        return UniformStart(generator)
    raise ValueError(
        f"{type(owner).__name__} needs to know where oscillators start: give start=..., a callable "
        "h -> z0, or generator=... for uniform starts, and not both."
    )


def check_generator(owner: object, generator: torch.Generator) -> None:
    if not isinstance(generator, torch.Generator):
        raise ValueError(
            f"{type(owner).__name__} draws from a torch.Generator, got {generator!r}. Give "
            "generator=torch.Generator().manual_seed(0)."
        )


def check_scale(owner: object, scale: float) -> None:
    if not _is_number(scale) or not 0 <= scale < math.inf:
        raise ValueError(
            f"{type(owner).__name__} takes the size of the imperfection as a number scale >= 0, "
            f"got {scale!r}."
        )


def check_horizon(owner: object, horizon: float) -> None:
    if not _is_number(horizon) or not 0 < horizon < math.inf:
        raise ValueError(
            f"{type(owner).__name__} runs for a positive, finite time, got horizon={horizon!r}. "
            "Time has no unit: an oscillator comes to rest as exp(-‖h‖ t); the paper takes 30."
        )


def _is_number(x: object) -> bool:
    return isinstance(x, Real) or (isinstance(x, Tensor) and x.ndim == 0)
