"""What is measured on imperfect devices, and the published numbers behind the printed ones."""

import math
from statistics import fmean, pstdev

import pytest
from invented import Untrained, evidence, measured

from lohe.experiments.reported import published
from lohe.experiments.setting import PAPERS, Setting
from lohe.experiments.studies.robust import devices, physics
from lohe.experiments.studies.robust.devices import (
    Changes,
    RobustnessGrid,
    in_unit,
    reported,
    shown,
    whole,
)
from lohe.experiments.studies.robust.physics import HORIZONS, SCALES
from lohe.experiments.studies.robust.subjects import KWS, SVA, TINYSTORIES, WIKITEXT2, carrier
from lohe.experiments.verdicts import Estimate, of_sample

SMOKE = Setting("smoke")


@pytest.fixture
def bench():
    return Untrained()


def test_the_grid_is_measured_on_every_draw(bench):
    run = SVA.recipe(SMOKE, "as published", 0)
    found = RobustnessGrid(run, draws=2, examples=40).take(bench)
    assert found.result["examples"] == 40
    kinds = [(row["physics"], row["level"]) for row in found.curve]
    assert kinds == [
        *(("settling", t) for t in HORIZONS),
        *((kind, s) for kind in ("coupling", "state", "frequency", "rotation") for s in SCALES),
    ]
    assert all(len(row["overall"]) == 2 for row in found.curve)


def test_the_changes_are_those_of_the_task(bench):
    """The same numbers by hand: one device, every fourth sentence."""
    run = SVA.recipe(SMOKE, "as published", 0)
    found = RobustnessGrid(run, draws=1, examples=64).take(bench)
    split = bench.data(run).valid
    assert len(split) == 256
    split = split.take(slice(None, None, 4))
    model = bench.model(run)
    (by_hand,) = physics.measure({0: model}, run.task, split, (physics.settling(0.5),), draws=1)
    assert found.curve[0]["overall"] == [pytest.approx(by_hand.change["overall"], rel=1e-5)]
    ideal = physics.scores(model, run.task, split)
    assert found.result["overall"] == ideal["overall"]


def test_language_models_change_in_nats(bench):
    run = WIKITEXT2.recipe(SMOKE, "as defined", 0)
    found = RobustnessGrid(run, draws=1, examples=1).take(bench)
    ideal = found.result["perplexity"]
    for row in found.curve:
        ratio = 1 + row["perplexity"][0] / ideal
        assert row["nats"][0] == pytest.approx(math.log(ratio), abs=1e-5)


# the published numbers


def paper(subject, kind, level) -> Estimate:
    found = reported(subject, kind, level)
    assert found is not None
    return found


@pytest.mark.parametrize(("n", "horizon"), list(enumerate(HORIZONS)))
def test_published_draws_give_the_printed_table_9(n, horizon):
    table = published("table9")
    assert round(paper(KWS, "settling", horizon).value, 2) == table["kws_pp"][n]
    assert paper(SVA, "settling", horizon).value == table["sva_pp"][n]
    relative = paper(TINYSTORIES, "settling", horizon).value
    ideal = table["per_draw"]["tinystories"]["closed_form"]
    assert ideal * math.expm1(relative) == pytest.approx(table["ts_ppl"][n], abs=0.006)


def test_published_draws_give_the_sentences_of_appendix_c():
    assert math.expm1(paper(TINYSTORIES, "coupling", 0.5).value) == pytest.approx(0.01, abs=2e-3)
    frequency = math.expm1(paper(TINYSTORIES, "frequency", 0.5).value)
    assert round(100 * frequency, 1) == 3.4
    assert round(100 * math.expm1(paper(TINYSTORIES, "settling", 30.0).value), 2) == 0.14
    flat = [paper(KWS, "frequency", s).value for s in SCALES]
    assert max(map(abs, flat)) < 0.1


def test_the_published_deviation_divides_by_n():
    # accuracies on 512 clips are k / 512: at s = 0.05 only these five draws fit, and only with n
    draws = [100 * k / 512 for k in (462, 462, 462, 463, 463)]
    source = published("figure8")["kws"]["frequency"]
    assert source["mean"][1] == pytest.approx(fmean(draws), abs=1e-4)
    assert source["std"][1] == pytest.approx(pstdev(draws), abs=1e-4)
    theirs = paper(KWS, "frequency", 0.05)
    whole_sample = of_sample(draws)
    assert theirs.se == pytest.approx(whole_sample.se, rel=1e-3)
    assert theirs.dof == whole_sample.dof


def test_the_paper_says_nothing_of_agreement_on_imperfect_devices():
    assert reported(SVA, "coupling", 0.5) is None
    assert paper(WIKITEXT2, "rotation", 0.5) == paper(TINYSTORIES, "frequency", 0.5)


# ours


def made_up(subject, setting, *draws_by_seed):
    runs = subject.runs(setting, "as published")
    return evidence(
        measured(
            whole(subject, setting, run),
            {},
            [{"physics": "coupling", "level": 0.5, subject.metric: list(draws)}],
        )
        for run, draws in zip(runs, draws_by_seed, strict=False)
    )


def test_errors_are_over_models_where_there_are_several():
    setting = Setting()
    several = Changes(made_up(KWS, setting, [1.0, 3.0], [4.0, 4.0]), KWS, "as published")
    assert several.at("coupling", 0.5) == Estimate(3.0, 1.0, 1, seeds=2, own=1.0)
    single = Changes(made_up(KWS, setting, [1.0, 3.0]), KWS, "as published")
    assert single.at("coupling", 0.5) == Estimate(2.0, 1.0, 1)
    alone = Changes(made_up(KWS, setting, [1.0]), KWS, "as published").at("coupling", 0.5)
    assert alone == Estimate(1.0, math.inf)
    assert single.at("coupling", 0.2) is None


def test_units():
    doubled = Estimate(math.log(2), 0.01, 4)
    assert in_unit(doubled, WIKITEXT2) == pytest.approx((100, 2))
    assert shown(doubled, WIKITEXT2) == "+100.00±2.00"
    assert shown(Estimate(-0.001, 0.02, 4), KWS) == "+0.00±0.02"
    assert shown(Estimate(-0.1, math.inf), KWS) == "-0.10"
    assert shown(None, KWS) == ""


def test_tinystories_carries_the_verdict_only_where_it_is_the_papers():
    assert carrier(Setting(), "as published") is WIKITEXT2
    assert carrier(Setting("full", PAPERS), "as published") is TINYSTORIES
    assert carrier(Setting("full", PAPERS), "as defined") is WIKITEXT2


def test_every_measure_is_taken_once_and_smoke_runs_are_small():
    full, smoke = devices.measures(Setting()), devices.measures(SMOKE)
    assert len(set(full)) == len(full)
    # models in both readings (TinyStories in one), and one of three tasks on a subset
    assert len(full) == 2 * (5 + 20 + 3) + 1 + 3
    assert len(smoke) == 7
    assert all(m.draws == 1 and m.examples <= 64 for m in smoke)
