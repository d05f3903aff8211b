"""The mechanism in a minute: nine oscillators settle, three ways that must agree, and the cost."""

import math
from dataclasses import dataclass
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from lohe import OscillatorAttention, cost, ops, sphere
from lohe.dynamics import Scipy, fixed_query, flow, settling_error, settling_time, solve

TOKENS = 9  # the paper's smallest hardware: nine oscillators read a sentence of nine tokens
HORIZON = 30.0  # the paper's T_max
SAMPLES = (0.5, 1.0, 2.0, 3.0, 4.5, 6.0)
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


def main(out: Path) -> None:
    """Settle, check, draw and count; raises if closed form, flow and solver disagree."""
    console = Console(highlight=False)
    settled = settle(torch.Generator().manual_seed(4))
    report(console, settled)
    picture = draw(settled, out / "settling.png")
    console.print(f"\nPicture: {picture}\n")
    show_cost(console)


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
        states = [solve(lambda t, z: fixed_query(z, h), start, at, tight) for at in SAMPLES]
        return Settled(
            anchors=p.anchors[0],
            drive=h,
            start=start,
            fixed_point=z,
            exact=flow(start, h, HORIZON),
            solver=torch.stack([s.state for s in states]),
            weights=ops.weights(p, z[None, None])[0, 0],
        )


def report(console: Console, s: Settled) -> None:
    """The same state by three routes, oscillator by oscillator."""
    exact = torch.stack([flow(s.start, s.drive, t) for t in SAMPLES])
    against_solver = (exact - s.solver).norm(dim=-1).amax(dim=0)
    against_rest = settling_error(s.exact, s.drive)
    table = Table(title="Nine oscillators on the circle", title_justify="left")
    for name in ("token", "drive ‖h‖", "start, degrees off", "settled at t"):
        table.add_column(name, justify="right")
    table.add_column("flow - RK45", justify="right")
    table.add_column(f"flow at {HORIZON:.0f} - fixed point", justify="right")
    off = sphere.angle(s.start, s.fixed_point) * 180 / math.pi
    time = settling_time(s.start, s.drive, THRESHOLD)
    for i in range(TOKENS):
        table.add_row(
            str(i + 1),
            f"{s.drive[i].norm():.3f}",
            f"{off[i]:.0f}",
            f"{time[i]:.2f}",
            f"{against_solver[i]:.1e}",
            f"{against_rest[i]:.1e}",
        )
    console.print(table)
    worst = against_solver.max().item()
    rest = against_rest[time < HORIZON / 2].max().item()
    if not (worst < AGREEMENT and rest < AGREEMENT):
        raise SystemExit(
            f"The three routes disagree: {worst:.1e} and {rest:.1e}. Please report it."
        )
    console.print(
        f"Closed form, exact flow and RK45 agree to {max(worst, rest):.0e}. "
        "The flow is one expression; RK45 took thousands of evaluations."
    )


def draw(s: Settled, path: Path) -> Path:
    """Phases over time, distance to rest, and the weights that come out."""
    from lohe.viz import settling, style

    times = torch.linspace(0, SAMPLES[-1], 200, dtype=torch.float64)
    states = flow(s.start, s.drive, times[:, None])
    phases = torch.atan2(states[..., 1], states[..., 0]).numpy()
    anchors = torch.atan2(s.anchors[:, 1], s.anchors[:, 0]).numpy()
    with style.drawing():
        import matplotlib.pyplot as plt
        import numpy as np

        figure, axes = plt.subplots(1, 3, figsize=(13, 4.2), layout="constrained")
        settling.circle(axes[0], np.unwrap(phases, axis=0), anchors)
        axes[0].set_title("Nine oscillators settle between their anchors\n(time runs outward)")
        axes[0].legend(loc="lower center", bbox_to_anchor=(0.5, -0.12), ncols=2)
        settling.errors(
            axes[1],
            times.numpy(),
            settling_error(states, s.drive).numpy(),
            torch.tensor(SAMPLES).numpy(),
            settling_error(s.solver, s.drive).numpy(),
            THRESHOLD,
        )
        axes[1].set_title("Exact flow and RK45")
        settling.weights(axes[2], s.weights.numpy())
        axes[2].set_title("Attention weights at rest (Eq. 5)")
        return style.save(figure, path)


def show_cost(console: Console) -> None:
    """Table 7's counts, for the layer of this demo."""
    counts = cost.operations(TOKENS, heads=1, d_osc=2)
    table = Table(title="Operations for this layer, relu coupling", title_justify="left")
    for name in ("implementation", "operations", "fewer than softmax by"):
        table.add_column(name, justify="left" if name == "implementation" else "right")
    for name, label in cost.LABELS.items():
        table.add_row(label, f"{getattr(counts, name):,}", f"{counts.reduction(name):.1f} x")
    console.print(table)
    console.print(f"Oscillators needed: {cost.oscillators(TOKENS, 1, 2)}. All tables: lohe cost")
