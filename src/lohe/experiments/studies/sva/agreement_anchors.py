"""Are the trained anchors spread over the circle (Sec. 4.1, prose)?"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np
import torch
from torch import Tensor, nn

from lohe.experiments.evidence import Evidence
from lohe.experiments.item import Figure, Item
from lohe.experiments.measures import Bench, Measure, Taken, on_seeds
from lohe.experiments.setting import Setting
from lohe.experiments.store.records import Record
from lohe.experiments.studies.sva.agreement_cohort import (
    NO_RECORDS,
    OSCILLATORS,
    READINGS,
    kind,
    none_yet,
    undecided,
)
from lohe.experiments.tables import Table
from lohe.experiments.verdicts import Claim, Line, bound, significant
from lohe.measure.circular import rayleigh, resultant
from lohe.models import attention_layers
from lohe.tasks import sva
from lohe.train import Run

SEEDS = 50


@dataclass(frozen=True)
class AnchorAngles:
    """Angles of the anchors of the nine positions that sentences use, at the start and trained."""

    run: Run

    def take(self, bench: Bench) -> Taken:
        data = bench.data(self.run)
        # the generator that the run's parameters were drawn from
        start = self.run.model.build(data, torch.Generator().manual_seed(self.run.seed))
        first, last = _anchors(start), _anchors(bench.model(self.run))
        turn = torch.remainder(_angles(last) - _angles(first) + torch.pi, 2 * torch.pi) - torch.pi
        result = {"mean_turn": turn.abs().mean().item()}
        angles = {"start": _angles(first), "trained": _angles(last)}
        for name, values in angles.items():
            result[f"{name}.resultant"] = resultant(values.tolist())
            result[f"{name}.p"] = rayleigh(values.tolist())
        return Taken(result, [{name: _rounded(values) for name, values in angles.items()}])


def _anchors(model: nn.Module) -> Tensor:
    """(positions, 2): one layer, one head."""
    (layer,) = attention_layers(model)
    (anchors,) = layer.get_parameter("anchors").detach().double().cpu()
    return anchors[: sva.LENGTH]


def _angles(anchors: Tensor) -> Tensor:
    return torch.atan2(anchors[:, 1], anchors[:, 0])


def _rounded(angles: Tensor) -> list[float]:
    return [round(x, 4) for x in angles.tolist()]


def measures(setting: Setting) -> list[Measure]:
    """Both readings, every seed."""
    seeds = setting.seeds(SEEDS, smoke=2)
    return [m for one in _each(setting).values() for m in on_seeds(one, seeds)]


def _each(setting: Setting) -> dict[str, AnchorAngles]:
    return {name: AnchorAngles(setting.agreement(m)) for name, m in OSCILLATORS.items()}


def measured(evidence: Evidence) -> dict[str, list[Record]]:
    """What was found of each reading, in order of seed."""
    return {
        name: [r for r in evidence.measured_seeds(one) if r.seed < SEEDS]
        for name, one in _each(evidence.setting).items()
    }


def _rejections(records: Sequence[Record], when: str) -> int:
    return sum(significant(r.result[f"{when}.p"]) for r in records)


def table_of_anchors(evidence: Evidence) -> Table:
    """Resultant length and Rayleigh's test, at the start and trained."""
    rows = [
        (
            name,
            when,
            str(len(records)),
            f"{fmean(r.result[f'{when}.resultant'] for r in records):.2f}",
            f"{_rejections(records, when)}/{len(records)}",
        )
        for name, records in measured(evidence).items()
        for when in ("start", "trained")
        if records
    ]
    notes = [
        "Resultant: length of the mean direction of the nine anchors, 0 balanced, 1 all the same; "
        "nine uniform directions have 0.30 on average.",
        "Anchors start uniform: a smaller resultant afterwards says that training spread them.",
    ]
    for name, records in measured(evidence).items():
        if records:
            turn = np.degrees(fmean(r.result["mean_turn"] for r in records))
            notes.append(f"{name}: training turns an anchor by {turn:.0f}° on average.")
    notes += none_yet(evidence, "claim-sva-anchors", rows)
    columns = ("mechanism", "anchors", "seeds", "resultant", "not uniform")
    return Table("Anchors on the circle", columns, rows, notes)


def lines_of_anchors(evidence: Evidence) -> list[Line]:
    """Spread broadly, says the paper."""
    return [
        _line(reading, found)
        for reading, found in zip(READINGS, measured(evidence).values(), strict=True)
    ]


def _line(reading: str, records: Sequence[Record]) -> Line:
    claim = undecided("sva-anchors")
    shown = ""
    if records:
        rejected = _rejections(records, "trained")
        shown = f"not uniform in {rejected} of {len(records)} seeds"
        said = f"Rayleigh p < 0.05 in {rejected} of {len(records)} seeds, at the start in "
        said += str(_rejections(records, "start"))
        claim = Claim("sva-anchors", rejected <= bound("sva-anchors") * len(records), said)
    value = "not reported" if records else NO_RECORDS
    return Line("trained anchors", "spread broadly", shown, value, claim, reading)


def figure_of_anchors(evidence: Evidence) -> Figure:
    """The nine angles of every seed."""
    import matplotlib.pyplot as plt

    from lohe.viz import circles, rates, style

    found = {name: records for name, records in measured(evidence).items() if records}
    rows = max(len(found), 1)
    figure, axes = plt.subplots(
        rows, 1, figsize=(8.0, 2.7 * rows), sharex=True, layout="constrained", squeeze=False
    )
    for ax, (name, records) in zip(axes[:, 0], found.items(), strict=False):
        seeds = [record.seed for record in records]
        start, trained = (
            np.array([r.curve[0][when] for r in records]) for when in ("start", "trained")
        )
        odd = np.array([significant(r.result["trained.p"]) for r in records])
        label = f"trained, {kind(name)[1]}"
        circles.angles(ax, seeds, start, trained, odd, rates.color(name), label)
        ax.set_title(name)
    axes[-1, 0].set_xlabel("seed")
    if found:
        style.legend_below(figure, ncols=4)
    else:
        axes[0, 0].set_title(NO_RECORDS)
    return figure


ITEMS: dict[str, Item] = {
    "claim-sva-anchors": Item(
        title="Trained anchors spread over the circle",
        measures=measures,
        table=table_of_anchors,
        figure=figure_of_anchors,
        lines=lines_of_anchors,
    ),
}
