"""Starting where the previous token came to rest."""

import pytest
from invented import SMOKE, Untrained, evidence, measured

from lohe.experiments.studies.settle import sequential
from lohe.experiments.studies.settle.drives import AS_PUBLISHED, COHORTS
from lohe.experiments.studies.settle.sequential import D_OSC, Starts, starts


def found(errors):
    """Records of all cohorts with these (uniform, sequential) mean errors by d_osc."""
    return [
        measured(
            starts(SMOKE, cohort, d),
            {
                "uniform.mean_error": a,
                "sequential.mean_error": b,
                "uniform.converged": 0.9,
                "sequential.converged": 0.95,
            },
        )
        for cohort in COHORTS
        for d, (a, b) in errors.items()
    ]


def test_a_start_at_the_previous_token_is_close_where_the_drive_hardly_turns():
    # untrained couplings are alike, so neighbouring tokens have neighbouring fixed points
    measure = Starts(AS_PUBLISHED.run(SMOKE, 2), chunks=2, draws=2, horizon=0.1)
    result = measure.take(Untrained()).result
    assert result["sequential.mean_error"] < 0.5 * result["uniform.mean_error"]


def test_in_the_end_both_arrive():
    measure = Starts(AS_PUBLISHED.run(SMOKE, 8), chunks=1, draws=1, horizon=1e5)
    result = measure.take(Untrained()).result
    assert result["uniform.converged"] == result["sequential.converged"] == 1


def test_the_noise_is_that_of_the_paper():
    assert starts(SMOKE, AS_PUBLISHED, 2).noise == 0.05
    assert Starts(AS_PUBLISHED.run(SMOKE, 2)).draws == 5


@pytest.mark.parametrize(
    ("errors", "expected"),
    [
        # the published ones: severalfold at 2, and not negligible at 32 (D23)
        ({2: (0.1093, 0.0237), 8: (0.0239, 0.0095), 32: (0.00387, 0.00142)}, [True, None, False]),
        ({2: (0.1, 0.06), 8: (0.1, 0.1), 32: (0.1, 0.09)}, [False, None, True]),
        ({2: (0.0, 0.0), 8: (0.0, 0.0), 32: (0.0, 0.0)}, [None, None, None]),
    ],
)
def test_the_ratio_decides(errors, expected):
    lines = sequential.lines(evidence(found(errors), "smoke"))
    holds = [line.claim.holds if line.claim else None for line in lines]
    assert holds == expected * len(COHORTS)
    assert len(sequential.table(evidence(found(errors), "smoke")).rows) == len(COHORTS) * 3 + len(
        D_OSC
    )


def test_the_paper_prints_four_point_six():
    assert [line.paper for line in sequential.lines(evidence((), "smoke"))][:3] == [
        "4.6 (TinyStories)",
        "2.5 (TinyStories)",
        "2.7, called negligible (TinyStories)",
    ]
