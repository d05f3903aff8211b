"""What Euler and RK45 make of the same oscillators."""

import math
from dataclasses import replace

import pytest
import torch
from invented import SMOKE, Untrained, evidence, measured

from lohe import sphere
from lohe.dynamics import Euler
from lohe.experiments.reported import published
from lohe.experiments.studies.settle import integrators
from lohe.experiments.studies.settle.integrators import (
    PAIRS,
    angles,
    euler_orbit,
    integrated,
    models,
    off_orbit,
)
from lohe.experiments.verdicts import judge

STEP = 0.05


def starts(rng, *shape):
    return sphere.uniform(*shape, generator=rng, dtype=torch.float64)


def test_the_published_unstable_token_is_where_theory_puts_it():
    token = published("claim-integrators")["language"]["unstable"]
    orbit = euler_orbit(torch.tensor(STEP * token["norm"], dtype=torch.float64))
    assert round(math.degrees(orbit), 2) == token["degrees"]


@pytest.mark.parametrize("u", [2.1, 3.0, 10.0, 78.755])
def test_the_orbit_is_one_of_the_map(u):
    theta = euler_orbit(torch.tensor(u, dtype=torch.float64)).item()
    assert theta - math.atan(u * math.sin(theta)) == pytest.approx(-theta, abs=1e-12)
    # and attracts: any other start ends there, on either side
    x = 0.3
    for _ in range(5000):
        x -= math.atan(u * math.sin(x))
    assert abs(x) == pytest.approx(theta, abs=1e-9)


def test_below_the_limit_there_is_none():
    assert euler_orbit(torch.tensor([0.0, 1.0, 2.0], dtype=torch.float64)).tolist() == [0, 0, 0]
    at_45 = euler_orbit(torch.tensor(1e9, dtype=torch.float64)).rad2deg()
    assert at_45.item() == pytest.approx(45)


@pytest.mark.parametrize("d", [2, 8])
def test_euler_ends_on_the_orbit_where_it_is_unstable(rng, d):
    norm = torch.tensor([10.0, 39.0, 60.0, 300.0, 1575.1], dtype=torch.float64)
    h = norm[:, None] * starts(rng, 5, d)
    state = integrated(starts(rng, 5, d), h, 30.0, Euler(STEP, project=sphere.normalize))
    angle = sphere.angle(state, sphere.normalize(h)).rad2deg()
    off = off_orbit(angle, norm, STEP)
    assert off["unstable"] == 3
    assert off["unstable.off_orbit"] < 1e-3
    assert off["strongest.degrees"] == pytest.approx(44.48, abs=0.01)
    assert angle[:2].max() < 1e-9


def test_where_all_is_well_all_agree(rng):
    h = torch.linspace(5, 10, 20, dtype=torch.float64)[:, None] * starts(rng, 20, 2)
    found = angles(starts(rng, 20, 2), h, 5.0, STEP, 1e-6)
    assert max(angle.max() for angle in found.values()) < 0.01


def test_a_weak_drive_lacks_time_and_not_accuracy(rng):
    h = 0.02 * starts(rng, 50, 8)
    found = angles(starts(rng, 50, 8), h, 30.0, 0.2, 1e-6)
    assert found["flow"].median() > 10  # e^-0.6 of the way is left
    assert found["rk45_flow"].max() < 1e-3
    assert (found["euler"] - found["flow"]).abs().max() < 0.1
    assert set(found) == set(PAIRS)


@pytest.mark.parametrize("kind", ["keywords", "language"])
def test_on_a_model(kind):
    measure = next(m for m, *_, of in models(SMOKE) if of == kind)
    result = replace(measure, horizon=3.0, step=0.1).take(Untrained()).result
    assert result["oscillators"] == {"keywords": 2 * 2 * 49, "language": 4 * 49}[kind]
    assert result["unstable"] == 0
    assert result["rk45_flow.largest"] < 0.01
    assert result["rk45.median"] <= result["rk45.99%"] <= result["rk45.largest"]


def records(**angles_):
    """All models alike; angles by name, 0 unless given."""
    names = {f"{pair}.{x}": 0.0 for pair in PAIRS for x in ("median", "99%", "largest")}
    found = names | {"oscillators": 10, "norm.largest": 50.0, "unstable": 1} | angles_
    return [measured(measure, found) for measure, *_ in models(SMOKE)]


@pytest.mark.parametrize(
    ("found", "holds"),
    [
        ({}, True),
        ({"rk45.largest": 120.7, "euler.largest": 120.7}, False),  # as published: D13
        ({"euler.largest": 44.5}, False),
        ({"euler.median": 0.02, "euler.largest": 0.5}, False),
        ({"rk45.largest": math.nan}, None),
    ],
)
def test_the_claim_is_of_the_largest_angle_too(found, holds):
    here = evidence(records(**found), "smoke")
    lines = integrators.lines(here)
    assert {line.claim.holds for line in lines if line.claim} == {holds}
    assert len(integrators.table(here).rows) == len(models(SMOKE)) + 2
    assert judge(lines)[-1].value == "reproduced"
