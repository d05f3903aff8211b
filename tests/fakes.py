"""Items, measures and records that are made up: the frame must work for any."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

import short_sva
from lohe.experiments.evidence import Evidence
from lohe.experiments.item import Item
from lohe.experiments.measures import Bench, Taken
from lohe.experiments.setting import Setting
from lohe.experiments.store.records import Record
from lohe.experiments.tables import Table
from lohe.experiments.verdicts import Agreement, Claim, Estimate, Line
from lohe.models import Oscillator, Softmax
from lohe.train import Run

SAME, APART = Estimate(0.1, 0.1, 8, 5, 0.01), Estimate(4.0, 0.1, 8, 5, 0.01)
UNCLEAR = Estimate(0.9, 1.0, 8, 5, 1.0)


@dataclass(frozen=True)
class Tosses:
    """Mathematics: how often heads?"""

    tosses: int = 100
    run: Run | None = None

    def take(self, bench: Bench) -> Taken:
        rng = torch.Generator().manual_seed(3)
        heads = torch.rand(self.tosses, generator=rng) < 0.5
        return Taken({"heads": heads.double().mean().item()}, [{"first": heads[:3].tolist()}])


@dataclass(frozen=True)
class Size:
    """Of a trained model: mean size of its parameters, and its loss on a few sentences."""

    run: Run
    examples: int = 10

    def take(self, bench: Bench) -> Taken:
        model, data = bench.model(self.run), bench.data(self.run)
        batch = data.valid.take(slice(self.examples)).take(slice(None))
        with torch.no_grad():
            loss = self.run.task.loss(model(**batch.inputs), batch.targets)
        sizes = torch.cat([p.detach().abs().flatten() for p in model.parameters()])
        return Taken({"size": sizes.mean().item(), "loss": loss.item()})


def run(seed: int = 0, attention=None) -> Run:
    """A second of training."""
    return short_sva.run(attention or Softmax(), seed=seed, d_model=8, d_ff=8)


def record(of: Run, wall_seconds: float = 30.0, device: str = "cpu (x)", **result: float) -> Record:
    return Record(
        recipe=of.recipe(),
        seed=of.seed,
        code_version="0.0.1",
        data_checksum="ab" * 32,
        environment={"device": device, "torch": "2.99", "python": "3.11", "when": "2026-01-02"},
        result=result,
        wall_seconds=wall_seconds,
        curve=[],
    )


def lines(evidence: Evidence) -> list[Line]:
    """Every verdict once, and a claim in two readings."""
    return [
        Line("same", "1.0", "1.1", Agreement(SAME, 1.0)),
        Line("apart", "1.0", "5.0", Agreement(APART, 1.0), note="why <b>not</b>"),
        Line("unclear", "1.0", "1.9", Agreement(UNCLEAR, 1.0)),
        Line("other corpus", "99.0", "96.1", "not comparable"),
        Line("not yet", "3", "", "no records"),
        Line(
            "failures",
            "3/50, 12/50",
            "5/200, 58/200",
            claim=Claim("sva-failures", True, "5/200 against 58/200, p = 3e-14", 3e-14),
            reading="as published",
        ),
        Line(
            "failures",
            "",
            "60/200, 58/200",
            claim=Claim("sva-failures", False, "60/200 against 58/200, p = 0.9", 0.9),
            reading="as defined",
        ),
        Line("trend", "falls", "", "no records", Claim("lm-trend", None, "")),
        Line("parity", "", "1 seed", claim=Claim("kws-parity", None, "one seed only")),
    ]


def table(evidence: Evidence) -> Table:
    return Table(
        f"A table at {evidence.setting.scale}",
        ("mechanism", "accuracy %"),
        [("softmax", "91.04 ± 8.32"), ("oscillator & more", "95.78 ± 6.82")],
        ["What a number is <and> is not."],
    )


def figure(evidence: Evidence):
    import matplotlib.pyplot as plt

    drawn, ax = plt.subplots(figsize=(6, 3.5))
    ax.plot([2, 4, 8], [3.0, 2.0, 1.5], "o-", label="ours")
    ax.set_xlabel("d_osc")
    ax.legend()
    return drawn


def items(runs: Callable[[Setting], list[Run]] = lambda setting: []) -> dict[str, Item]:
    """A table with everything, a figure that shares its runs, a statement without any."""
    return {
        "table2": Item(
            title="Table 2. Something & more", lines=lines, runs=runs, table=table, figure=figure
        ),
        "figure6": Item(
            title="Figure 6. A curve",
            # the same finding again: a headline shows it once
            lines=lambda evidence: lines(evidence)[5:6],
            runs=runs,
            measures=lambda setting: [Tosses()],
            figure=figure,
        ),
        "claim-budget": Item(title="A statement", lines=lambda evidence: [], table=table),
    }


def two_mechanisms(setting: Setting) -> list[Run]:
    """Agreement at any scale, three seeds of each."""
    return [
        replace(setting.agreement(mechanism), seed=seed)
        for mechanism in (Softmax(), Oscillator())
        for seed in range(3)
    ]
