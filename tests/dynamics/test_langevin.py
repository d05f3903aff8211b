"""Noise on the sphere: the stationary law is von Mises-Fisher, κ = ‖h‖/D."""

import math

import pytest
import torch
from scipy.special import ive

from accuracy import ROUNDING
from lohe import sphere
from lohe.dynamics import flow, langevin


def mean_resultant_length(kappa, d):
    """A_d(κ) = I_{d/2}(κ) / I_{d/2-1}(κ)."""
    return ive(d / 2, kappa) / ive(d / 2 - 1, kappa)


@pytest.mark.parametrize("share", [0.05, 0.2], ids=["fine", "coarse"])  # of 1/‖h‖ and 1/(D d_osc)
@pytest.mark.parametrize(("d", "diffusion"), [(2, 1.0), (3, 0.4), (8, 0.25)])
def test_stationary_law_is_von_mises_fisher(d, diffusion, share, rng):
    n, norm = (8_000, 2.0) if share < 0.1 else (40_000, 2.0)
    step = share / max(norm, diffusion * d)
    h = norm * sphere.uniform(d, generator=rng, dtype=torch.float64)
    z0 = sphere.uniform(n, d, generator=rng, dtype=torch.float64)
    # ten relaxation times; the scheme's bias is second order in the step
    z = langevin(z0, h, diffusion=diffusion, horizon=10 / norm, step=step, generator=rng)
    kappa = norm / diffusion
    along = z @ sphere.normalize(h)
    first = mean_resultant_length(kappa, d)
    second = 1 - (d - 1) / kappa * first  # E(z·μ)²
    noise = 5 / math.sqrt(n)
    assert abs(along.mean().item() - first) < noise * math.sqrt(second - first**2) + 2e-3
    assert abs(along.square().mean().item() - second) < noise * along.square().std() + 2e-3
    assert (z.norm(dim=-1) - 1).abs().max() < 1e-14


def test_without_a_drive_it_is_brownian_motion(rng):
    # the Laplacian of the sphere has the coordinates as eigenfunctions: E z = z0 e^(-D(d-1)t)
    d, n = 3, 40_000
    z0 = sphere.uniform(d, generator=rng, dtype=torch.float64)
    still = torch.zeros(d, dtype=torch.float64)
    z = langevin(z0.expand(n, d), still, diffusion=0.5, horizon=0.6, step=0.01, generator=rng)
    torch.testing.assert_close(z.mean(0), z0 * math.exp(-0.6), rtol=0, atol=5 / math.sqrt(n))


def test_without_noise_it_is_the_flow(rng):
    z0 = sphere.uniform(20, 4, generator=rng, dtype=torch.float64)
    h = torch.randn(20, 4, generator=rng, dtype=torch.float64)
    z = langevin(z0, h, diffusion=0.0, horizon=1.0, step=0.3, generator=rng)
    torch.testing.assert_close(z, flow(z0, h, 1.0), rtol=0, atol=ROUNDING)


def test_half_precision_moves_by_small_steps(rng):  # each of which it could not tell from none
    z0, h = torch.tensor([1.0, 0.0]).bfloat16(), torch.tensor([0.0, 1.0]).bfloat16()
    z = langevin(z0, h, diffusion=0.0, horizon=1.0, step=2e-3, generator=rng)
    torch.testing.assert_close(z, flow(z0, h, 1.0))


def test_every_trajectory_has_noise_of_its_own(rng):
    z0 = torch.tensor([1.0, 0.0], dtype=torch.float64)
    h = torch.zeros(5, 2, dtype=torch.float64)
    z = langevin(z0, h, diffusion=1.0, horizon=0.1, step=0.1, generator=rng)
    assert z.unique(dim=0).shape == (5, 2)


@pytest.mark.parametrize(
    "wrong",
    [
        {"diffusion": -1.0},
        {"diffusion": math.nan},
        {"horizon": 0.0},
        {"horizon": math.inf},
        {"step": -0.1},
    ],
)
def test_parameters_make_sense(wrong, rng):
    z = torch.tensor([1.0, 0.0])
    good = {"diffusion": 1.0, "horizon": 1.0, "step": 0.1}
    name, value = next(iter(wrong.items()))
    with pytest.raises(ValueError, match=rf"diffusion >= 0 and a positive .*{name}={value}"):
        langevin(z, z, **{**good, **wrong}, generator=rng)
