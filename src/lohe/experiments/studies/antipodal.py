"""Starts near the unstable point: Proposition 5 against draws from the sphere."""

import math
from dataclasses import dataclass

import numpy as np
import torch

from lohe import sphere, theory
from lohe.experiments.evidence import Evidence
from lohe.experiments.item import Figure, Item
from lohe.experiments.measures import Bench, Measure, Taken
from lohe.experiments.setting import Setting
from lohe.experiments.tables import Table
from lohe.experiments.verdicts import Claim, Line, bound
from lohe.train import Run

DIMENSIONS = (2, 4, 8, 16, 32, 64)
LEAST = 5.0  # starts expected in a cell of the chi-square test


@dataclass(frozen=True)
class CapFractions:
    """Uniform starts within each of `angles` angles, 0.01 to π/2, of the antipode.

    As published, but for the generator: 1,000 starts in each dimension, all dimensions from one
    stream of random numbers.
    """

    samples: int = 1000
    angles: int = 50
    seed: int = 0
    run: Run | None = None

    def take(self, bench: Bench) -> Taken:
        rng = torch.Generator().manual_seed(self.seed)
        alpha = grid(self.angles)
        curve, worst = [], 0.0
        for d in DIMENSIONS:
            z = sphere.uniform(self.samples, d, generator=rng, dtype=torch.float64)
            pole = torch.eye(d, dtype=torch.float64)[0]
            within = (sphere.angle(z, -pole)[:, None] <= alpha).sum(dim=0).numpy()
            apart = deviations(within, self.samples, d)
            worst = max(worst, float(np.abs(apart).max()))
            statistic, cells, p = chi_square(within, self.samples, d)
            curve.append(
                {
                    "d_osc": d,
                    "within": within.tolist(),
                    "largest_deviation": float(np.abs(apart).max()),
                    "chi_square": statistic,
                    "cells": cells,
                    "p": p,
                }
            )
        return Taken({"largest_deviation": worst}, curve)


def grid(angles: int) -> torch.Tensor:
    """The angles α of the figure."""
    return torch.linspace(0.01, math.pi / 2, angles, dtype=torch.float64)


def expected(angles: int, d_osc: int) -> np.ndarray:
    """Eq. 10 at these angles."""
    return theory.cap_probability(grid(angles), d_osc).numpy()


def deviations(within: np.ndarray, samples: int, d_osc: int) -> np.ndarray:
    """Observed minus expected fractions in standard errors of the expected ones."""
    p = expected(len(within), d_osc)
    return (within / samples - p) / np.sqrt(p * (1 - p) / samples)


def chi_square(within: np.ndarray, samples: int, d_osc: int) -> tuple[float, int, float]:
    """Pearson's test on the starts between one angle and the next, and beyond the last.

    Cells are joined from the pole outward until `LEAST` starts are expected in each: fractions
    within growing angles share their starts, starts in cells do not. Statistic, cells, p.
    """
    from scipy import stats

    bounds = [0.0]  # probabilities within the angles that are kept
    seen = [0]
    p = expected(len(within), d_osc)
    for inside, count in zip(p, within, strict=True):
        if samples * (inside - bounds[-1]) >= LEAST:
            bounds.append(float(inside))
            seen.append(int(count))
    observed = np.diff([*seen, samples])
    cells = samples * np.diff([*bounds, 1.0])
    statistic = float(((observed - cells) ** 2 / cells).sum())
    return statistic, len(cells), float(stats.chi2.sf(statistic, len(cells) - 1))


def measures(setting: Setting) -> list[Measure]:
    """One sample; it costs nothing at any scale."""
    return [CapFractions()]


def table(evidence: Evidence) -> Table:
    """Largest deviation from Eq. 10, and the chi-square test, for each dimension."""
    columns = ("d_osc", "largest deviation, s.e.", "chi-square", "cells", "p")
    rows = [
        (
            str(row["d_osc"]),
            f"{row['largest_deviation']:.2f}",
            f"{row['chi_square']:.1f}",
            str(row["cells"]),
            f"{row['p']:.2g}",
        )
        for row in _curve(evidence)
    ]
    notes = [
        "1,000 uniform starts in each dimension, 50 angles from 0.01 to π/2; theory: Eq. 10.",
        "Neighbouring fractions share their starts; the cells of the chi-square test do not.",
    ]
    if not rows:
        notes.append(evidence.setting.none_yet("figure2"))
    return Table("Figure 2. Starts near the antipode", columns, rows, notes)


def lines(evidence: Evidence) -> list[Line]:
    """The claim, on all fractions, and each dimension's part of it."""
    what, paper = "300 fractions", "on the curve"
    rows = _curve(evidence)
    if not rows:
        claim = Claim("antipodal", None, "no records")
        return [Line(what, paper, "no records", "no records", claim)]
    worst = max(row["largest_deviation"] for row in rows)
    least = min(row["p"] for row in rows)
    allowed = bound("antipodal")
    found = f"largest deviation {worst:.2f} s.e., allowed {allowed}"
    found += f"; least chi-square p of {len(rows)} is {least:.2g}"
    said = [
        Line(what, paper, f"{worst:.2f} s.e.", claim=Claim("antipodal", worst <= allowed, found))
    ]
    for row in rows:
        ours = f"{row['largest_deviation']:.2f} s.e."
        said.append(Line(f"d_osc = {row['d_osc']}", paper, ours))
    return said


def figure_2(evidence: Evidence) -> Figure:
    """Figure 2 (fig:antipodal): Pr(start within α of the antipode), theory and 1,000 draws."""
    import matplotlib.pyplot as plt

    from lohe.viz import caps

    figure, ax = plt.subplots(figsize=(6.4, 4.0), layout="constrained")
    measure, rows = CapFractions(), {row["d_osc"]: row["within"] for row in _curve(evidence)}
    for n, d in enumerate(DIMENSIONS):
        place = n / (len(DIMENSIONS) - 1)
        label = f"$d_{{osc}}$ = {d}"
        fine = grid(400).numpy(), expected(400, d)
        caps.theory(ax, *fine, samples=measure.samples, label=label, place=place)
        if d in rows:
            seen = np.array(rows[d]) / measure.samples
            caps.fractions(ax, grid(measure.angles).numpy(), seen, place=place)
    caps.finish(ax, samples=measure.samples, seen=bool(rows))
    return figure


def _curve(evidence: Evidence) -> list[dict]:
    record = evidence.measured(CapFractions())
    return record.curve if record else []


ITEMS = {
    "figure2": Item(
        title="Figure 2. Starts near the antipode",
        measures=measures,
        table=table,
        figure=figure_2,
        lines=lines,
    ),
}
