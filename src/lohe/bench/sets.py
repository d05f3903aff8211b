"""The named sets: which cases, which mechanisms."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from lohe.bench import attention, decode, step
from lohe.bench.contest import Setup
from lohe.bench.rows import Case, Row
from lohe.models import Oscillator

MECHANISMS = {
    "relu": Oscillator(coupling="relu"),
    "softplus": Oscillator(coupling="softplus"),
    "relu-d32": Oscillator(coupling="relu", d_osc=32),
    "relu-d32-p4-gain": Oscillator(coupling="relu", d_osc=32, sharpness=4, gain="learned"),
}
EVERY = tuple(MECHANISMS)
IN_ALL, FEW_IN_ALL = 16384, 2048  # tokens of a batch, and where there is no GPU


@dataclass(frozen=True)
class Choice:
    """What the caller wants otherwise: lengths, mechanisms, FlexAttention or not, sizes."""

    tokens: tuple[int, ...] = ()
    mechanisms: tuple[str, ...] = ()
    flex: bool = True
    batch: int | None = None
    heads: int | None = None
    width: int | None = None

    def named(self, *default: str) -> dict[str, Oscillator]:
        return {name: MECHANISMS[name] for name in self.mechanisms or default}

    def case(
        self, setup: Setup, batch: int, heads: int, tokens: int, d_h: int, causal: bool
    ) -> Case:
        """Of the set's own sizes, or of those that are wanted."""
        sizes = self.batch or batch, self.heads or heads, tokens, self.width or d_h
        return setup.case(*sizes, causal)

    def compiled_at(self, lengths: tuple[int, ...]) -> tuple[int, ...]:
        """Where FlexAttention is timed, too: it compiles for each length."""
        return () if not self.flex else lengths if self.tokens else (4096,)


def quick(setup: Setup, choice: Choice) -> Iterator[Row]:
    """`table` on CUDA; elsewhere 2,048 tokens in all, 8 heads x 64, p = 1: less than a minute."""
    if setup.device.type == "cuda":
        yield from table(setup, choice)
    else:
        lengths = choice.tokens or (512, 1024, 2048)
        mechanisms = choice.named("relu", "softplus")
        yield from _lengths(setup, choice, lengths, 8, 64, mechanisms, in_all=FEW_IN_ALL)


def table(setup: Setup, choice: Choice) -> Iterator[Row]:
    """16k tokens in all, 32 heads x 64, every mechanism; FlexAttention at 4,096 only."""
    lengths, mechanisms = choice.tokens or (1024, 4096, 16384), choice.named(*EVERY)
    flex = choice.compiled_at(lengths)
    yield from _lengths(setup, choice, lengths, 32, 64, mechanisms, flex=flex)


def heads128(setup: Setup, choice: Choice) -> Iterator[Row]:
    """16k tokens in all, 16 heads x 128; FlexAttention at 4,096 only."""
    lengths, mechanisms = choice.tokens or (1024, 4096, 16384), choice.named("relu", "softplus")
    flex = choice.compiled_at(lengths)
    yield from _lengths(setup, choice, lengths, 16, 128, mechanisms, flex=flex)


def decoding(setup: Setup, choice: Choice) -> Iterator[Row]:
    """A new token for each of 1, 8 and 64 sequences of 32k tokens, 32 heads x 64."""
    for tokens in choice.tokens or (32768,):
        for batch in (choice.batch,) if choice.batch else (1, 8, 64):
            case = choice.case(setup, batch, 32, tokens, 64, causal=True)
            mechanisms = choice.named("relu", "softplus")
            yield from decode.compare(setup, case, mechanisms, flex=choice.flex)


def long(setup: Setup, choice: Choice) -> Iterator[Row]:
    """One sequence of 128k tokens, 32 heads x 64, causal."""
    mechanisms = choice.named("relu", "softplus", "relu-d32-p4-gain")
    for tokens in choice.tokens or (131072,):
        case = choice.case(setup, 1, 32, tokens, 64, causal=True)
        yield from _no_flex(setup, choice, case)
        yield from attention.compare(setup, case, mechanisms)


def training(setup: Setup, choice: Choice) -> Iterator[Row]:
    """A step of a 12-layer, d_model 768 language model with 8,192 words, 16k tokens in all."""
    for tokens in choice.tokens or (4096,):
        case = choice.case(setup, max(1, IN_ALL // tokens), 12, tokens, 64, causal=True)
        yield from _no_flex(setup, choice, case)
        yield from step.compare(setup, case, choice.named("relu", "softplus"))


def everything(setup: Setup, choice: Choice) -> Iterator[Row]:
    """table, heads128, decode, long and step."""
    for name in ("table", "heads128", "decode", "long", "step"):
        yield from SETS[name](replace(setup, set=name), choice)


SETS: dict[str, Callable[[Setup, Choice], Iterator[Row]]] = {
    "quick": quick,
    "table": table,
    "heads128": heads128,
    "decode": decoding,
    "long": long,
    "step": training,
    "all": everything,
}


def _no_flex(setup: Setup, choice: Choice, case: Case) -> Iterator[Row]:
    """Says that FlexAttention takes no part, to those who expect it."""
    if choice.flex:
        why = f"not timed in the set {setup.set}"
        yield setup.absent(case, "flex", "flex", "left out", why)


def _lengths(
    setup: Setup,
    choice: Choice,
    lengths: tuple[int, ...],
    heads: int,
    d_h: int,
    mechanisms: dict[str, Oscillator],
    *,
    in_all: int = IN_ALL,
    flex: tuple[int, ...] = (),
) -> Iterator[Row]:
    for tokens in lengths:
        for causal in (True, False):
            case = choice.case(setup, max(1, in_all // tokens), heads, tokens, d_h, causal)
            yield from attention.compare(setup, case, mechanisms, flex=tokens in flex)
