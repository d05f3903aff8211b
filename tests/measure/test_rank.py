"""Effective rank and truncation: what their definitions imply."""

import pytest
import torch

from accuracy import ROUNDING
from lohe.measure.rank import effective_rank, rank, truncate
from lohe.theory import readout_rank_bound

svdvals = torch.linalg.svdvals


def orthogonal(n: int, rng: torch.Generator) -> torch.Tensor:
    return torch.linalg.qr(torch.randn(n, n, generator=rng, dtype=torch.float64)).Q


def random(*shape: int, rng: torch.Generator) -> torch.Tensor:
    return torch.randn(*shape, generator=rng, dtype=torch.float64)


@pytest.mark.parametrize("r", [1, 4, 9])
def test_equal_singular_values_count_as_many(rng, r):
    spectrum = torch.diag(torch.tensor([3.0] * r + [0.0] * (9 - r), dtype=torch.float64))
    found = svdvals(orthogonal(9, rng) @ spectrum @ orthogonal(9, rng))
    assert effective_rank(found).item() == pytest.approx(r, abs=1e-6)
    assert rank(found) == r


def test_two_singular_values_by_hand():
    # p = (3/4, 1/4): entropy ln 4 - (3/4) ln 3
    found = effective_rank(torch.tensor([6.0, 2.0], dtype=torch.float64))
    assert found.item() == pytest.approx(4 / 3**0.75, abs=ROUNDING)


def test_effective_rank_is_between_one_and_the_rank(rng):
    spectra = svdvals(random(50, 12, 5, rng=rng) @ random(50, 5, 20, rng=rng))
    assert (effective_rank(spectra) >= 1).all()
    assert (effective_rank(spectra) <= 5 + ROUNDING).all()
    assert (rank(spectra) == 5).all()


def test_neither_scale_nor_padding_matters(rng):
    matrix = random(3, 7, 7, rng=rng)
    padded = torch.nn.functional.pad(1e3 * matrix, (0, 5, 0, 4))
    alone, together = (effective_rank(svdvals(x)) for x in (matrix, padded))
    torch.testing.assert_close(alone, together, rtol=ROUNDING, atol=0)


@pytest.mark.parametrize("sharpness", [1, 2, 4])
@pytest.mark.parametrize("d", [2, 4])
def test_powers_of_the_similarity_reach_their_bound(rng, d, sharpness):
    # anchors of any length: it is z that must be on the sphere
    z = torch.nn.functional.normalize(random(80, d, rng=rng), dim=-1)
    similarity = 1 + z @ random(80, d, rng=rng).mT
    assert rank(svdvals(similarity**sharpness)) == readout_rank_bound(d, sharpness)


def test_truncation_projects_onto_the_leading_directions(rng):
    matrix = random(2, 3, 9, 11, rng=rng)
    directions = torch.linalg.eigh(matrix.mT @ matrix).eigenvectors
    for r in (1, 4, 9):
        v = directions[..., -r:]
        torch.testing.assert_close(truncate(matrix, r), matrix @ v @ v.mT, rtol=0, atol=1e-10)


def test_what_truncation_loses_is_the_rest_of_the_spectrum(rng):
    matrix = random(6, 10, 10, rng=rng)
    lost = (matrix - truncate(matrix, 4)).square().sum(dim=(-2, -1))
    torch.testing.assert_close(lost, svdvals(matrix)[:, 4:].square().sum(dim=-1))
    assert (rank(svdvals(truncate(matrix, 4))) == 4).all()


def test_a_rank_that_is_enough_changes_nothing(rng):
    matrix = random(4, 8, 8, rng=rng)
    torch.testing.assert_close(truncate(matrix, 8), matrix, rtol=0, atol=ROUNDING)
    torch.testing.assert_close(truncate(matrix, 99), matrix, rtol=0, atol=ROUNDING)


def test_single_precision_stays_single(rng):
    assert truncate(torch.rand(5, 5, generator=rng), 2).dtype == torch.float32


def test_no_rank_is_refused(rng):
    with pytest.raises(ValueError, match="rank of 1 at least, got 0"):
        truncate(torch.rand(5, 5, generator=rng), 0)
