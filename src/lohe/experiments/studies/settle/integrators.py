"""Do integrators reach the closed form? Euler and RK45 against it, Section 4.4 and Appendix C.

Two things can keep a state away from z* at the horizon: too little time, which the exact flow tells
apart, and an integrator that errs. Forward Euler is unstable above step·‖h‖ = 2, and what becomes
of it there is known, see `euler_orbit`.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from lohe import sphere
from lohe.dynamics import Euler, Scipy, fixed_query, flow, solve
from lohe.experiments.evidence import Evidence
from lohe.experiments.item import Item
from lohe.experiments.measures import Bench, Measure, Taken
from lohe.experiments.reported import published
from lohe.experiments.setting import READINGS, Setting
from lohe.experiments.store.records import Record
from lohe.experiments.studies.robust.subjects import ONE_READING
from lohe.experiments.studies.settle.drives import COHORTS, drives
from lohe.experiments.tables import Table
from lohe.experiments.verdicts import Agreement, Claim, Line, bound, exactly, margin
from lohe.train import Run

HORIZON = 30.0
D_OSC = 8  # of the published language model
GROUP = 128  # oscillators in one system of RK45
PAIRS = ("rk45", "euler", "euler_rk45", "flow", "rk45_flow")


@dataclass(frozen=True)
class Integrators:
    """Angles at the horizon between the states of Euler, RK45, the exact flow, and z*.

    First layer, the first validation examples, one uniform start for each oscillator, as published.
    RK45 integrates oscillators of similar ‖h‖ as one system.
    """

    run: Run
    examples: int
    horizon: float = HORIZON
    step: float = 0.05
    tolerance: float = 1e-6
    seed: int = 0

    def take(self, bench: Bench) -> Taken:
        rng = torch.Generator().manual_seed(self.seed)
        h = drives(bench, self.run, self.examples).oscillators(0).cpu()
        h = h[h.norm(dim=-1).argsort()]
        z0 = sphere.uniform(*h.shape, generator=rng, dtype=h.dtype)
        norm = h.norm(dim=-1)
        result: dict[str, float] = {
            "oscillators": len(h),
            "norm.median": norm.median().item(),
            "norm.largest": norm.max().item(),
        }
        for name, angle in angles(z0, h, self.horizon, self.step, self.tolerance).items():
            result |= {
                f"{name}.median": angle.median().item(),
                f"{name}.99%": angle.sort().values[round(0.99 * (len(h) - 1))].item(),
                f"{name}.largest": angle.max().item(),
            }
            if name == "euler":
                result |= off_orbit(angle, norm, self.step)
        return Taken(result)


def angles(
    z0: Float[Tensor, "oscillators d_osc"],
    h: Float[Tensor, "oscillators d_osc"],
    horizon: float,
    step: float,
    tolerance: float,
) -> dict[str, Float[Tensor, " oscillators"]]:
    """In degrees, by pair: "rk45" is that between RK45 and z*, "rk45_flow" RK45 and exact flow."""
    z_star, exact = sphere.normalize(h), flow(z0, h, horizon)
    euler = integrated(z0, h, horizon, Euler(step, project=sphere.normalize))
    rk45 = torch.cat(
        [
            integrated(start, drive, horizon, Scipy(rtol=tolerance, atol=tolerance))
            for start, drive in zip(z0.split(GROUP), h.split(GROUP), strict=True)
        ]
    )
    pairs = {
        "rk45": (rk45, z_star),
        "euler": (euler, z_star),
        "euler_rk45": (euler, rk45),
        "flow": (exact, z_star),
        "rk45_flow": (rk45, exact),
    }
    return {name: sphere.angle(*pairs[name]).rad2deg() for name in PAIRS}


def integrated(
    z0: Float[Tensor, "oscillators d_osc"],
    h: Float[Tensor, "oscillators d_osc"],
    horizon: float,
    solver: Euler | Scipy,
) -> Float[Tensor, "oscillators d_osc"]:
    """The oscillators as one system, brought back to the sphere at the end; NaN where it failed."""
    solution = solve(lambda t, z: fixed_query(z, h), z0, horizon, solver, state_axes=2)
    return solution.state / solution.state.norm(dim=-1, keepdim=True)


def euler_orbit(step_times_norm: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
    """Angle from z*, in radians, at which renormalised Euler ends for u = step·‖h‖.

    A step takes θ to θ - arctan(u sin θ). Up to u = 2 it ends at 0; above, it jumps for ever
    between θ and -θ with u sin θ = tan 2θ, that is cos θ = (1 + √(1 + 2u²)) / 2u, up to 45°.

    >>> euler_orbit(torch.tensor(0.05 * 1575.1)).rad2deg()  # the published token: 44.48
    tensor(44.4809)
    """
    u = step_times_norm.clamp(min=2)
    return torch.acos(((1 + torch.sqrt(1 + 2 * u * u)) / (2 * u)).clamp(max=1))


def off_orbit(
    angle: Float[Tensor, " oscillators"], norm: Float[Tensor, " oscillators"], step: float
) -> dict[str, float]:
    """How many oscillators Euler cannot hold, the worst driven one, and how far theory is off."""
    unstable = step * norm > 2
    expected = euler_orbit(step * norm).rad2deg()
    off = (angle - expected)[unstable].abs()
    return {
        "unstable": unstable.sum().item(),
        "unstable.off_orbit": off.max().item() if len(off) else 0.0,
        "strongest.degrees": angle[norm.argmax()].item(),
        "strongest.orbit": expected[norm.argmax()].item(),
    }


def measures(setting: Setting) -> list[Measure]:
    """Keyword models of every set, language models of both corpora."""
    return [measure for measure, *_ in models(setting)]


def models(setting: Setting) -> list[tuple[Integrators, str, str, str]]:
    """Measure, name, reading, and the published model that it stands beside."""
    smoke = setting.scale == "smoke"
    found = []
    for words in setting.corpora.keywords:
        for reading in READINGS:
            run = setting.keyword_spotting(words, READINGS[reading])
            examples = 2 if smoke else 64
            found.append((Integrators(run, examples), f"KWS {words}", reading, "keywords"))
    for cohort in COHORTS:
        measure = Integrators(cohort.run(setting, D_OSC), 1 if smoke else 8)
        found.append((measure, cohort.name(setting), cohort.reading, "language"))
    return found


def table(evidence: Evidence) -> Table:
    """Angles at T = 30, in degrees."""
    rows = []
    for measure, name, reading, _ in models(evidence.setting):
        record = evidence.measured(measure)
        if record is not None:
            rows.append((f"{name}, {reading}", *_row(record)))
    notes = [
        "Largest angles in degrees from the fixed point at T = 30, of the exact flow (which lacks "
        "time, not accuracy), RK45 and Euler, and between these two; first layer. median: the "
        f"larger one of RK45's and Euler's. {ONE_READING}",
        "> 40: oscillators so strongly driven that Euler jumps between two states for ever.",
    ]
    if not rows:
        notes.append(evidence.setting.none_yet("claim-integrators"))
    for kind, name in (("keywords", "KWS, paper"), ("language", "TinyStories, paper")):
        x = published("claim-integrators")[kind]
        norm = f"{x['unstable']['norm']:.0f}" if "unstable" in x else ""
        median, *largest = x["rk45"]["median"], x["rk45"]["largest"], x["euler_rk45"]["largest"]
        shown = [_degrees(degrees) for degrees in largest]
        rows.append((name, norm, "", _degrees(median), "", shown[0], "", shown[1]))
    columns = ("model", "max ‖h‖", "> 40", "median", "flow", "RK45", "Euler", "between")
    return Table("Integrators against the closed form (Appendix C)", columns, rows, notes)


def _row(record: Record) -> tuple[str, ...]:
    x = record.result
    median = max(x["rk45.median"], x["euler.median"])
    largest = [x[f"{pair}.largest"] for pair in ("flow", "rk45", "euler", "euler_rk45")]
    angles_ = [_degrees(degrees) for degrees in (median, *largest)]
    return f"{x['norm.largest']:.4g}", f"{x['unstable']:.0f}", *angles_


def _degrees(x: float) -> str:
    return f"{x:.1f}" if x >= 10 else f"{x:.3f}"


def lines(evidence: Evidence) -> list[Line]:
    """Medians and largest angles; and Euler's unstable token, whose angle theory predicts."""
    found = []
    for measure, name, reading, kind in models(evidence.setting):
        record, theirs = evidence.measured(measure), published("claim-integrators")[kind]
        for pair, what in (
            ("rk45", "RK45 to fixed point, median and largest degrees"),
            ("euler_rk45", "Euler to RK45, the same"),
        ):
            ours = "" if record is None else _pair(record, pair)
            found.append(
                Line(
                    f"{name}: {what}",
                    f"{_degrees(theirs[pair]['median'])}, {_degrees(theirs[pair]['largest'])}"
                    f"{' (TinyStories)' if name == 'WikiText-2' else ''}",
                    ours,
                    "not comparable" if ours else "no records",
                    _claim(record) if pair == "rk45" else None,
                    reading,
                )
            )
    token = published("claim-integrators")["language"]["unstable"]
    orbit = euler_orbit(torch.tensor(0.05 * token["norm"], dtype=torch.float64)).rad2deg().item()
    found.append(
        Line(
            f"Euler's angle at the unstable token, ‖h‖ = {token['norm']:g}, in closed form",
            f"{token['degrees']:.2f} degrees",
            f"{orbit:.2f} degrees",
            Agreement(exactly(round(orbit, 2) - token["degrees"]), margin("exact")),
        )
    )
    return found


def _pair(record: Record, pair: str) -> str:
    return ", ".join(_degrees(record.result[f"{pair}.{name}"]) for name in ("median", "largest"))


def _claim(record: Record | None) -> Claim:
    """Against the fixed point, as published; what the exact flow lacks as well is lack of time."""
    if record is None:
        return Claim("settle-integrators", None, "no records")
    x = record.result
    median = max(x["rk45.median"], x["euler.median"])
    largest = max(x["rk45.largest"], x["euler.largest"])
    known = math.isfinite(median) and math.isfinite(largest)
    pairs = {pair: _pair(record, pair) for pair in PAIRS}
    allowed = {what: bound("settle-integrators", what) for what in ("median", "largest")}
    late = x["flow.largest"] >= allowed["largest"]
    found = "it is time that lacks, as the exact flow tells; " if late else ""
    found += (
        f"RK45 to the exact flow {pairs['rk45_flow']} degrees, median and largest; to the fixed "
        f"point RK45 {pairs['rk45']}, Euler {pairs['euler']}, exact flow {pairs['flow']}. Largest "
        f"‖h‖ {x['norm.largest']:.4g}; {x['unstable']:.0f} of {x['oscillators']:.0f} oscillators "
        "above Euler's limit of 40"
    )
    holds = median < allowed["median"] and largest < allowed["largest"]
    return Claim("settle-integrators", holds if known else None, found)


ITEMS: dict[str, Item] = {
    "claim-integrators": Item(
        title="Integrators against the closed form",
        measures=measures,
        table=table,
        lines=lines,
    ),
}
