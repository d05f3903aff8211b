"""The rank that trained attention uses, before and after the causal mask (Appendix E)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lohe.attention import OscillatorAttention
from lohe.experiments.evidence import Evidence
from lohe.experiments.measures import Bench, Taken
from lohe.experiments.setting import Setting
from lohe.experiments.studies.lm.perplexity import oscillator, run
from lohe.experiments.studies.rank import cohort
from lohe.experiments.studies.rank.cohort import DIMENSIONS, batches, is_word, on_cores
from lohe.measure.rank import effective_rank, rank
from lohe.models import Mechanism, attention_layers, attention_weights
from lohe.ops import reference
from lohe.train import Run

Matrices = Float[Tensor, "chunks layers heads i j"]


@dataclass(frozen=True)
class EffectiveRank:
    """Effective ranks of a trained model's matrices, over chunks, layers and heads.

    attention    a_ij, causal
    similarity   S = 11ᵀ + Z Rᵀ over all pairs, before mask and clamp: of rank d_osc + 1 at most
    sharpened    its entrywise power S^∘p, where the readout has a whole p > 1
    readout      max(0, S)^∘p, where a gain or free anchors let the clamp act, or p is learned

    With a gain γ, S = 11ᵀ + γ Z Rᵀ. The rank of a sharpened readout is not d_osc + 1: that of S^∘p
    is `theory.readout_rank_bound` at most, and where p is real or the clamp acts, nothing but the
    number of tokens bounds it.

    Each with mean, population standard deviation, and the largest rank there was; and the share of
    pairs that the clamp cuts, of those that the causal mask leaves. Matrices are cut
    to the words of a chunk. The published measurement gave the model the last token of a chunk
    too, and with it an anchor that was never trained; here the model sees what it was trained on.
    """

    run: Run
    chunks: int = 128

    @torch.no_grad()
    def take(self, bench: Bench) -> Taken:
        model = bench.model(self.run).double()  # the rank is a matter of small singular values
        spectra: dict[str, list[Tensor]] = {}
        words = pairs = cut = 0
        for part in batches(bench.data(self.run).valid, self.chunks, bench.device):
            tokens = part.inputs["tokens"]
            words += int(is_word(tokens).sum())
            found = matrices(model, tokens)
            if "similarity" in found:
                seen = found["similarity"].tril()
                pairs, cut = pairs + int((seen != 0).sum()), cut + int((seen < 0).sum())
            for name, x in found.items():
                spectra.setdefault(name, []).append(on_cores(torch.linalg.svdvals, x))
        whole = {name: torch.cat(parts) for name, parts in spectra.items()}
        clamped = {"clamped": cut / pairs} if pairs else {}
        return Taken(_summary(whole, words) | clamped, _by_head(whole))


def matrices(model: nn.Module, tokens: Int[Tensor, "chunks tokens"]) -> dict[str, Matrices]:
    """The matrices by name, zero where a chunk has no words any more."""
    word = is_word(tokens)[:, None, None, :]
    pairs = word[..., :, None] & word[..., None, :]
    found = {"attention": torch.stack(attention_weights(model, tokens=tokens), dim=1)}
    if similar := similarities(model, tokens):
        found["similarity"] = torch.stack(similar, dim=1)
        found |= powers(found["similarity"], attention_layers(model))
    return {name: x * pairs for name, x in found.items()}


def powers(similarity: Matrices, layers: Sequence[Any]) -> dict[str, Matrices]:
    """S^∘p and max(0, S)^∘p, each where it says something that S does not."""
    first = layers[0]
    learned = first.log_excess is not None
    found: dict[str, Matrices] = {}
    if learned:
        p = torch.stack([layer.sharpness for layer in layers])[..., None, None]
    else:
        p = first.sharpness
        if p != 1 and float(p).is_integer():
            found["sharpened"] = similarity**p
    acts = first.gain is not None or not first.unit_anchors
    if learned or acts or not float(p).is_integer():
        found["readout"] = similarity.clamp(min=0) ** p
    return found


def similarities(
    model: nn.Module, tokens: Int[Tensor, "chunks tokens"]
) -> list[Float[Tensor, "chunks heads i j"]]:
    """S = 11ᵀ + Z Rᵀ of each oscillator layer, as it is before the clamp and the mask of Eq. 5."""
    found: list[Tensor] = []

    def look(layer: OscillatorAttention, args: tuple[Tensor], output: Any) -> None:
        (x,) = args
        f, g, _ = layer.front_end(x, x, x)
        p = layer.problem(f, g, None)
        found.append(reference.similarity(layer.oscillators(p), p.anchors, p.gain))

    layers = [x for x in attention_layers(model) if isinstance(x, OscillatorAttention)]
    hooks = [layer.register_forward_hook(look) for layer in layers]
    try:
        model(tokens=tokens)
    finally:
        for hook in hooks:
            hook.remove()
    return found


def _summary(
    spectra: dict[str, Float[Tensor, "chunks layers heads k"]], words: int
) -> dict[str, float]:
    attention = spectra["attention"]
    result: dict[str, float] = {
        "matrices": attention[..., 0].numel(),
        "tokens": words / len(attention),
    }
    for name, spectrum in spectra.items():
        effective = effective_rank(spectrum)
        result[f"{name}.mean"] = effective.mean().item()
        result[f"{name}.std"] = effective.std(correction=0).item()
        result[f"{name}.rank"] = int(rank(spectrum).max())
    return result


def _by_head(
    spectra: dict[str, Float[Tensor, "chunks layers heads k"]],
) -> list[dict[str, Any]]:
    """Mean effective rank of each head."""
    means = {name: effective_rank(spectrum).mean(dim=0) for name, spectrum in spectra.items()}
    layers, heads = means["attention"].shape
    return [
        {"layer": layer, "head": head}
        | {name: round(x[layer, head].item(), 4) for name, x in means.items()}
        for layer in range(layers)
        for head in range(heads)
    ]


def of(setting: Setting, corpus: str, mechanism: Mechanism) -> EffectiveRank:
    """The measurement on the model of seed 0."""
    return EffectiveRank(run(setting, corpus, mechanism), cohort.chunks(setting))


def found(evidence: Evidence, corpus: str, mechanism: Mechanism) -> dict[str, float]:
    """What was measured; empty where nothing was yet."""
    record = evidence.measured(of(evidence.setting, corpus, mechanism))
    return record.result if record else {}


def by_dimension(
    evidence: Evidence, corpus: str, reading: str, name: str
) -> dict[int, float | None]:
    """One number, e.g. "similarity.mean", of the oscillators of each d_osc."""
    return {d: found(evidence, corpus, oscillator(reading, d)).get(name) for d in DIMENSIONS}
