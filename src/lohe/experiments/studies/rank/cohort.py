"""The language models that Figures 9 and 10 look at: two corpora, two readings of the anchors.

The paper measures on TinyStories; here WikiText-2 comes first, since it is there in full.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from math import isfinite
from typing import TypeVar

import torch
from torch import Tensor

from lohe.experiments.evidence import Evidence
from lohe.experiments.setting import READINGS, Setting
from lohe.experiments.studies.lm import perplexity
from lohe.experiments.studies.lm.perplexity import oscillator
from lohe.experiments.verdicts import Agreement, Claim, Line, Verdict, exactly, margin
from lohe.models import Mechanism, Softmax
from lohe.tasks import Split
from lohe.tasks.language import PAD

T = TypeVar("T")

SEEDS = 5
DIMENSIONS = (2, 4, 8, 16)  # those of which the paper measures rank and entropy
SHARPENED = [(d, p) for d in (2, 8) for p in (2, 4)]  # Table 5's
BATCH = 16  # chunks at once, so that logits in float64 fit


def mechanisms(
    dimensions: Sequence[int] = DIMENSIONS,
) -> Iterator[tuple[str, str, Mechanism]]:
    """Softmax and oscillators with p = 1: name, reading, and what is trained."""
    yield "softmax", "", Softmax()
    for reading in READINGS:
        for d in dimensions:
            yield f"d_osc = {d}", reading, oscillator(reading, d)


def measured(setting: Setting) -> list[Mechanism]:
    """Those of Figure 10's and Figure 9's measurements: `mechanisms`, and sharpened oscillators."""
    found = [mechanism for _, _, mechanism in mechanisms(few(setting, DIMENSIONS))]
    sharper = few(setting, SHARPENED)
    return found + [oscillator(reading, d, p) for reading in READINGS for d, p in sharper]


def few(setting: Setting, things: Sequence[T]) -> Sequence[T]:
    """All of them; at smoke scale, which only goes through everything, the first two."""
    return things[:2] if setting.scale == "smoke" else things


def chunks(setting: Setting) -> int:
    """How many chunks of the validation split rank and entropy are measured on."""
    return 4 if setting.scale == "smoke" else 128


def perplexities(evidence: Evidence, corpus: str, mechanism: Mechanism) -> list[float]:
    """Of the selected epoch, of every seed that is recorded and did not diverge."""
    return [x for x in perplexity.perplexities(evidence, corpus, mechanism) if isfinite(x)]


def batches(
    split: Split, chunks: int | None, device: torch.device, size: int = BATCH
) -> Iterator[Split]:
    """The first chunks of a split, a few at a time, on the device."""
    end = len(split) if chunks is None else min(chunks, len(split))
    for n in range(0, end, size):
        yield split.take(slice(n, min(n + size, end))).to(device)


def on_cores(function: Callable[[Tensor], Tensor], matrices: Tensor) -> Tensor:
    """function(matrices), the batch split among the cores.

    For decompositions: of matrices larger than 32 torch 2.11 decomposes one after the other also on
    a GPU, and there each takes longer than by LAPACK.
    """
    parts = matrices.cpu().chunk(torch.get_num_threads())
    with ThreadPoolExecutor(len(parts)) as pool:
        return torch.cat(list(pool.map(function, parts)))


def is_word(tokens: Tensor) -> Tensor:
    """Which inputs are no padding, (chunks, tokens); padding comes last."""
    return tokens != PAD


def one_model(
    evidence: Evidence, difference: float | None, margin_name: str
) -> Agreement | Verdict:
    """The verdict where both sides are one trained model, without a spread over seeds."""
    if difference is None:
        return "no records"
    if not evidence.setting.corpora.published:
        return "not comparable"
    return Agreement(exactly(difference), margin(margin_name))


def called(evidence: Evidence, corpus: str) -> str:
    """The corpus in a line: a small TinyStories is called a trend."""
    return perplexity.name(evidence.setting, corpus)


def known(values: Mapping[int, float | None]) -> dict[int, float] | None:
    """All of the values, or None where one is missing or makes no sense."""
    found = {d: x for d, x in values.items() if x is not None and isfinite(x)}
    return found if len(found) == len(values) else None


def undecided(what: str, paper: str, claim: str, reading: str) -> Line:
    """The line of a claim for which there are no records yet."""
    return Line(what, paper, "", "no records", Claim(claim, None, "records are missing"), reading)


def listed(values: Iterable[float], digits: int = 2) -> str:
    """2.31, 3.95: numbers in a row of text."""
    return ", ".join(f"{x:.{digits}f}" for x in values)
