"""The contest: its protocol is what was committed, its choices and tests do what it says."""

import json
import math
from dataclasses import replace
from itertools import product
from pathlib import Path

import contest_records as made
import numpy as np
import pytest
import torch
from scipy import stats

from lohe import cost
from lohe.experiments.contest import (
    choose,
    confirm,
    law,
    measured_tables,
    page,
    tables,
    trials,
)
from lohe.experiments.contest.trials import (
    FAMILIES,
    OURS,
    PUBLISHED,
    RIVALS,
    SHARED,
    STAGES,
    confirm_runs,
    control_runs,
    curves,
    draw,
    law_runs,
    length_runs,
    narrower,
    protocol,
    scale_runs,
    trial_runs,
)
from lohe.experiments.store import recordfile
from lohe.experiments.store.records import key
from lohe.models import Oscillator, SoftmaxRope
from lohe.viz.style import drawing

NOTHING = made.evidence([])
BEST = trials.configured("softmax, rotary", {"learning_rate": 0.001, "dropout": 0.2})


@pytest.fixture(scope="module")
def everything():
    return made.evidence(made.everything())


# the protocol


def test_the_committed_protocol_is_what_the_function_draws():
    given = protocol()
    assert {name: given[name] for name in trials.generated()} == trials.generated()


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_has_as_many_models_and_meets_its_settings_equally_often(family):
    drawn = draw(family)
    space = {**SHARED, **FAMILIES[family].choices}
    settings = math.prod(map(len, space.values()))
    assert len(drawn) == 24
    assert len({(*t.options.values(), t.seeds) for t in drawn}) == 24  # no model twice
    times = [sum(t.options == o.options for t in drawn) for o in drawn]
    assert max(times) - min(times) <= 1
    assert len({tuple(t.options.values()) for t in drawn}) == min(24, settings)
    assert {tuple(t.options.values()) for t in drawn} <= set(product(*space.values()))
    runs = trial_runs(family)
    assert len({(key(run.recipe()), run.seed) for run in runs}) == 48
    assert {run.epochs for run in runs} == {10}


def test_ours_is_strictly_spherical_and_only_the_published_oscillator_is_not():
    chosen = [t.configuration.mechanism for t in draw(OURS)]
    assert {(m.anchors, m.gain) for m in chosen} == {("sphere", "learned")}
    assert PUBLISHED["oscillator as published"].mechanism.anchors == "free"


def test_no_seed_is_used_to_choose_and_to_confirm():
    used = {name: set(stage.seeds) for name, stage in STAGES.items()}
    used["trials"] = {seed for f in FAMILIES for run in trial_runs(f) for seed in [run.seed]}
    for name in used.keys() - {"confirm", "controls"}:
        assert not used[name] & used["confirm"]
    assert not used["trials"] & used["finals"]
    assert used["controls"] <= used["confirm"]  # paired with them


def test_test_is_asked_for_only_where_it_is_confirmed():
    ours = made.OUR_BEST
    open_ = confirm_runs(ours, BEST) + control_runs(ours)
    closed = law_runs(ours, BEST) + length_runs(ours, BEST) + scale_runs(ours, BEST)
    closed += [run for family in FAMILIES for run in trial_runs(family)]
    closed += STAGES["finals"].runs(ours)
    assert all(run.task.test for run in open_)
    assert not any(run.task.test for run in closed)
    assert {run.precision for run in open_} == {"float32"}


def test_all_is_paired_decayed_alike_and_chosen_on_the_same_articles():
    ours = made.OUR_BEST
    runs = confirm_runs(ours, BEST) + control_runs(ours) + law_runs(ours, BEST)
    runs += [run for family in FAMILIES for run in trial_runs(family)]
    assert {run.paired for run in runs} == {True}
    assert {run.optimizer.weight_decay for run in runs} == {1e-4}
    assert {run.select for run in runs} == {"lowest perplexity"}
    assert {run.batch * run.task.tokens for run in length_runs(ours, BEST)} == {64 * 48}


def test_what_is_confirmed():
    runs = confirm_runs(made.OUR_BEST, BEST)
    strict = [run for run in runs if run.task.protocol == "strict"]
    # four and ours at 16, ours at 32 being chosen; by the published protocol four
    assert len(strict) == 50
    assert len(runs) == 90
    as_published = confirm_runs(made.OUR_BEST, PUBLISHED["softmax as published"])
    assert len(as_published) == 70  # it is trained once


def test_a_control_changes_one_part():
    ours = made.OUR_BEST
    for name, c in trials.controls(ours).items():
        assert c != ours
        changed = replace(c, mechanism=ours.mechanism)
        assert changed == (replace(ours, positions="none") if "positions" in name else ours)
    sharp = replace(ours, mechanism=replace(ours.mechanism, sharpness=1))
    assert "p = 1" not in trials.controls(sharp)


def test_the_law_holds_two_dimensions_out():
    for by_dimension in curves(made.OUR_BEST).values():
        assert list(by_dimension) == [2, 4, 8, 16, 24, 32, 48]
    assert curves(made.OUR_BEST)["chosen"][32] == made.OUR_BEST


# choosing


def test_the_best_of_the_trials_go_on_and_the_best_of_the_finals_win():
    found = made.evidence(made.chosen_records())
    chosen = choose.chosen(found)
    assert chosen is not None
    assert chosen.family == made.THEIR_FAMILY
    tried = {t.configuration for t in draw(OURS)}
    best = min(tried, key=lambda c: made.truth(STAGES["finals"].runs(c)[0]))
    assert chosen.ours == best
    assert isinstance(chosen.best.mechanism, SoftmaxRope)
    for family in FAMILIES:
        means = [s.mean for s in choose.in_trials(found, family)]
        assert means == sorted(means)
        top = choose.finalists(found, family)
        assert top is not None
        assert len(top) == len(set(top)) == 3
    assert sum(len(s.nats) for s in choose.in_trials(found, "softmax")) == 48


def test_nothing_is_chosen_before_all_is_there():
    assert choose.chosen(NOTHING) is None
    assert choose.final_runs(NOTHING) is None
    tried = made.trials()
    assert choose.final_runs(made.evidence(tried[1:])) is None
    assert choose.final_runs(made.evidence(tried)) is not None
    assert choose.chosen(made.evidence(tried)) is None
    assert choose.chosen(made.evidence(made.chosen_records()[:-1])) is None


def test_what_diverged_is_not_chosen():
    def diverging(run):
        return math.nan if run.optimizer.lr == 1e-3 and run.seed == 0 else made.truth(run)

    found = made.evidence(made.trials(diverging))
    for family in RIVALS:
        top = choose.finalists(found, family)
        assert top is not None
        assert all(c.learning_rate < 1e-3 for c in top)


def test_choosing_does_not_look_at_other_splits():
    """Were the second half of validation turned upside down, the same would be chosen."""
    records = made.chosen_records()
    turned = [
        replace(r, result=r.result | {"later.nats": -r.result["later.nats"]}) for r in records
    ]
    assert choose.chosen(made.evidence(turned)) == choose.chosen(made.evidence(records))
    assert not any("test" in name for r in records for name in r.result)


# confirming


def test_welch_is_scipys_on_log_perplexity(everything):
    chosen = choose.chosen(everything)
    assert chosen is not None
    ours, best = (confirm.records(everything, c, "strict") for c in (chosen.ours, chosen.best))
    found = confirm.compare(ours, best)
    assert found is not None
    a, b = ([math.log(r.result["test.perplexity"]) for r in x] for x in (ours, best))
    theirs = stats.ttest_ind(a, b, equal_var=False)
    assert found.welch.p == pytest.approx(theirs.pvalue, rel=1e-9, abs=0)
    assert found.welch.interval(0.95) == pytest.approx(theirs.confidence_interval(0.95), rel=1e-9)
    paired = stats.ttest_rel(a, b).confidence_interval(0.95)
    assert found.paired is not None
    assert (found.paired.low, found.paired.high) == pytest.approx(tuple(paired), rel=1e-9)


def test_two_levels_have_the_spread_of_both():
    """The bootstrap's variance is that over the seeds of either plus that over articles."""
    draw_ = np.random.default_rng(0)
    seeds, articles = 8, 50
    targets = np.ones(articles)
    by_seed = [draw_.standard_normal((seeds, 1)) for _ in range(2)]
    by_article = 3 * draw_.standard_normal(articles)
    a, b = by_seed[0] + by_article, by_seed[1] + np.zeros(articles)
    low, high = confirm.two_level(a, b, targets, draw_, draws=40_000)
    variance = sum(x.var() / seeds for x in by_seed) + by_article.var() / articles
    assert (high - low) / 2 == pytest.approx(1.96 * math.sqrt(variance), rel=0.03)
    assert (high + low) / 2 == pytest.approx((a.mean() - b.mean()), abs=0.05)


def test_articles_count_by_their_words():
    """Two articles, one of a thousand words: without spread over seeds the interval spans both."""
    nll = np.array([[1000.0, 30.0]] * 3)
    low, high = confirm.two_level(
        nll, np.zeros((2, 2)), np.array([1000.0, 10.0]), np.random.default_rng(0)
    )
    assert (low, high) == pytest.approx((1.0, 3.0))


def test_one_seed_or_a_diverged_one_decides_nothing(everything):
    chosen = choose.chosen(everything)
    assert chosen is not None
    ours = confirm.records(everything, chosen.ours, "strict")
    lost = replace(ours[0], result=ours[0].result | {"test.nats": math.nan})
    assert confirm.compare(ours[:1], ours) is None
    assert confirm.compare([lost, *ours[1:]], ours) is None


def test_the_primary_test_stands_alone_and_the_others_are_corrected(everything):
    chosen = choose.chosen(everything)
    assert chosen is not None
    found = tables.comparisons(everything, chosen)
    corrected = tables.corrected_p(found)
    primary = found["ours"]
    assert primary is not None
    assert corrected["ours"] == primary.welch.p
    others = {name: c.welch.p for name, c in found.items() if c is not None and name != "ours"}
    assert len(others) == len(found) - 1
    smallest = min(others, key=lambda name: others[name])
    assert corrected[smallest] == pytest.approx(len(others) * others[smallest], abs=0)
    names = {n.removesuffix(", published") for n in found}
    assert names >= {"ours", "softmax as published", *trials.controls(chosen.ours)}
    assert {f"oscillator, d_osc = {d}" for d in (16, 32)} - names == {
        f"oscillator, d_osc = {chosen.ours.mechanism.d_osc}"
    }
    assert set(narrower(chosen.ours)) <= names


# the law


def test_the_law_ends_where_it_was_made_to_end(everything):
    chosen = choose.chosen(everything)
    assert chosen is not None
    for here in law.laws(everything, chosen).values():
        assert here.fit is not None
        assert here.spread is not None
        low, high = here.spread.above_baseline
        assert low < here.above_softmax < high
        assert high - low < 3
        assert here.held_out is not None
        assert set(here.held_out) == {24, 48}
    sharp = law.laws(everything, chosen)["chosen"]
    assert sharp.above_softmax == pytest.approx(95 - 98.5, abs=1)


# the preset


def test_the_preset_is_what_was_chosen_once_something_is():
    """One line, models.mechanisms.SHARPENED, follows the records that are committed."""
    folder = Path(__file__).parents[2] / "results"
    there = [recordfile.read(path).records for path in folder.glob("wikitext2articles-*.json")]
    chosen = choose.chosen(made.evidence(r for records in there for r in records.values()))
    preset = Oscillator.sharpened()
    if chosen is None:
        assert preset == Oscillator(d_osc=32, sharpness=4, gain="learned")  # the probe's
    else:
        assert preset == chosen.ours.mechanism


# the page


def test_the_page_says_what_the_primary_test_says(everything):
    said = tables.verdict(everything)
    assert said.startswith("The oscillator on the sphere is better than the best softmax: test")
    assert said in page.page(everything, "x.png")

    def worse(run):
        return made.truth(run) + 10 * isinstance(run.model.attention, Oscillator)

    lost = made.evidence(made.everything(worse))
    assert tables.verdict(lost).startswith("The best softmax is better than the oscillator")
    same = made.evidence(made.everything(lambda run: 100.0))
    assert tables.verdict(same).startswith("No difference is shown: ")


def test_a_half_confirmed_contest_decides_nothing():
    records = made.everything()
    chosen = choose.chosen(made.evidence(records))
    assert chosen is not None
    ours = key(STAGES["confirm"].runs(chosen.ours)[0].recipe())
    kept = [r for r in records if key(r.recipe) != ours or r.seed < 105]
    assert tables.verdict(made.evidence(kept)) == (
        "Nothing is decided yet: 5 of 10 seeds are confirmed."
    )


def test_the_table_has_a_row_for_each_and_every_number(everything):
    table = tables.confirmed(everything)
    first, best = table.rows[:2]
    assert first[:4] == ("ours", "32", "4", "learned")
    assert best[0] == f"best softmax ({made.THEIR_FAMILY})"
    distance = table.columns.index("to best softmax, %")
    assert best[distance : distance + 4] == ("", "", "", "")  # to itself
    assert {len(row) for row in table.rows} == {len(table.columns)}
    assert all(row[5] == "10" for row in table.rows)
    text = page.page(everything, "x.png")
    assert "no records" not in text
    for row in tables.controlled(everything).rows:
        assert f"| {row[0]} | " in text


@pytest.mark.parametrize("which", ["nothing", "trials", "chosen", "everything"])
def test_the_page_and_its_figure_work_with_what_there_is(which, tmp_path):
    records = {
        "nothing": list,
        "trials": made.trials,
        "chosen": made.chosen_records,
        "everything": made.everything,
    }[which]()
    found = made.evidence(records)
    written = page.write(tmp_path / "page.md", found)
    assert [path.name for path in written] == ["page.md", "page.png"]
    assert all(path.stat().st_size > 1000 for path in written)
    text = written[0].read_text()
    assert text == page.page(found, "page.png")  # the same from the same
    assert ("Nothing is decided yet" in text) == (which != "everything")
    if which == "nothing":
        assert "Of the trials 0 of 336 models are recorded." in text
    for table in page.TABLES:
        assert {len(row) for row in table(found).rows} <= {len(table(found).columns)}
    said = "this protocol has chosen none yet" if which in ("nothing", "trials") else "chose."
    assert said in page.preset(found)
    lacks = text.partition("## Without a record yet")[2].partition("## Protocol")[0]
    assert {
        "nothing": "confirm, controls, law, length, scale, measure: nothing before it is chosen.",
        "trials": "The trials are complete; of the finals 0 of 63 models are recorded.",
        "chosen": "- measure: 51 of 51 measurements.",
        "everything": "Nothing: ",
    }[which] in lacks


def test_the_counts_of_table_7_are_those_at_p_1():
    """The table's first rows are the paper's own numbers; sharpening only ever costs."""
    table = measured_tables.counted()
    for row in cost.table_7()[1:]:
        first = next(r for r in table.rows if r[0] == row.label)
        assert [float(x) for x in first[2:5]] == pytest.approx(row.ours, abs=0.006)
    for label in ("Oscillator, all digital", "+ readout physical"):
        by_p = [tuple(map(float, r[2:])) for r in table.rows if r[0] == label]
        assert len(by_p) == 4
        assert by_p == sorted(by_p, reverse=True)


def test_the_text_on_devices_is_true():
    """d ln a = p γ d(z·r) / (1 + γ z·r), and no weight beyond arccos(-1/γ)."""
    p, gain = 4, 2.0
    cosine = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    ((1 + gain * cosine).clamp(min=0) ** p).log().backward()
    assert cosine.grad is not None
    assert cosine.grad.item() == pytest.approx(p * gain / (1 + gain * 0.3))
    edge = math.acos(-1 / gain)
    assert 1 + gain * math.cos(edge - 1e-6) > 0 > 1 + gain * math.cos(edge + 1e-6)


def test_the_figure_has_both_curves_and_the_lines(everything):
    import matplotlib.pyplot as plt

    with drawing():
        drawn = page.figure(everything)
        (ax,) = drawn.axes
        labels = ax.get_legend_handles_labels()[1]
        texts = [text.get_text() for text in ax.texts]
        plt.close(drawn)
    assert labels == ["p = 1", "p = 4, learned gain"]
    assert texts == [f"best softmax ({made.THEIR_FAMILY})", "softmax as published"]


def test_the_protocol_is_json_that_people_can_read():
    given = protocol()
    assert json.loads(json.dumps(given)) == given
    assert set(given["rules"]) >= {"data", "equal compute", "weight decay", "primary test"}
