"""Perplexity of a model whose oscillators have to settle."""

import math

import pytest
import torch
from invented import SMOKE, Untrained, evidence, measured

from lohe import ops, sphere
from lohe.dynamics import flow
from lohe.experiments.studies.settle import inference_modes
from lohe.experiments.studies.settle.drives import AS_PUBLISHED
from lohe.experiments.studies.settle.inference_modes import (
    COHORTS,
    D_OSC,
    InferenceModes,
    PassedOn,
    changes,
    modes,
    published_changes,
)
from lohe.experiments.verdicts import Agreement, judge

ROUNDING = 1e-12


def drives(rng, *shape):
    return torch.randn(*shape, generator=rng, dtype=torch.float64)


def test_a_constant_drive_is_one_long_flow(rng):
    # the semigroup property: five tokens of the same drive for T are one for 5 T
    h = drives(rng, 3, 1, 4).expand(3, 5, 4)
    states = PassedOn(0.3, torch.Generator().manual_seed(1))(h)
    start = sphere.uniform(3, 4, generator=torch.Generator().manual_seed(1), dtype=h.dtype)
    for n in range(5):
        error = states[:, n] - flow(start, h[:, n], 0.3 * (n + 1))
        assert error.abs().max() < ROUNDING


def test_each_token_starts_where_the_one_before_was(rng):
    h = drives(rng, 2, 3, 6, 2)
    states = PassedOn(0.5, torch.Generator())(h)
    expected = flow(states[..., :-1, :], h[..., 1:, :], 0.5)
    assert (states[..., 1:, :] - expected).abs().max() < ROUNDING


def test_with_time_enough_it_is_the_closed_form(rng):
    h = drives(rng, 2, 7, 8)
    assert (PassedOn(1e4, rng)(h) - ops.fixed_point(h)).abs().max() < ROUNDING


@pytest.fixture(scope="module")
def findings():
    measure = InferenceModes(AS_PUBLISHED.run(SMOKE, 2), draws=2, horizon=0.5)
    return measure.take(Untrained())


def test_both_protocols_both_modes_every_draw(findings):
    assert set(findings.result) == {"published.closed_form", "strict.closed_form"}
    kinds = [(row["protocol"], row["mode"], row["draw"]) for row in findings.curve]
    assert len(set(kinds)) == len(kinds) == 2 * 2 * 2
    # cut short, every draw has a perplexity of its own
    assert len({row["perplexity"] for row in findings.curve}) == 8


def test_with_time_enough_the_perplexity_is_that_of_the_closed_form():
    measure = InferenceModes(AS_PUBLISHED.run(SMOKE, 8), draws=1, horizon=1e5)
    record = measured(measure, *vars(measure.take(Untrained())).values())
    for mode in ("uniform", "sequential"):
        assert abs(changes(record, "published", mode)[0]) < 1e-6  # float32


def records(uniform, sequential, ideal=107.0):
    curve = [
        {"protocol": protocol, "mode": mode, "draw": n, "perplexity": x}
        for protocol in ("published", "strict")
        for mode, found in (("uniform", uniform), ("sequential", sequential))
        for n, x in enumerate(found)
    ]
    result = {f"{protocol}.closed_form": ideal for protocol in ("published", "strict")}
    return [measured(modes(SMOKE, c, d), result, curve) for c in COHORTS for d in D_OSC]


def test_the_published_numbers_hold_by_their_own_rules():
    paper = inference_modes.published("claim-inference-modes")
    theirs = records(paper["uniform"], [paper["sequential"]] * 2, paper["closed_form"])
    lines = inference_modes.lines(evidence(theirs, "smoke"))
    assert [line.claim.holds for line in lines if line.claim] == [True] * 8
    compared = [line for line in lines if isinstance(line.value, Agreement)]
    assert len(compared) == 4  # two readings, two modes
    assert {j.value for j in judge(lines) if j.line in compared} == {"reproduced"}
    assert [line.paper for line in compared[:2]] == ["+0.129 ± 0.016", "+0.039"]


@pytest.mark.parametrize(
    ("uniform", "sequential", "expected"),
    [
        ([107.3, 107.3], [107.1, 107.1], [False, True]),  # 0.3 of 107 is 0.0028
        ([107.1, 107.1], [107.2, 107.2], [True, False]),
        ([math.inf, 107.0], [107.0, 107.0], [None, None]),
        ([math.nan, 107.0], [math.nan, 107.0], [None, None]),
    ],
)
def test_the_claims_can_fail(uniform, sequential, expected):
    here = evidence(records(uniform, sequential), "smoke")
    lines = inference_modes.lines(here)
    assert [line.claim.holds for line in lines if line.claim] == expected * 4
    assert len(inference_modes.table(here).rows) == len(COHORTS) * len(D_OSC) * 2 + 1
    judge(lines)


def test_published_changes_are_those_of_the_prose():
    assert round(110.2156 * math.expm1(sum(published_changes("uniform")) / 5), 2) == 0.13
    assert round(110.2156 * math.expm1(published_changes("sequential")[0]), 2) == 0.04
