"""Nine oscillators settle, by three routes that must agree; and what it costs."""

import math
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from matplotlib.axes import Axes
from torch import Tensor

from lohe import OscillatorAttention, cost, ops, sphere
from lohe.demo import figures
from lohe.dynamics import Scipy, fixed_query, flow, settling_error, settling_time, solve
from lohe.experiments.tables import Table
from lohe.viz import settling, style
from lohe.viz.html import Picture

TOKENS = 9  # the paper's smallest hardware: nine oscillators read a sentence of nine tokens
HORIZON = 30.0  # the paper's T_max
SAMPLES = (0.5, 1.0, 2.0, 3.0, 4.5, 6.0)
TIMES = torch.linspace(0, SAMPLES[-1], 200, dtype=torch.float64)
THRESHOLD = 0.01  # Section 4.4: converged
AGREEMENT = 1e-6  # RK45 is asked for 1e-10 a step; the flow is exact


@dataclass(frozen=True)
class Settled:
    """Nine oscillators of one layer, from their start to rest."""

    anchors: Tensor  # (tokens, 2)
    drive: Tensor  # (tokens, 2)
    start: Tensor  # (tokens, 2)
    fixed_point: Tensor  # (tokens, 2)
    exact: Tensor  # (tokens, 2), at the horizon
    solver: Tensor  # (samples, tokens, 2), by RK45
    weights: Tensor  # (tokens, tokens)


def settle(rng: torch.Generator) -> Settled:
    """One head of a fresh layer on nine tokens, strong enough to pull apart, in float64."""
    layer = OscillatorAttention(d_model=32, heads=1, max_tokens=TOKENS, generator=rng).double()
    x = 3 * torch.randn(1, TOKENS, 32, generator=rng, dtype=torch.float64)
    with torch.no_grad():
        p = layer.problem(*layer.front_end(x, x, x))
        h = ops.drive(p)[0, 0]
        z = ops.fixed_point(h)
        start = sphere.uniform(TOKENS, 2, generator=rng, dtype=torch.float64)
        tight = Scipy("RK45", rtol=1e-10, atol=1e-10)
        states = [start]
        for before, at in pairwise((0.0, *SAMPLES)):  # from sample to sample: Eq. 3 has no clock
            leg = solve(lambda t, z: fixed_query(z, h), states[-1], at - before, tight)
            states.append(leg.state)
        return Settled(
            anchors=p.anchors[0],
            drive=h,
            start=start,
            fixed_point=z,
            exact=flow(start, h, HORIZON),
            solver=torch.stack(states[1:]),
            weights=ops.weights(p, z[None, None])[0, 0],
        )


def check(s: Settled) -> float:
    """How far the three routes are apart; raises if it is more than rounding."""
    worst = _against_solver(s).max().item()
    settled = settling_time(s.start, s.drive, THRESHOLD) < HORIZON / 2
    rest = settling_error(s.exact, s.drive)[settled].max().item()
    if not (worst < AGREEMENT and rest < AGREEMENT):
        raise SystemExit(
            f"The three routes disagree: {worst:.1e} and {rest:.1e}. Please report it."
        )
    return max(worst, rest)


def routes(s: Settled) -> Table:
    """The same state by three routes, oscillator by oscillator."""
    off = sphere.angle(s.start, s.fixed_point) * 180 / math.pi
    numbers = zip(
        s.drive.norm(dim=-1).tolist(),
        off.tolist(),
        settling_time(s.start, s.drive, THRESHOLD).tolist(),
        _against_solver(s).tolist(),
        settling_error(s.exact, s.drive).tolist(),
        strict=True,
    )
    rows = [
        (str(n + 1), f"{h:.3f}", f"{angle:.0f}", f"{t:.2f}", f"{solver:.1e}", f"{rest:.1e}")
        for n, (h, angle, t, solver, rest) in enumerate(numbers)
    ]
    return Table(
        "Nine oscillators on the circle",
        (
            "token",
            "drive ‖h‖",
            "start, degrees off",
            "settled at t",
            "flow - RK45",
            f"flow at {HORIZON:.0f} - fixed point",
        ),
        rows,
        [
            f"Closed form, exact flow and RK45 agree to {check(s):.0e}. The flow is one "
            "expression; RK45 took thousands of evaluations."
        ],
    )


def costs() -> Table:
    """What Section 4.5 counts, for the layer of this demo."""
    counts = cost.operations(TOKENS, heads=1, d_osc=2)
    return Table(
        "Operations for this layer, relu coupling",
        ("implementation", "operations", "fewer than softmax by"),
        [
            (label, f"{getattr(counts, name):,}", f"{counts.reduction(name):.1f} x")
            for name, label in cost.LABELS.items()
        ],
        [f"Oscillators needed: {cost.oscillators(TOKENS, 1, 2)}. All tables: `lohe cost`"],
    )


def _against_solver(s: Settled) -> Tensor:
    exact = torch.stack([flow(s.start, s.drive, t) for t in SAMPLES])
    return (exact - s.solver).norm(dim=-1).amax(dim=0)


def draw(s: Settled, path: Path) -> Path:
    """Phases over time, distance to rest, and the weights that come out."""
    with style.drawing():
        import matplotlib.pyplot as plt

        figure, axes = plt.subplots(1, 3, figsize=(13, 4.2), layout="constrained")
        for ax, (draw_on, _) in zip(axes, PANELS.values(), strict=True):
            draw_on(ax, s)
        return style.save(figure, path)


def panels(s: Settled, folder: Path) -> list[Picture]:
    """The same as three pictures, which a narrow screen can stack."""
    found = []
    for name, (draw_on, alt) in PANELS.items():
        path = folder / f"{name}.png"
        with figures.panel(path, size=(4.6, 4.2)) as ax:
            draw_on(ax, s)
        found.append(Picture(path, alt))
    return found


def _circle(ax: Axes, s: Settled) -> None:
    phases = torch.atan2(*flow(s.start, s.drive, TIMES[:, None]).unbind(-1)[::-1]).numpy()
    anchors = torch.atan2(s.anchors[:, 1], s.anchors[:, 0]).numpy()
    settling.circle(ax, np.unwrap(phases, axis=0), anchors)
    ax.set_title("Nine oscillators settle between their anchors\n(time runs outward)")
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, -0.12), ncols=2)


def _errors(ax: Axes, s: Settled) -> None:
    settling.errors(
        ax,
        TIMES.numpy(),
        settling_error(flow(s.start, s.drive, TIMES[:, None]), s.drive).numpy(),
        torch.tensor(SAMPLES).numpy(),
        settling_error(s.solver, s.drive).numpy(),
        THRESHOLD,
    )
    ax.set_title("Exact flow and RK45")


def _weights(ax: Axes, s: Settled) -> None:
    settling.weights(ax, s.weights.numpy())
    ax.set_title("Attention weights at rest (Eq. 5)")


PANELS = {
    "settling-circle": (_circle, "Nine phases on the circle run from their starts to rest."),
    "settling-errors": (_errors, "Distance to the fixed point over time; flow and RK45 coincide."),
    "settling-weights": (_weights, "The nine by nine matrix of attention weights."),
}
