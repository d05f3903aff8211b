"""Contestants, and the race between them."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from lohe.bench import clock, gate
from lohe.bench.rows import Case, Kind, Row, Spread, Status

SDPA = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "math": SDPBackend.MATH,  # only where no other serves
}
MOST_WORDS = 300  # characters of a reason

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]  # of queries, keys and values


@dataclass(frozen=True)
class Contestant:
    """Something to be timed; `facts` are further fields of its rows.

    Its memory is that of `once`, or of the run where that says nothing: a CUDA graph holds its own.
    """

    name: str
    kind: Kind
    run: clock.Run
    facts: dict[str, Any] = field(default_factory=dict)
    once: clock.Run = ()


@dataclass(frozen=True)
class Setup:
    """What all races of a set have in common."""

    set: str
    device: torch.device
    dtype: torch.dtype
    backend: str
    budget: float  # seconds for each contestant
    generator: torch.Generator  # on that device

    def case(self, batch: int, heads: int, tokens: int, d_h: int, causal: bool) -> Case:
        return Case(batch, heads, tokens, d_h, str(self.dtype).removeprefix("torch."), causal)

    def randn(self, *shape: int) -> Tensor:
        place = {"device": self.device, "dtype": self.dtype}
        try:
            return torch.randn(shape, generator=self.generator, **place)
        except RuntimeError as reason:  # torch has no other name for it on a CPU
            raise ValueError(
                f"Inputs of {' x '.join(map(str, shape))} numbers do not fit into the memory of "
                f"{self.device}: choose fewer --tokens, a smaller --batch, or another --set."
            ) from reason

    def absent(self, case: Case, name: str, kind: Kind, status: Status, why: str) -> Row:
        return Row(self.set, "", name, kind, case, status, note=why)

    def admit(self, case: Case, name: str, check: Callable[[], gate.Errors]) -> gate.Errors | Row:
        """The errors that the gate lets through, or the row that says why it does not.

        What is wrong by little is asked once more; what was wrong then stays among the errors.
        """
        errors: gate.Errors = {}
        before: gate.Errors = {}
        if reason := attempt(lambda: errors.update(check())):
            return self.absent(case, name, "ours", "left out", reason)
        if gate.unlucky(errors, self.dtype):
            before = {f"{n}, first draw": e for n, e in errors.items()}
            errors.update(check())
        if wrong := gate.verdict(errors, self.dtype):
            return self.absent(case, name, "ours", "wrong", wrong)
        return errors | before

    def race(
        self,
        case: Case,
        contestants: Sequence[Contestant],
        measures: dict[str, slice],
        against: Sequence[Kind] = ("sdpa",),
    ) -> Iterator[Row]:
        """Rows of all contestants for each measure, a slice of the stages that they run.

        The ratio is to the fastest contestant of the kinds `against`, chosen for each measure. Peak
        memory stands with the last measure.
        """
        runs, last = [c.run for c in contestants], list(measures)[-1]
        peaks = [clock.peak_bytes(c.once or c.run, self.device) for c in contestants]
        stages = clock.timed(runs, clock.clock(self.device), self.budget)
        for measure, part in measures.items():
            seconds = [times[:, part].sum(axis=1) for times in stages]
            spreads = [Spread.of(s) for s in seconds]
            rivals = [i for i, c in enumerate(contestants) if c.kind in against]
            best = min(rivals, key=lambda i: spreads[i].median, default=None)
            for i, c in enumerate(contestants):
                yield Row(
                    self.set,
                    measure,
                    c.name,
                    c.kind,
                    case,
                    seconds=spreads[i],
                    ratio=None if best is None else Spread.of(seconds[best] / seconds[i]),
                    rival="" if best is None else contestants[best].name,
                    rounds=len(seconds[i]),
                    peak_bytes=peaks[i] if measure == last else None,
                    **c.facts,
                )


class Passes:
    """A function forward without gradients, then forward and backward, as three stages.

    On CUDA they are replayed from graphs, and then forward and both are called once more, "eager":
    with the time that Python takes to call them, for which the GPU waits.
    """

    measures: ClassVar = {"forward": slice(0, 1), "backward": slice(2, 3), "both": slice(1, 3)}
    eager: ClassVar = {"forward eager": slice(3, 4), "both eager": slice(4, 6)}

    def __init__(self, function: Callable[..., Tensor], inputs: dict[str, Tensor], grad: Tensor):
        self.function, self.grad = function, grad
        self.inputs = {name: x.detach().requires_grad_() for name, x in inputs.items()}
        self.out: Tensor | None = None

    def contestant(self, name: str, kind: Kind, device: torch.device, **facts: Any) -> Contestant:
        stages = self.only_forward, self.forward, self.backward
        if device.type != "cuda":
            return Contestant(name, kind, stages, facts)
        eager = [clock.waited_for(stage) for stage in stages]
        try:
            replayed = clock.captured(stages, device)
        except RuntimeError as error:
            replayed, facts = stages, facts | {"note": f"no CUDA graph: {error}"}
        return Contestant(name, kind, (*replayed, *eager), facts, once=stages[1:])

    def only_forward(self) -> None:
        with torch.no_grad():
            self.function(**self.inputs)

    def forward(self) -> None:
        self.out = self.function(**self.inputs)

    def backward(self) -> None:
        assert self.out is not None
        torch.autograd.grad(self.out, list(self.inputs.values()), self.grad)
        self.out = None


def sdpa(name: str, f: Tensor, g: Tensor, v: Tensor, *, causal: bool) -> Tensor:
    """Softmax attention by one of PyTorch's kernels, which raises RuntimeError if it cannot."""
    with sdpa_kernel(SDPA[name]):
        return F.scaled_dot_product_attention(f, g, v, is_causal=causal)


def flex(tokens: int, causal: bool, device: torch.device) -> Attend:
    """Softmax attention by FlexAttention, compiled; RuntimeError where it cannot be."""
    if device.type != "cuda":
        raise RuntimeError("timed on CUDA only: elsewhere it has no backward pass")
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    def past(batch: Tensor, head: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return i >= j

    size = (None, None, tokens, tokens, device)
    blocks = create_block_mask(past, *size) if causal else None
    torch.compiler.reset()  # or the eighth shape would not be compiled any more
    compiled: Any = torch.compile(flex_attention, dynamic=False)
    return lambda f, g, v: compiled(f, g, v, block_mask=blocks)


def attempt(work: Callable[[], object]) -> str:
    """Do it once; why that did not work, or nothing."""
    with warnings.catch_warnings(record=True) as said:  # SDPA warns why, then raises
        warnings.simplefilter("always")
        try:
            work()
        except Exception as error:  # whatever goes wrong on this machine is the reason
            reasons = [str(w.message) for w in said if issubclass(w.category, UserWarning)]
            said = " ".join(" ".join([*reasons, str(error)]).split())
            said, _, _ = said.partition(" Traceback ")  # of a compiler's own process
            return said[:MOST_WORDS] or type(error).__name__
    return ""


def rivals(
    setup: Setup,
    case: Case,
    sample: tuple[Tensor, Tensor, Tensor],
    entry: Callable[[str, Attend], Contestant],
    with_flex: bool = False,
) -> tuple[list[Contestant], list[Row]]:
    """Every kernel for softmax attention that serves here, and rows that say why others do not.

    They all compute `sample` first, and one that differs from the first of them is left out.
    """
    found: list[Contestant] = []
    left_out: list[Row] = []
    outputs: list[Tensor] = []

    def enter(name: str, kind: Kind, make: Callable[[], Attend]) -> None:
        def trial() -> None:
            attend = make()
            with torch.no_grad():
                out = attend(*sample)
            error = gate.relative_error(out, outputs[0]) if outputs else 0.0
            if not error <= 2 * gate.bound(out.dtype):
                raise RuntimeError(f"differs from {found[0].name} by {error:.1e}")
            contestant = entry(name, attend)
            for stage in contestant.run:
                stage()
            found.append(contestant)
            outputs.append(out)

        if reason := attempt(trial):
            left_out.append(setup.absent(case, name, kind, "left out", reason))

    causal = case.causal and sample[0].shape[2] > 1  # a new token sees all there is
    for name in SDPA:
        if name != "math" or not found:
            enter(name, "sdpa", lambda n=name: partial(sdpa, n, causal=causal))
    if with_flex:
        enter("flex", "flex", lambda: flex(case.tokens, causal, setup.device))
    return found, left_out
