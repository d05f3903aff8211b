"""How much faster is the exact flow than the paper's way of settling oscillators?

Section 4.4 settles 57,900 oscillators by one `scipy.integrate.solve_ivp` each (RK45, rtol = atol =
1e-4, T = 30). `lohe.dynamics.flow` gives the same states in one expression. Both run here, on the
same drives and starts, in one process and one thread; RK45 on a sample, extrapolated. They must
agree before the clock starts.

    python benchmarks/settling.py    # about 15 seconds; writes results/settling.json beside it
"""

import argparse
import statistics
import time
from functools import partial

import numpy as np
import scipy
import torch
from scipy.integrate import solve_ivp

from harness import save, seconds, spread
from lohe import sphere
from lohe.dynamics import flow, settling_error

TRAJECTORIES = 57_900
DIMENSIONS = (2, 8, 32)
HORIZON = 30.0
SAMPLE = 300
REPEATS = 30
# ‖h‖ is log-normal, wide enough that about 84 % of uniform starts converge at d_osc = 2 (Table 6)
MEDIAN_NORM, LOG_SPREAD = 0.65, 1.3


def problem(d_osc: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Uniform starts and drives of log-normal length, float64."""
    shape = (TRAJECTORIES, d_osc)
    z0, direction = (sphere.uniform(*shape, generator=generator, dtype=torch.float64) for _ in "zh")
    normal = torch.randn(TRAJECTORIES, 1, generator=generator, dtype=torch.float64)
    return z0, MEDIAN_NORM * torch.exp(LOG_SPREAD * normal) * direction


def rk45(z0: np.ndarray, h: np.ndarray) -> np.ndarray:
    """The paper's method for one oscillator: the state is renormalised before projecting."""

    def field(_: float, z: np.ndarray) -> np.ndarray:
        z = z / np.linalg.norm(z)
        return h - z * (z @ h)

    z = solve_ivp(field, (0.0, HORIZON), z0, method="RK45", rtol=1e-4, atol=1e-4).y[:, -1]
    return z / np.linalg.norm(z)


def disagreement(z0: torch.Tensor, h: torch.Tensor) -> dict[str, float]:
    """‖z_RK45 - z_exact‖ over the sample, its median and the worst; raises if it is not small.

    RK45 holds each step to 1e-4. A start near the antipode then multiplies that error by the
    1/‖z0 + z*‖ it takes to leave, hence the allowance.
    """
    z = torch.as_tensor(np.stack([rk45(a, b) for a, b in zip(z0.numpy(), h.numpy(), strict=True)]))
    error = (z - flow(z0, h, HORIZON)).norm(dim=-1)
    allowed = 10 * 1e-4 * (1 + 2 / settling_error(z0, -h))
    if not (error <= allowed).all():
        raise SystemExit(f"RK45 and flow disagree: {error.max():.2e}. No clock for wrong answers.")
    return {"median": error.median().item(), "worst": error.max().item()}


def solve_seconds(z0: torch.Tensor, h: torch.Tensor) -> list[float]:
    """Wall-clock time of RK45 for each oscillator of the sample."""
    times = []
    for a, b in zip(z0.numpy(), h.numpy(), strict=True):
        start = time.perf_counter()
        rk45(a, b)
        times.append(time.perf_counter() - start)
    return times


def measure(d_osc: int) -> dict:
    z0, h = problem(d_osc, torch.Generator().manual_seed(d_osc))
    sample = (z0[:SAMPLE], h[:SAMPLE])
    row: dict = {"d_osc": d_osc, "disagreement": disagreement(*sample)}
    row["converged"] = (settling_error(flow(z0, h, HORIZON), h) < 0.01).double().mean().item()
    exact = {
        "float64": seconds(partial(flow, z0, h, HORIZON), REPEATS),
        "float32": seconds(partial(flow, z0.float(), h.float(), HORIZON), REPEATS),
    }
    each = solve_seconds(*sample)
    total = statistics.mean(each) * TRAJECTORIES  # a sum is extrapolated by the mean
    row["rk45_one_solve_s"] = spread(each)
    row["rk45_all_s"] = total
    row["rk45_all_standard_error_s"] = statistics.stdev(each) / SAMPLE**0.5 * TRAJECTORIES
    row["flow_all_s"] = {dtype: spread(times) for dtype, times in exact.items()}
    row["ratio"] = {dtype: total / statistics.median(times) for dtype, times in exact.items()}
    return row


def main() -> None:
    argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0]).parse_args()
    torch.set_num_threads(1)
    rows = [measure(d) for d in DIMENSIONS]
    report: dict[str, object] = {
        "question": (__doc__ or "").strip().partition("\n")[0],
        "trajectories": TRAJECTORIES,
        "horizon": HORIZON,
        "drive_norm": f"log-normal, median {MEDIAN_NORM}, log-deviation {LOG_SPREAD}",
        "rk45_sample": SAMPLE,
        "flow_repeats": REPEATS,
        "versions": {"scipy": scipy.__version__, "numpy": np.__version__},
        "rows": rows,
    }
    path = save("settling", report)
    print(f"{TRAJECTORIES:,} trajectories, T = {HORIZON:g}, one thread; in full in {path}")
    print(
        "d_osc  converged  worst disagreement   RK45 all    flow f64   flow f32   ratio f64   f32"
    )
    for row in rows:
        f64, f32 = (row["flow_all_s"][dtype]["median"] for dtype in ("float64", "float32"))
        print(
            f"{row['d_osc']:5d} {row['converged']:9.1%} {row['disagreement']['worst']:17.1e} "
            f"{row['rk45_all_s']:10.0f} s {1e3 * f64:8.1f} ms {1e3 * f32:7.1f} ms "
            f"{row['ratio']['float64']:9,.0f} {row['ratio']['float32']:8,.0f}"
        )


if __name__ == "__main__":
    main()
