"""The named sets: which cases, which mechanisms."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from lohe.bench import attention, decode, step
from lohe.bench.contest import Setup
from lohe.bench.rows import Row
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
    """What the caller wants otherwise: lengths, mechanisms, FlexAttention or not."""

    tokens: tuple[int, ...] = ()
    mechanisms: tuple[str, ...] = ()
    flex: bool = True

    def named(self, *default: str) -> dict[str, Oscillator]:
        return {name: MECHANISMS[name] for name in self.mechanisms or default}


def quick(setup: Setup, choice: Choice) -> Iterator[Row]:
    """`table` on CUDA; elsewhere 2,048 tokens in all, 8 heads x 64, p = 1: less than a minute."""
    if setup.device.type == "cuda":
        yield from table(setup, choice)
    else:
        lengths = choice.tokens or (512, 1024, 2048)
        mechanisms = choice.named("relu", "softplus")
        yield from _lengths(setup, lengths, 8, 64, mechanisms, in_all=FEW_IN_ALL)


def table(setup: Setup, choice: Choice) -> Iterator[Row]:
    """16k tokens in all, 32 heads x 64, every mechanism; FlexAttention at 4,096 only."""
    lengths = choice.tokens or (1024, 4096, 16384)
    flex = lengths if choice.tokens else (4096,)
    yield from _lengths(
        setup, lengths, 32, 64, choice.named(*EVERY), flex=flex if choice.flex else ()
    )


def heads128(setup: Setup, choice: Choice) -> Iterator[Row]:
    """16k tokens in all, 16 heads x 128."""
    lengths = choice.tokens or (1024, 4096, 16384)
    yield from _lengths(setup, lengths, 16, 128, choice.named("relu", "softplus"))


def decoding(setup: Setup, choice: Choice) -> Iterator[Row]:
    """A new token for each of 1, 8 and 64 sequences of 32k tokens, 32 heads x 64."""
    for tokens in choice.tokens or (32768,):
        for batch in (1, 8, 64):
            case = setup.case(batch, 32, tokens, 64, causal=True)
            mechanisms = choice.named("relu", "softplus")
            yield from decode.compare(setup, case, mechanisms, flex=choice.flex)


def long(setup: Setup, choice: Choice) -> Iterator[Row]:
    """One sequence of 128k tokens, 32 heads x 64, causal."""
    mechanisms = choice.named("relu", "softplus", "relu-d32-p4-gain")
    for tokens in choice.tokens or (131072,):
        yield from attention.compare(setup, setup.case(1, 32, tokens, 64, True), mechanisms)


def training(setup: Setup, choice: Choice) -> Iterator[Row]:
    """A step of a 12-layer, d_model 768 language model with 8,192 words, 16k tokens in all."""
    for tokens in choice.tokens or (4096,):
        case = setup.case(max(1, IN_ALL // tokens), 12, tokens, 64, causal=True)
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


def _lengths(
    setup: Setup,
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
            case = setup.case(max(1, in_all // tokens), heads, tokens, d_h, causal)
            yield from attention.compare(setup, case, mechanisms, flex=tokens in flex)
