"""Right-hand sides: on the sphere, and the same thing in different coordinates."""

import pytest
import torch

from lohe import sphere
from lohe.dynamics import fixed_query, kuramoto, lohe


def network(n, d, generator):
    x = sphere.uniform(2, n, d, generator=generator, dtype=torch.float64)
    couplings = torch.rand(2, n, n, generator=generator, dtype=torch.float64)
    upper = torch.randn(2, n, d, d, generator=generator, dtype=torch.float64).triu(1)
    return x, couplings, upper - upper.mT


@pytest.mark.parametrize("d", [2, 3, 8])
def test_motion_is_tangent_to_the_sphere(d, rng):
    x, couplings, frequency = network(6, d, rng)
    for dx in (lohe(x, couplings, frequency), fixed_query(x, 3 * x.flip(1), frequency)):
        assert dx.abs().max() > 0.1
        assert (x * dx).sum(dim=-1).abs().max() < 1e-14


def test_lohe_term_by_term(rng):
    x, couplings, frequency = network(4, 3, rng)
    i = 2
    pull = sum(couplings[0, i, j] * x[0, j] for j in range(4))
    expected = frequency[0, i] @ x[0, i] + (torch.eye(3) - torch.outer(x[0, i], x[0, i])) @ pull
    torch.testing.assert_close(lohe(x, couplings, frequency)[0, i], expected)


def test_circle_is_kuramoto(rng):  # Appendix A
    phase = 7 * torch.randn(2, 5, generator=rng, dtype=torch.float64)
    couplings = torch.rand(2, 5, 5, generator=rng, dtype=torch.float64)
    omega = torch.randn(2, 5, generator=rng, dtype=torch.float64)
    quarter_turn = torch.tensor([[0.0, -1.0], [1.0, 0.0]], dtype=torch.float64)
    x = torch.stack([phase.cos(), phase.sin()], dim=-1)
    along = torch.stack([-phase.sin(), phase.cos()], dim=-1)

    with_frequency = lohe(x, couplings, omega[..., None, None] * quarter_turn)
    torch.testing.assert_close(with_frequency, kuramoto(phase, couplings, omega)[..., None] * along)
    torch.testing.assert_close(lohe(x, couplings), kuramoto(phase, couplings)[..., None] * along)


def test_anchors_are_oscillators_that_do_not_move(rng):
    # free oscillators coupled to fixed ones only: Eq. 1 becomes Eq. 3, h_i = Σ_j w_ij r_j
    x, couplings, _ = network(6, 3, rng)
    couplings[:, :, :3] = 0
    h = torch.einsum("bij,bjd->bid", couplings, x)
    torch.testing.assert_close(lohe(x, couplings)[:, :3], fixed_query(x[:, :3], h[:, :3]))
