"""Anchors and padding, each alone: what makes the two readings differ (D1, D3)?"""

from collections.abc import Mapping

from lohe.experiments.evidence import Evidence
from lohe.experiments.item import Item
from lohe.experiments.setting import Setting
from lohe.experiments.studies.sva.agreement_cohort import (
    AS_DEFINED,
    AS_PUBLISHED,
    NO_RECORDS,
    SEEDS,
    Cohort,
    cohort,
    failures_p,
    none_yet,
    spread,
)
from lohe.experiments.tables import Table
from lohe.experiments.verdicts import Line
from lohe.models import Oscillator
from lohe.train import Run

NAME = "claim-sva-pads"
BOTH = "free anchors, pads read (as published)"
NEITHER = "unit anchors, pads masked (as defined)"
READINGS: Mapping[str, Oscillator] = {
    BOTH: AS_PUBLISHED,
    "free anchors, pads masked": Oscillator(anchors="free"),
    "unit anchors, pads read": Oscillator(pads="as-published"),
    NEITHER: AS_DEFINED,
}


def runs(setting: Setting) -> list[Run]:
    """Both differences, each alone, and neither; as many seeds as the paper has."""
    seeds = setting.seeds(SEEDS, quick=5, smoke=2)
    return [setting.agreement(m, seed) for m in READINGS.values() for seed in seeds]


def cohorts(evidence: Evidence) -> dict[str, Cohort]:
    """Accuracies by reading, of these seeds only."""
    return {
        name: cohort(evidence.records(evidence.setting.agreement(m)), SEEDS)
        for name, m in READINGS.items()
    }


def table(evidence: Evidence) -> Table:
    """Accuracy and failures, the two differences in all four ways."""
    rows = [
        (name, spread(group.overall), spread(group.hard), group.rate)
        for name, group in cohorts(evidence).items()
        if len(group)
    ]
    notes = ["The paper has one reading, and says nothing of padding."]
    columns = ("reading", "overall %", "hard %", "failed")
    return Table(
        "Anchors and padding, each alone", columns, rows, notes + none_yet(evidence, NAME, rows)
    )


def lines(evidence: Evidence) -> list[Line]:
    """Failures beside those of the mechanism as defined."""
    found, ours = [], cohorts(evidence)
    for name, group in ours.items():
        if name == NEITHER:
            continue
        what = f"{name.partition(' (')[0]}, failed seeds"
        if not len(group) or not len(ours[NEITHER]):
            found.append(Line(what, "", NO_RECORDS, "no records"))
            continue
        _, said = failures_p(group, ours[NEITHER])
        found.append(Line(what, "", group.rate, "not reported", note=f"as defined: {said}"))
    return found


ITEMS: dict[str, Item] = {
    NAME: Item(
        title="Anchors and padding, each alone: two readings taken apart",
        runs=runs,
        table=table,
        lines=lines,
    ),
}
