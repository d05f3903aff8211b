"""One sentence, continued by oscillators: Figure 5, with the states that were there."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from lohe import sphere
from lohe.dynamics import flow
from lohe.experiments.evidence import Evidence
from lohe.experiments.item import Figure, Item
from lohe.experiments.measures import Bench, Measure, Taken
from lohe.experiments.reported import published
from lohe.experiments.setting import READINGS, Setting
from lohe.experiments.store.records import Record
from lohe.experiments.studies.lm.perplexity import name
from lohe.experiments.studies.robust.observed import Seen, observe
from lohe.experiments.tables import Table
from lohe.experiments.verdicts import Claim, Line
from lohe.models import attention_weights
from lohe.tasks.language import BOS, PAD, UNK, word_ids
from lohe.tasks.tinystories import tokenize
from lohe.train import Run

PROMPT = "Once upon a time there was a little girl"
WORD = "named"
NEXT = 8  # words that are kept, the most probable first
E_FOLDS = 6.0  # ‖h‖t at the end of a path: within 0.3 degrees of rest from the side
STEPS = 30
STARTS = 3
NEVER = (PAD, BOS, UNK)  # as published; a story may end


@dataclass(frozen=True)
class Continuation:
    """What a language model with d_osc = 2 makes of a prompt, and where its oscillators are.

    Of the last layer: attention (mean over heads, BOS left out as published), and for each head
    anchors and settled states of every token; of the last token couplings, and the exact flow of
    its oscillator from random starts.
    """

    run: Run
    prompt: str = PROMPT

    @torch.no_grad()
    def take(self, bench: Bench) -> Taken:
        names, model = bench.data(self.run).names, bench.model(self.run)
        ids = word_ids(names)
        words = tokenize(self.prompt)
        tokens = torch.tensor([[BOS, *(ids.get(w, UNK) for w in words)]], device=bench.device)
        logits, layers = observe(model, tokens=tokens)
        chances = next_word(logits[0, -1]).cpu()
        best = chances.topk(min(NEXT, len(chances)))
        weights = attention_weights(model, tokens=tokens)[-1][0].mean(dim=0)[1:, 1:]
        result = {
            "probability": best.values[0].item(),
            "of_word": chances[ids[WORD]].item() if WORD in ids else math.nan,
            "unknown": sum(w not in ids for w in words),
        }
        curve = [
            {
                "words": [w if w in ids else names[UNK] for w in words],
                "next": [names[k] for k in best.indices.tolist()],
                "probabilities": short(best.values),
                "attention": short(weights),
            }
        ]
        return Taken(result, curve + heads(layers[-1]))


def next_word(logits: Float[Tensor, " words"]) -> Float[Tensor, " words"]:
    """Probabilities of the next word, at temperature 1."""
    barred = logits.clone()
    barred[list(NEVER)] = -torch.inf
    return barred.softmax(dim=-1)


def heads(layer: Seen) -> list[dict[str, Any]]:
    """Angles on the circle, radians: anchors and states of each token, paths of the last."""
    h = layer.drive[0, :, -1].double().cpu()  # (heads, 2)
    rng = torch.Generator().manual_seed(0)
    z0 = sphere.uniform(STARTS, len(h), 1, 2, generator=rng, dtype=torch.float64)
    e_folds = torch.linspace(0, E_FOLDS, STEPS, dtype=torch.float64)
    time = e_folds / h.norm(dim=-1, keepdim=True)  # (heads, times)
    paths = flow(z0, h[:, None], time)  # (starts, heads, times, 2)
    return [
        {
            "head": k,
            "anchors": short(phase(layer.anchors[k])),
            "lengths": short(layer.anchors[k].norm(dim=-1)),
            "states": short(phase(layer.oscillators[0, k])),
            "couplings": short(layer.couplings[0, k, -1]),
            "drive": h[k].norm().item(),
            "paths": short(phase(paths[:, k])),
        }
        for k in range(len(h))
    ]


def phase(z: Float[Tensor, "*batch 2"]) -> Float[Tensor, "*batch"]:
    return torch.atan2(z[..., 1], z[..., 0])


def short(x: Float[Tensor, "..."]) -> Any:
    """Nested lists with five digits: for looking at."""
    return np.vectorize(lambda v: float(f"{v:.5g}"))(x.double().cpu().numpy()).tolist()


def run(setting: Setting, reading: str) -> Run:
    """The TinyStories model with oscillators on the circle."""
    return setting.tinystories(READINGS[reading])


def measures(setting: Setting) -> list[Measure]:
    return [Continuation(run(setting, reading)) for reading in READINGS]


def table(evidence: Evidence) -> Table:
    """The most probable next words, ours in both readings."""
    paper = published("figure5")
    rows = [("paper", "", f"{paper['word']} {paper['percent']} %")]
    for reading in READINGS:
        if record := _taken(evidence, reading):
            first = record.curve[0]
            pairs = zip(first["next"][:5], first["probabilities"][:5], strict=True)
            said = ", ".join(f"{word} {100 * p:.2g} %" for word, p in pairs)
            rows.append((f"ours, {reading}", _share(record), said))
    notes = [f"“{paper['prompt']} ...”; PAD, BOS and UNK are never chosen."]
    if len(rows) == 1:
        notes.append(evidence.setting.none_yet("figure5"))
    columns = ("model", f"of `{WORD}`", "next word")
    return Table("Figure 5. A sentence continued", columns, rows, notes)


def lines(evidence: Evidence) -> list[Line]:
    """The word, by the claim; its probability, of another model on another corpus."""
    found = []
    paper = published("figure5")
    for reading in READINGS:
        corpus = name(evidence.setting, "tinystories")
        what, percent = f"{corpus}, next word", f"{paper['percent']} %"
        record = _taken(evidence, reading)
        if record is None:
            claim = Claim("demo-word", None, "no records")
            found.append(Line(what, WORD, "no records", "no records", claim, reading))
            share = f"{corpus}, of `{WORD}`"
            found.append(Line(share, percent, "no records", "no records", reading=reading))
            continue
        word, unknown = record.curve[0]["next"][0], int(record.result["unknown"])
        said = f"`{word}`, {100 * record.result['probability']:.3g} %"
        said += f"; {unknown} words of the prompt are unknown" if unknown else ""
        claim = Claim("demo-word", word == WORD, said)
        found.append(Line(what, WORD, word, "not comparable", claim, reading))
        note = "the published model is of an older set, perplexity 10.56"
        found.append(
            Line(
                f"{corpus}, of `{WORD}`",
                percent,
                _share(record),
                "not comparable",
                reading=reading,
                note=note,
            )
        )
    return found


def figure_5(evidence: Evidence) -> Figure:
    """Figure 5 (fig:demo): oscillators of a sentence, its attention, and the next word."""
    import matplotlib.pyplot as plt

    from lohe.viz import sentence

    record = _taken(evidence, "as published")
    drawn = plt.figure(figsize=(11.5, 6.4), layout="constrained")
    if record is None:
        drawn.text(0.5, 0.5, "no records: lohe run figure5", ha="center")
        return drawn
    first, circles = record.curve[0], record.curve[1:]
    left, right = drawn.subfigures(1, 2, squeeze=False, width_ratios=(1.25, 1))[0]
    columns = math.ceil(math.sqrt(len(circles)))
    axes = left.subplots(math.ceil(len(circles) / columns), columns, squeeze=False).ravel()
    for ax in axes:
        ax.axis("off")
    for ax, head in zip(axes, circles, strict=False):
        sentence.circle(
            ax,
            anchors=np.array(head["anchors"]),
            lengths=np.array(head["lengths"]),
            states=np.array(head["states"]),
            couplings=np.array(head["couplings"]),
            paths=np.array(head["paths"]),
            e_folds=E_FOLDS,
        )
        ax.set_title(f"head {head['head'] + 1}, ‖h‖ = {head['drive']:.3g}")
    left.legend(
        *axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize=8
    )
    top, bottom = right.subplots(2, 1, height_ratios=(1.7, 1))
    sentence.heat(top, np.array(first["attention"]), first["words"])
    sentence.bars(bottom, first["next"], np.array(first["probabilities"]))
    return drawn


def _share(record: Record) -> str:
    """Probability of the published word; a vocabulary may not have it."""
    share = record.result["of_word"]
    return "unknown" if math.isnan(share) else f"{100 * share:.3g} %"


def _taken(evidence: Evidence, reading: str) -> Record | None:
    return evidence.measured(Continuation(run(evidence.setting, reading)))


ITEMS = {
    "figure5": Item(
        title="Figure 5. A sentence continued",
        measures=measures,
        table=table,
        figure=figure_5,
        lines=lines,
    ),
}
