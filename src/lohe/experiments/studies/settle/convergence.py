"""Do the oscillators settle in time? Table 6, Figure 7 and Section 4.4's statements.

The published values are of an older TinyStories model set whose recipe is not known (D12): they are
not comparable, the statements are. One trained model each, the first seed, as published.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np

from lohe.experiments.evidence import Evidence
from lohe.experiments.item import Figure, Item
from lohe.experiments.measures import Measure
from lohe.experiments.reported import published
from lohe.experiments.setting import Setting
from lohe.experiments.studies.robust.subjects import ONE_READING
from lohe.experiments.studies.settle import inference_modes, integrators, sequential
from lohe.experiments.studies.settle.drives import AS_DEFINED, AS_PUBLISHED, COHORTS, Cohort
from lohe.experiments.studies.settle.settling import DEGREES, HORIZON, HORIZONS, Settled, Settling
from lohe.experiments.tables import Table
from lohe.experiments.verdicts import NO_RECORDS, Claim, Line, bound

D_OSC = (2, 8, 32)
ENOUGH_FROM = 500.0  # claim settle-horizon


def measures(setting: Setting) -> list[Measure]:
    """Every cohort and d_osc."""
    return [settling(setting, cohort, d) for cohort in COHORTS for d in D_OSC]


def settling(setting: Setting, cohort: Cohort, d_osc: int) -> Settling:
    """The published sample. RK45 takes about 0.1 s a solve: many only where the verdict is."""
    run = cohort.run(setting, d_osc)
    if setting.scale == "smoke":
        return Settling(run, chunks=2, starts=2, solves=20)
    return Settling(run, solves=2000 if cohort == AS_PUBLISHED else 500)


def by_model(evidence: Evidence) -> dict[Cohort, dict[int, Settled]]:
    """What was measured, by cohort and d_osc."""
    found: dict[Cohort, dict[int, Settled]] = {cohort: {} for cohort in COHORTS}
    for cohort in COHORTS:
        for d in D_OSC:
            record = evidence.measured(settling(evidence.setting, cohort, d))
            if record is not None:
                found[cohort][d] = Settled(record)
    return found


def table_6(evidence: Evidence) -> Table:
    """Table 6 (tab:convergence): converged at T = 30 by RK45, exact flow and formula."""
    groups = by_model(evidence)
    setting = evidence.setting
    rows = [
        _row(cohort, setting, d, one)
        for cohort, models in groups.items()
        for d, one in models.items()
    ]
    for d, x in published("table6")["d_osc"].items():
        solved, far = f"{100 * x['converged']:.1f}", f"{100 * x['far']:.2f}"
        rows.append(
            ("TinyStories, paper", d, solved, "", "", far, f"{x['mean_error']:.4f}", "", "")
        )
    columns = ("model", "d", "RK45", "flow", "formula", ">0.1", "error", "weak", "antip.")
    notes = [
        "% with an error below 0.01 in the last layer, by RK45 (± standard error as a subsample), "
        "exact flow and formula; % with one above 0.1 and the mean error by the flow. "
        + ONE_READING,
        "weak, antip.: % that are late because even an equatorial start would be (weak drive), or "
        "because theirs is closer to the antipode.",
    ]
    notes += [
        _late_starts(cohort, setting, models[2]) for cohort, models in groups.items() if 2 in models
    ]
    return Table(
        "Table 6. Oscillators that have converged at T = 30",
        columns,
        rows,
        notes if any(groups.values()) else [*notes, setting.none_yet("table6")],
    )


def _row(cohort: Cohort, setting: Setting, d_osc: int, one: Settled) -> tuple[str, ...]:
    row, (solved, se) = one.at(), one.rk45
    return (
        f"{cohort.name(setting)}, {cohort.reading}",
        str(d_osc),
        f"{100 * solved:.1f}±{100 * se:.1f}",
        f"{100 * row['converged']:.2f}",
        f"{100 * row['formula']:.2f}",
        f"{100 * row['far']:.2f}",
        f"{row['mean_error']:.4f}",
        f"{100 * row['weak_drive']:.2f}",
        f"{100 * row['antipodal_start']:.2f}",
    )


def _late_starts(cohort: Cohort, setting: Setting, one: Settled) -> str:
    """The late ones by where they started, ours beside the published counts."""
    theirs = published("table6")["failures"]
    counts = [one.late(f".within_{degrees}") for degrees in DEGREES]
    return (
        f"{cohort.name(setting)}, {cohort.reading}, d_osc = 2: of {one.late()} late trajectories "
        f"{_list(counts)} started within {_list(DEGREES)} degrees of the antipode (paper: of "
        f"{theirs['total']}, {_list(theirs['within_degrees_of_the_antipode'].values())}). "
        f"By layer {_percents(one.layers)} converged."
    )


def table_6_lines(evidence: Evidence) -> list[Line]:
    """Every number of Table 6 in every cohort, and what the paper says of them."""
    lines = []
    for cohort, models in by_model(evidence).items():
        for d, theirs in zip(D_OSC, published("table6")["d_osc"].values(), strict=True):
            row = models[d].at() if d in models else {}
            for name, what in (("converged", "converged at T = 30"), ("far", "error above 0.1")):
                said = f"d_osc = {d}: {what}"
                lines.append(_number(cohort, evidence, said, theirs[name], row.get(name)))
        lines.append(_dimension(cohort, evidence, models))
        lines.append(_both_modes(cohort, evidence, models))
        lines.append(_three_ways(cohort, evidence, models))
        lines.append(_antipodal(cohort, evidence, models.get(2)))
        lines.append(_weak(cohort, evidence, models.get(2)))
    return lines


def _dimension(cohort: Cohort, evidence: Evidence, models: dict[int, Settled]) -> Line:
    fractions = [one.at()["converged"] for one in models.values()]
    growing = _growing(fractions) if len(models) == len(D_OSC) else None
    theirs = [x["converged"] for x in published("table6")["d_osc"].values()]
    claim = Claim("settle-dimension", growing, _percents(fractions, 2) or NO_RECORDS)
    return _claim(cohort, evidence, "converged at d_osc = 2, 8, 32", _percents(theirs), claim)


def _both_modes(cohort: Cohort, evidence: Evidence, models: dict[int, Settled]) -> Line:
    """Figure 7's two kinds of late trajectories: error above 0.1, and between 0.01 and that."""
    modes = [[one.at()[x] for one in models.values()] for x in ("far", "near")]
    rarer = None
    if len(models) == len(D_OSC):
        rarer = all(b < a for mode in modes for a, b in pairwise(mode))
    theirs = published("table6")["d_osc"].values()
    printed = [[x["far"] for x in theirs], [1 - x["converged"] - x["far"] for x in theirs]]
    paper, ours = (
        "; ".join(_percents(mode, 2) for mode in both) if both[0] else ""
        for both in (printed, modes)
    )
    what = "error above 0.1; from 0.01 to 0.1, at d_osc = 2, 8, 32"
    claim = Claim("settle-modes", rarer, ours or NO_RECORDS)
    return _claim(cohort, evidence, what, paper, claim)


def _three_ways(cohort: Cohort, evidence: Evidence, models: dict[int, Settled]) -> Line:
    agree = all(one.agrees for one in models.values()) if len(models) == len(D_OSC) else None
    found = "; ".join(f"d_osc = {d}: {_compared(one)}" for d, one in models.items())
    claim = Claim("settle-exact", agree, found or NO_RECORDS)
    unlike, solves = (
        sum(one.record.result[f"rk45.{x}"] for one in models.values())
        for x in ("unlike_flow", "solves")
    )
    ours = f"{unlike:.0f} of {solves:.0f} unlike" if models else ""
    return _claim(cohort, evidence, "RK45, flow and formula", "RK45 only", claim, ours)


def _compared(one: Settled) -> str:
    row, (solved, se), result = one.at(), one.rk45, one.record.result
    return (
        f"RK45 {100 * solved:.2f} ± {100 * se:.2f}, flow {100 * row['converged']:.3f} ± "
        f"{100 * row['se']:.3f}, formula {100 * row['formula']:.3f} %, "
        f"{result['rk45.unlike_flow']:.0f} of {result['rk45.solves']:.0f} solves unlike the flow"
    )


def _antipodal(cohort: Cohort, evidence: Evidence, one: Settled | None) -> Line:
    theirs = published("table6")["failures"]
    holds, found, ours = None, NO_RECORDS if one is None else "no trajectory is late", ""
    if one is not None and one.late():
        near, late, row = one.late(".within_30"), one.late(), one.at()
        holds, ours = near > late / 2, f"{near} of {late}"
        start, drive = (
            f"{100 * row[cause] / (1 - row['converged']):.0f} %"
            for cause in ("antipodal_start", "weak_drive")
        )
        found = f"{ours}; an antipodal start is to blame for {start}, a weak drive for {drive}"
    paper = f"{theirs['within_degrees_of_the_antipode']['30']} of {theirs['total']}"
    what = "d_osc = 2: late ones that start within 30 degrees of the antipode"
    return _claim(cohort, evidence, what, paper, Claim("settle-antipodal", holds, found), ours)


def _weak(cohort: Cohort, evidence: Evidence, one: Settled | None) -> Line:
    """Section 3 says so, where Table 6 speaks of the antipode."""
    holds, found, ours = None, NO_RECORDS if one is None else "no trajectory is late", ""
    if one is not None and one.late():
        row = one.at()
        share = row["weak_drive"] / (1 - row["converged"])
        holds, ours = share > 0.5, f"{100 * share:.0f} %"
        found = f"a weak drive is to blame for {ours}"
    what = "d_osc = 2: late ones due to a weak drive"
    return _claim(cohort, evidence, what, "most", Claim("settle-weak", holds, found), ours)


def table_of_horizons(evidence: Evidence) -> Table:
    """The left panel in numbers: % converged at each horizon, d_osc = 2."""
    groups, paper = by_model(evidence), published("table6")
    rows = [
        (
            f"{cohort.name(evidence.setting)}, {cohort.reading}",
            *(f"{100 * models[2].at(horizon)['converged']:.2f}" for horizon in HORIZONS),
            f"{models[2].late('.last')} of {models[2].trajectories}",
        )
        for cohort, models in groups.items()
        if 2 in models
    ]
    values = [f"{100 * x:.2f}" for x in paper["horizons"].values()]
    left = f"{paper['failures']['at_5000']} of {paper['trajectories']}"
    rows.append(("TinyStories, paper", *values, left))
    columns = ("model", *(f"T = {horizon:g}" for horizon in HORIZONS), "late at 5000")
    notes = [
        "% of trajectories with an error below 0.01, d_osc = 2, last layer; exact flow. "
        + ONE_READING
    ]
    if not any(groups.values()):
        notes.append(evidence.setting.none_yet("figure7"))
    return Table("Figure 7. Converged against the horizon", columns, rows, notes)


def figure_7(evidence: Evidence) -> Figure:
    """Figure 7: converged against the horizon, late ones by error, and (ours) by cause."""
    import matplotlib.pyplot as plt

    from lohe.viz import convergence as draw
    from lohe.viz.style import BLUE, DEFINED, PURPLE

    groups, paper = by_model(evidence), published("table6")
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(12.5, 3.9), layout="constrained")
    horizons = np.array(HORIZONS)
    for n, ((cohort, models), color) in enumerate(
        zip(groups.items(), (BLUE, DEFINED, PURPLE), strict=True)
    ):
        if 2 in models:
            rows = [models[2].at(horizon) for horizon in HORIZONS]
            found, expected = (np.array([row[x] for row in rows]) for x in ("converged", "formula"))
            label = f"{cohort.name(evidence.setting)}, {cohort.reading}"
            draw.fractions(left, horizons, found, expected, color=color, label=label)
            draw.sampled(left, HORIZON * 1.08 ** (n + 1), *models[2].rk45, color=color)
    draw.published_fractions(left, horizons, np.array([*paper["horizons"].values()]))
    draw.finish_fractions(left, HORIZONS, bound("settle-horizon"))
    left.set_title("$d_{osc}$ = 2: converged by horizon")

    theirs = [(x["far"], 1 - x["converged"] - x["far"]) for x in paper["d_osc"].values()]
    draw.published_bars(middle, np.array(theirs).T)
    for ax, kinds, labels, title in (
        (middle, ("far", "near"), ("error above 0.1", "error from 0.01 to 0.1"), "by error"),
        (right, ("weak_drive", "antipodal_start"), ("weak drive", "antipodal start"), "by cause"),
    ):
        for cohort in (AS_PUBLISHED, AS_DEFINED):
            at = np.array([D_OSC.index(d) for d in groups[cohort]], dtype=float)
            late = np.array([[one.at()[x] for one in groups[cohort].values()] for x in kinds])
            draw.bars(ax, at, late, defined=cohort == AS_DEFINED)
        draw.finish_bars(ax, D_OSC, labels, published=ax is middle)
        ax.set_title(f"{AS_PUBLISHED.name(evidence.setting)}: late at T = 30, {title}")
    said = "Each number of one model, the first seed: nothing here shows a spread over seeds."
    if errors := [one.at()["se"] for models in groups.values() for one in models.values()]:
        said += " By the exact flow, other starts would change it by up to "
        said += f"± {200 * max(errors):.2f} percentage points (2 SE), too little to draw."
    figure.supxlabel(said, fontsize=8.5)
    return figure


def figure_7_lines(evidence: Evidence) -> list[Line]:
    """Every number of Figure 7: fractions by horizon, and the bars that Table 6 does not print."""
    lines, paper = [], published("table6")
    for cohort, models in by_model(evidence).items():
        for horizon, theirs in zip(HORIZONS, paper["horizons"].values(), strict=True):
            ours = models[2].at(horizon)["converged"] if 2 in models else None
            what = f"d_osc = 2: converged at T = {horizon:g}"
            lines.append(_number(cohort, evidence, what, theirs, ours))
        for d, x in zip(D_OSC, paper["d_osc"].values(), strict=True):
            ours = models[d].at()["near"] if d in models else None
            theirs = 1 - x["converged"] - x["far"]
            what = f"d_osc = {d}: error from 0.01 to 0.1"
            lines.append(_number(cohort, evidence, what, theirs, ours))
        lines.append(_horizon(cohort, evidence, models.get(2)))
        lines.append(_all_converge(cohort, evidence, models.get(2)))
    return lines


def _horizon(cohort: Cohort, evidence: Evidence, one: Settled | None) -> Line:
    holds, found = None, NO_RECORDS
    if one is not None:
        by_horizon = {horizon: one.at(horizon)["converged"] for horizon in HORIZONS}
        least = bound("settle-horizon")
        enough = all(x >= least for horizon, x in by_horizon.items() if horizon >= ENOUGH_FROM)
        holds = _growing([*by_horizon.values()]) and enough
        found = _percents(by_horizon.values(), 2)
    theirs = _percents(published("table6")["horizons"].values())
    what = f"d_osc = 2: converged at T = {_list(f'{t:g}' for t in HORIZONS)}"
    return _claim(cohort, evidence, what, theirs, Claim("settle-horizon", holds, found))


def _all_converge(cohort: Cohort, evidence: Evidence, one: Settled | None) -> Line:
    holds, ours, found, paper = None, "", NO_RECORDS, published("table6")
    if one is not None:
        late = one.late(".last")
        holds, ours = late == 0 or None, f"{late} of {one.trajectories}"
        found = f"{ours} trajectories are late"
        if late:
            found += ", which does not refute it (Theorem 3 promises it for longer times)"
            angle, theirs = one.record.result["late.last_angle"], paper["failures"]
            found += f"; on average they started {angle:.0f} degrees from the antipode (published "
            found += f"{theirs['mean_angle_at_5000']:.0f}, all starts 90)"
    theirs = f"{paper['failures']['at_5000']} of {paper['trajectories']}"
    claim = Claim("settle-all", holds, found)
    return _claim(cohort, evidence, "d_osc = 2: late at T = 5000", theirs, claim, ours)


def _number(
    cohort: Cohort, evidence: Evidence, what: str, theirs: float, ours: float | None
) -> Line:
    """A fraction that the paper prints, of TinyStories. Other models: not comparable."""
    return Line(
        f"{cohort.name(evidence.setting)}, {what}",
        f"{100 * theirs:.{1 if theirs > 0.01 else 2}f} %{cohort.elsewhere}",
        "" if ours is None else f"{100 * ours:.2f} %",
        "no records" if ours is None else "not comparable",
        reading=cohort.reading,
    )


def _claim(
    cohort: Cohort, evidence: Evidence, what: str, paper: str, claim: Claim, ours: str | None = None
) -> Line:
    return Line(
        f"{cohort.name(evidence.setting)}, {what}",
        f"{paper}{cohort.elsewhere}" if paper else "",
        claim.found if ours is None else ours,
        NO_RECORDS if claim.found == NO_RECORDS else "not comparable",
        claim,
        cohort.reading,
    )


def _growing(values: Sequence[float]) -> bool:
    return all(a < b for a, b in pairwise(values))


def _percents(fractions: Iterable[float], digits: int = 1) -> str:
    """84.3, 94.9, 98.3 %"""
    shown = _list(f"{100 * x:.{digits}f}" for x in fractions)
    return f"{shown} %" if shown else ""


def _list(items: Iterable[object]) -> str:
    return ", ".join(str(x) for x in items)


ITEMS: dict[str, Item] = {
    "table6": Item(
        title="Table 6. Oscillators that have converged at T = 30",
        measures=measures,
        table=table_6,
        lines=table_6_lines,
    ),
    "figure7": Item(
        title="Figure 7. Converged against the horizon, and why not",
        measures=measures,
        table=table_of_horizons,
        figure=figure_7,
        lines=figure_7_lines,
    ),
    **sequential.ITEMS,
    **inference_modes.ITEMS,
    **integrators.ITEMS,
}
