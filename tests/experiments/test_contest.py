"""The contest: its protocol is what was committed, its choices and tests do what it says."""

import json
import math
from dataclasses import replace
from functools import cache
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
    further,
    law,
    measured,
    measured_tables,
    page,
    plan,
    seen,
    stages,
    tables,
    trials,
    verdict,
)
from lohe.experiments.contest.stages import (
    LARGE_RATES,
    Chosen,
    confirm_runs,
    control_runs,
    curves,
    epochs_runs,
    law_runs,
    length_runs,
    narrower,
    published_runs,
    rotary_runs,
)
from lohe.experiments.contest.trials import (
    FAMILIES,
    MATCHED,
    OURS,
    PUBLISHED,
    RATES,
    RIVALS,
    ROTARY,
    SHARED,
    STAGES,
    TRIED,
    draw,
    protocol,
    trial_runs,
)
from lohe.experiments.evidence import Evidence
from lohe.experiments.measures import measure_recipe
from lohe.experiments.setting import Setting
from lohe.experiments.store import recordfile
from lohe.experiments.store.records import key
from lohe.experiments.store.store import Store
from lohe.experiments.verdicts import of_sample
from lohe.measure import power_law
from lohe.models import Oscillator
from lohe.version import digest
from lohe.viz.style import drawing

NOTHING = made.evidence([])
PAIR = ("ours", confirm.BEST)
WON = {"learning_rate": 8e-3, "dropout": 0.2}
SOFTMAXES = (ROTARY, *(name for name in RIVALS if name != ROTARY))
CHOSEN = Chosen(made.OUR_BEST, tuple((f, trials.configured(f, WON)) for f in SOFTMAXES))


@pytest.fixture(scope="module")
def everything():
    return made.evidence(made.everything())


# the protocol


def test_the_committed_protocol_is_what_the_function_draws():
    given = protocol()
    assert {name: given[name] for name in plan.generated()} == plan.generated()


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
    for name in used.keys() - {"confirm", "controls", "published", "rotary"}:
        assert not used[name] & used["confirm"]
    assert not used["trials"] & used["rates"]
    assert used["controls"] <= used["confirm"]  # paired with them


def test_test_is_asked_for_only_where_it_is_confirmed():
    ours = made.OUR_BEST
    open_ = confirm_runs(CHOSEN) + control_runs(CHOSEN) + rotary_runs(CHOSEN)
    open_ += published_runs(CHOSEN)
    closed = law_runs(CHOSEN) + length_runs(CHOSEN) + epochs_runs(CHOSEN)
    closed += STAGES["scale rates"].runs(ours)
    closed += [run for family in FAMILIES for run in trial_runs(family)]
    closed += STAGES["rates"].runs(ours)
    assert all(run.task.test for run in open_)
    assert not any(run.task.test for run in closed)
    assert {run.precision for run in open_} == {"float32"}
    large = stages.larger(ours)
    assert {(run.task.test, run.precision) for run in large} == {(True, "tf32")}


def test_all_is_paired_decayed_alike_and_chosen_on_the_same_articles():
    runs = confirm_runs(CHOSEN) + control_runs(CHOSEN) + law_runs(CHOSEN)
    runs += [run for family in FAMILIES for run in trial_runs(family)]
    assert {run.paired for run in runs} == {True}
    assert {run.optimizer.weight_decay for run in runs} == {1e-4}
    assert {run.select for run in runs} == {"lowest perplexity"}
    assert {run.batch * run.task.tokens for run in length_runs(CHOSEN)} == {64 * 48}
    large = [run for c in CHOSEN.families.values() for run in stages.larger(c)]
    assert {(r.model.layers, r.model.d_model, r.task.tokens) for r in large} == {(6, 384, 256)}
    assert {run.batch * run.task.tokens for run in large} == {64 * 48}


def test_30_epochs_of_both_with_the_seeds_of_t_48():
    runs = epochs_runs(CHOSEN)
    assert {run.epochs for run in runs} == {30}
    assert {run.optimizer.lr for run in runs} == {8e-3, 4e-3}
    assert {run.model.attention for run in runs} == {CHOSEN.ours.mechanism, CHOSEN.best.mechanism}
    assert {run.seed for run in runs} == set(STAGES["length"].seeds)


def test_what_is_confirmed():
    """Ten seeds each: ours at each d_osc, all softmaxes, and two by the published protocol too."""
    runs = confirm_runs(CHOSEN)
    strict = [run for run in runs if run.task.protocol == "strict"]
    assert len(strict) == 80  # ours at 16, ours at 32 being chosen, and six softmaxes
    assert len(runs) == 100
    assert {run.epochs for run in runs} == {10}
    there = {run.model.attention for run in strict}
    assert {16, 32} <= {m.d_osc for m in there if getattr(m, "gain", None) == "learned"}
    assert {c.mechanism for _, c in CHOSEN.softmaxes} <= there
    wide = replace(CHOSEN.ours, mechanism=replace(CHOSEN.ours.mechanism, d_osc=48))
    assert len(confirm_runs(replace(CHOSEN, ours=wide))) == 110


def test_what_is_as_published_is_trained_as_long_as_published_and_by_both_protocols():
    runs = published_runs(CHOSEN)
    assert len(runs) == 40
    settings = {(r.epochs, r.optimizer.lr, r.model.dropout) for r in runs}
    assert settings == {(30, 5e-4, 0.1)}
    protocols = {(r.model.attention, r.task.protocol) for r in runs}
    assert {m for m, _ in protocols} == {c.mechanism for c in PUBLISHED.values()}
    assert len(protocols) == 4
    assert not {key(r.recipe()) for r in runs} & {key(r.recipe()) for r in confirm_runs(CHOSEN)}


def test_a_control_changes_one_part():
    ours = made.OUR_BEST
    for name, c in stages.controls(ours).items():
        assert c != ours
        changed = replace(c, mechanism=ours.mechanism)
        assert changed == (replace(ours, positions="none") if "positions" in name else ours)
    sharp = replace(ours, mechanism=replace(ours.mechanism, sharpness=1))
    without = stages.controls(sharp)
    assert "p = 1, learned gain" not in without
    assert "p = 1, no gain" in without  # which "no gain" is too
    assert "no gain" not in without
    assert len(without) == len(stages.controls(ours)) - 2


def test_the_law_holds_two_dimensions_out():
    for by_dimension in curves(made.OUR_BEST).values():
        assert list(by_dimension) == [2, 4, 8, 16, 24, 32, 48]
    assert curves(made.OUR_BEST)["chosen"][32] == made.OUR_BEST


def test_the_budget_is_what_the_stated_speed_gives():
    def minutes(runs):
        packs = {}
        for run in runs:
            packs[replace(run, seed=0)] = packs.get(replace(run, seed=0), 0) + 1
        assert max(packs.values()) <= 10  # seeds of a pack
        return round(plan.seconds_in_all(packs.items()) / 60)

    said = protocol()["rules"]["budget"]
    five = [
        run
        for _, c in (("", CHOSEN.ours), *CHOSEN.softmaxes)
        for rate in RATES[:5]
        for run in STAGES["rates"].runs(replace(c, learning_rate=rate))
    ]
    assert f"trials {minutes(run for f in TRIED for run in trial_runs(f))}," in said
    assert f"the search {minutes(five)} with five configurations a family" in said
    wide = replace(CHOSEN.ours, mechanism=replace(CHOSEN.ours.mechanism, d_osc=48))
    won = replace(CHOSEN, ours=wide)
    for stage, needed in stages.LATER_RUNS.items():
        assert f"{stage} {minutes(needed(won))}" in said
    large = [run for _, c in won.families.items() for run in stages.larger(c)]
    for _, c in won.families.items():
        tried = [replace(c, learning_rate=rate, dropout=0.1) for rate in LARGE_RATES[1:5]]
        for one in (*tried, replace(c, dropout=0.2)):
            large += stages.larger(one, "scale rates")
    assert f"scale {minutes(large)} with five configurations a family in its search" in said
    five_seeds = replace(law_runs(CHOSEN)[0], epochs=30)
    speed = plan.seconds(five_seeds, 5) - protocol()["speed"]["start"]
    assert speed == pytest.approx(73, abs=1)  # packs-cuda.json
    assert plan.seconds(published_runs(CHOSEN)[0], 5) == pytest.approx(102, abs=1)


def test_amendments_are_dated_and_printed():
    text = page.protocol_page(NOTHING, "x")
    for amendment in protocol()["amendments"]:
        assert set(amendment) == {"date", "when", "what", "why"}
        assert amendment["when"].startswith(("before any run of the contest", "after "))
        assert amendment["what"] in text
        assert amendment["why"] in text


def test_the_code_that_trains_is_the_one_that_was_entered():
    code = protocol()["code"]
    assert digest(*code["folders"]) == code["sha256"], (
        f"Some of {', '.join(code['folders'])} have changed while the contest runs. Take the "
        "change back, or enter it in protocol.json as an amendment, with the new digest."
    )


def test_what_was_scored_on_test_before_is_read_from_the_records():
    folder = Path(__file__).parents[2] / "results"
    there = [recordfile.read(path).records.values() for path in folder.glob("wikitext2-*.json")]
    elsewhere = [r for records in there for r in records]
    found = seen.scored_elsewhere(made.evidence(elsewhere))
    for line in (
        "Oscillator at 2, 4, 8, 16, 32, 64",
        "Oscillator(sharpness=2) at 2, 8",  # recorded as 2 and as 2.0
        "Oscillator(sharpness=4) at 2, 8",
        "RankMatchedSoftmax at 2, 4, 8, 16",
        "Softmax",
    ):
        assert f"{line}, trained by the published protocol" in found
    with_ours = made.evidence([*elsewhere, *made.everything()])
    assert seen.scored_elsewhere(with_ours) == found  # the contest's own are not among them
    closed = [replace(r, result={"valid.nats": 4.5}) for r in elsewhere]
    assert seen.scored_elsewhere(made.evidence(closed)) == []


# choosing


def test_what_diverged_is_not_chosen():
    def diverging(run):
        return math.nan if run.optimizer.lr == 1e-3 and run.seed == 0 else made.truth(run)

    found = made.evidence(made.trials(diverging))
    for family in TRIED[1:]:
        first, *_ = choose.in_trials(found, family)
        assert first.configuration.learning_rate < 1e-3


def test_what_diverged_after_its_best_epoch_is_not_chosen_either():
    """Its selected epoch is finite; the loss of a later one is not."""
    records = [
        replace(r, curve=[{"loss": 5.0}, {"loss": math.nan}])
        if r.recipe["optimizer"]["lr"] == 1e-3 and r.seed == 0
        else r
        for r in made.trials()
    ]
    found = made.evidence(records)
    for family in TRIED[1:]:
        first, *_ = choose.in_trials(found, family)
        assert first.configuration.learning_rate < 1e-3


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
    chosen = made.chosen(everything)
    ours, best = (confirm.records(everything, c, "strict") for c in (chosen.ours, chosen.best))
    found = confirm.compare(ours, best, PAIR, (10, 10))
    assert isinstance(found, confirm.Comparison)
    a, b = ([math.log(r.result["test.perplexity"]) for r in x] for x in (ours, best))
    theirs = stats.ttest_ind(a, b, equal_var=False)
    assert found.welch.p == pytest.approx(theirs.pvalue, rel=1e-9, abs=0)
    assert found.welch.interval(0.95) == pytest.approx(theirs.confidence_interval(0.95), rel=1e-9)
    paired = stats.ttest_rel(a, b).confidence_interval(0.95)
    assert found.paired is not None
    assert found.paired.interval(0.95) == pytest.approx(tuple(paired), rel=1e-9)


def test_two_levels_have_the_spread_of_both():
    """The bootstrap's variance is that over the seeds of either plus that over articles."""
    draw_ = np.random.default_rng(0)
    seeds, articles = 8, 50
    targets = np.ones(articles)
    by_seed = [draw_.standard_normal((seeds, 1)) for _ in range(2)]
    by_article = 3 * draw_.standard_normal(articles)
    a, b = by_seed[0] + by_article, by_seed[1] + np.zeros(articles)
    low, high = confirm.two_level(a, b, targets, draw_, draws=40_000)
    wider = stats.t.ppf(0.975, 2 * (seeds - 1)) / 1.96  # for the few seeds
    variance = sum(wider**2 * x.var(ddof=1) / seeds for x in by_seed)
    variance += by_article.var() / articles
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
    chosen = made.chosen(everything)
    ours = confirm.records(everything, chosen.ours, "strict")
    lost = replace(ours[0], result=ours[0].result | {"test.nats": math.nan})
    assert confirm.compare([], ours, PAIR, (2, 2)) == confirm.Undecided("no records")
    few = confirm.compare(ours[:1], ours, PAIR, (2, 2))
    assert few == confirm.Undecided("ours has 1 of 2 seeds")
    for n in (0, 9):
        few = confirm.compare(ours, ours[:n], PAIR, (10, 10))
        assert few == confirm.Undecided(f"the best softmax has {n} of 10 seeds")
    found = confirm.compare(ours, [lost, *ours[1:]], PAIR, (10, 10))
    assert found == confirm.Undecided("undecided: seed 100 of the best softmax diverged", True)


def test_the_primary_test_stands_alone_and_the_others_are_corrected(everything):
    chosen = made.chosen(everything)
    found = confirm.comparisons(everything, chosen)
    corrected = confirm.p_values(found)
    primary = found["ours"]
    assert isinstance(primary, confirm.Comparison)
    assert corrected["ours"] == primary.welch.p
    others = {
        n: c.welch.p for n, c in found.items() if isinstance(c, confirm.Comparison) and n != "ours"
    }
    assert len(others) == len(found) - 1
    smallest = min(others, key=lambda name: others[name])
    assert corrected[smallest] == pytest.approx(len(others) * others[smallest], abs=0)
    names = {n.removesuffix(", published") for n in found}
    assert names >= {"ours", "softmax as published", *stages.controls(chosen.ours)}
    assert {f"oscillator, d_osc = {d}" for d in (16, 32)} - names == {
        f"oscillator, d_osc = {chosen.ours.mechanism.d_osc}"
    }
    assert set(narrower(chosen.ours)) <= names


def test_holm_counts_what_was_planned():
    """With half of the controls missing and one diverged, the others are corrected as for all."""
    records = made.everything()
    chosen = made.chosen(made.evidence(records))
    gone = {
        key(STAGES["controls"].runs(c)[0].recipe())
        for name, c in stages.controls(chosen.ours).items()
        if name in ("no dynamics", "frozen anchors", "learned p")
    }
    lost = key(STAGES["controls"].runs(stages.controls(chosen.ours)["no gain"])[0].recipe())
    kept = [
        replace(r, result=r.result | {"test.nats": math.nan}) if key(r.recipe) == lost else r
        for r in records
        if key(r.recipe) not in gone
    ]
    found = confirm.comparisons(made.evidence(kept), chosen)
    corrected = confirm.p_values(found)
    whole = confirm.comparisons(made.evidence(records), chosen)
    assert found.keys() == whole.keys()
    assert corrected["no gain"] == corrected["no dynamics"] == 1
    there = {
        n: c.welch.p for n, c in found.items() if isinstance(c, confirm.Comparison) and n != "ours"
    }
    smallest = min(there, key=lambda name: there[name])
    assert corrected[smallest] == pytest.approx((len(found) - 1) * there[smallest], abs=0)
    cells = {row[0]: row for row in tables.controlled(made.evidence(kept)).rows}
    seeds = "100, 101, 102, 103, 104"
    assert f"undecided: seed {seeds} of no gain diverged" in cells["no gain"]
    assert f"5 ({seeds} diverged)" in cells["no gain"]
    assert "no records" in cells["no dynamics"]


def test_a_comparison_short_of_its_seeds_counts_as_missing():
    """Three of five seeds of a control: Holm's p is 1."""
    records = made.everything(best_at_48(5.0))
    chosen = made.chosen(made.evidence(records))
    part = key(STAGES["controls"].runs(stages.controls(chosen.ours)["no gain"])[0].recipe())
    kept = made.evidence(r for r in records if key(r.recipe) != part or r.seed < 103)
    found = confirm.comparisons(kept, chosen)
    assert found["no gain"] == confirm.Undecided("no gain has 3 of 5 seeds")
    assert confirm.p_values(found)["no gain"] == 1


# the goal


@cache
def best_at_48(added: float) -> made.Truth:
    """The oscillator of d_osc = 48 is better by 10, others are worse by so much."""

    def truth(run):
        d = getattr(run.model.attention, "d_osc", None)
        return made.truth(run) - 10 * (d == 48) + added * (d not in (None, 48))

    return truth


@pytest.mark.parametrize(
    ("added", "said"), [(0.0, "is met (at d_osc = 16: -"), (5.0, "is not met (at d_osc = 16: +")]
)
def test_the_goal_is_judged_at_16_and_32_also_where_48_is_chosen(added, said):
    """Better at 48 alone does not meet it; better at 16 or 32, Holm-corrected, does."""
    found = made.evidence(made.everything(best_at_48(added)))
    chosen = made.chosen(found)
    assert chosen.ours.mechanism.d_osc == 48
    text = verdict.verdict(found)
    assert text.startswith("The oscillator on the sphere, d_osc = 48 and p = 4, is better")
    assert f"at d_osc 16 or 32 with a p-value below 0.01, {said}" in text
    corrected = confirm.p_values(confirm.comparisons(found, chosen))
    for d in (16, 32):
        assert f"(p-value {corrected[f'oscillator, d_osc = {d}']:.2g})" in text


@pytest.mark.parametrize(
    ("added", "first", "last"), [(1.8, "open", "met"), (2.0, "not met", "not met")]
)
def test_the_goal_is_open_while_planned_comparisons_lack_records(added, first, last):
    """Holm's correction falls as they come in, to Welch's own p at the least: 0.002 and 0.07; to no
    more than the others leave it."""

    def truth(run):
        d = getattr(run.model.attention, "d_osc", None)
        return best_at_48(5.0)(run) - (5.0 - added) * (d == 16)

    records = made.everything(truth)
    chosen = made.chosen(made.evidence(records))
    controls = {key(run.recipe()) for run in stages.LATER_RUNS["controls"](chosen)}
    confirmed = {key(run.recipe()) for run in stages.LATER_RUNS["confirm"](chosen)}
    without = [r for r in records if key(r.recipe) not in controls - confirmed]
    assert f" is {last} (" in verdict.verdict(made.evidence(records))
    assert f" is {first} (" in verdict.verdict(made.evidence(without))
    found = confirm.comparisons(made.evidence(without), chosen)
    at_best = confirm.p_values(found, lacking=0.0)
    whole = confirm.p_values(confirm.comparisons(made.evidence(records), chosen))
    assert all(at_best[name] <= whole[name] for name in found)


def test_where_ours_is_at_32_the_primary_test_counts(everything):
    chosen = made.chosen(everything)
    primary = confirm.comparisons(everything, chosen)["ours"]
    assert isinstance(primary, confirm.Comparison)
    change = confirm.percent(primary.welch.value)
    said = f"at d_osc = 32: {change:+.2f} % (p-value {primary.welch.p:.2g})"
    assert said in verdict.goal(everything, chosen)


@pytest.mark.parametrize("where", ["on test", "after its best epoch"])
def test_a_diverged_run_is_named_and_decides_nothing(where):
    records = made.everything()
    chosen = made.chosen(made.evidence(records))
    ours = key(STAGES["confirm"].runs(chosen.ours)[0].recipe())

    def diverge(r):
        if where == "on test":
            return replace(r, result=r.result | {"test.nats": math.nan})
        return replace(r, curve=[{"loss": 5.0}, {"loss": math.inf}])

    lost = [diverge(r) if (key(r.recipe), r.seed) == (ours, 103) else r for r in records]
    found = made.evidence(lost)
    said = verdict.verdict(found)
    undecided = "undecided: seed 103 of ours diverged"
    assert said.startswith(f"The comparison is {undecided}. ")
    assert f"at d_osc = 32: {undecided}" in said
    first = dict(zip(tables.confirmed(found).columns, tables.confirmed(found).rows[0], strict=True))
    assert first["to best softmax, %"] == undecided
    assert first["seeds"] == "10 (103 diverged)"
    others = tables.confirmed(found).rows[1:]
    assert not any("diverged" in cell for row in others for cell in row)


def test_a_goal_that_a_diverged_run_leaves_undecided_is_not_open():
    """Everything is recorded and no run is repeated; d_osc = 16 is worse than softmax."""
    records = made.everything(lambda run: made.truth(run) + 10 * bool(is_16(run)))
    chosen = made.chosen(made.evidence(records))
    ours = key(STAGES["confirm"].runs(chosen.ours)[0].recipe())
    lost = [
        replace(r, curve=[{"loss": math.inf}]) if (key(r.recipe), r.seed) == (ours, 103) else r
        for r in records
    ]
    assert " is undecided (" in verdict.goal(made.evidence(lost), chosen)


def is_16(run):
    return getattr(run.model.attention, "d_osc", 0) == 16


def test_numbers_of_what_diverged_are_in_no_mean(everything):
    """At T = 128 ours loses a seed, in 30 epochs all of them."""
    chosen = made.chosen(everything)
    longer = stages.longer(chosen.ours, 128)
    one = key(longer[0].recipe())
    ours = key(stages.trained_longer(chosen.ours, 0.5)[0].recipe())

    def lose(r):
        if key(r.recipe) == ours or (key(r.recipe), r.seed) == (one, 51):
            return replace(r, curve=[{"loss": math.nan}], result=r.result | {"later.perplexity": 9})
        return r

    found = made.evidence(map(lose, made.everything()))
    table = further.further(found)
    rows = {(row[0], row[1]): dict(zip(table.columns, row, strict=True)) for row in table.rows}
    row = rows["T = 128", "ours"]
    assert row["seeds"] == "3 (51 diverged)"
    kept = [r.result["later.perplexity"] for r in everything.records(longer[0]) if r.seed != 51]
    assert row["validation"] == tables.shown(kept)
    assert row["to best softmax, %"] == "undecided: seed 51 of ours diverged"
    assert rows["30 epochs, half the learning rate", "ours"]["validation"] == "diverged"


def test_ours_at_the_largest_p_is_an_edge_optimum(everything):
    assert verdict.edges(everything) == ""

    def sharper_is_better(run):
        return made.truth(run) - 2 * getattr(run.model.attention, "sharpness", 0)

    found = made.evidence(made.chosen_records(sharper_is_better))
    said = verdict.edges(found)
    assert said == "Edge optimum, at the largest p that was searched, 8: ours."
    assert said in page.page(found, "x")


# longer, and larger


def test_differences_are_paired_and_t_48_is_trained_with_the_same_seeds(everything):
    chosen = made.chosen(everything)
    table = further.further(everything)
    assert [row[0] for row in table.rows[::2]][:3] == ["T = 48", "T = 128", "T = 256"]
    assert "too small" not in " ".join(table.notes)
    runs = (stages.longer(c, 48) for c in (chosen.ours, chosen.best))
    ours, best = (everything.of(r) for r in runs)
    assert [r.seed for r in ours] == [50, 51, 52]
    theirs = stats.ttest_rel(*([r.result["later.nats"] for r in x] for x in (ours, best)))
    found = further.difference(ours, best, "ours")
    assert not isinstance(found, str)
    assert found.p == pytest.approx(theirs.pvalue, rel=1e-9)
    assert found.interval(0.95) == pytest.approx(tuple(theirs.confidence_interval(0.95)))
    first = dict(zip(table.columns, table.rows[0], strict=True))
    assert first["p-value"] == f"{theirs.pvalue:.2g}"
    assert (first["epoch chosen"], first["epochs trained"]) == ("21, 21, 21", "24, 24, 24")
    assert further.difference(ours[:1], best, "ours") == "one seed"
    assert further.difference([], best, "ours") == "no records"
    lost = replace(ours[0], result=ours[0].result | {"later.nats": math.nan})
    undecided = "undecided: seed 50 of this one diverged"
    assert further.difference([lost, *ours[1:]], best, "this one") == undecided


def test_the_corpus_is_too_small_by_a_rule(everything):
    chosen = made.chosen(everything)
    ours, best = (everything.of(stages.longer(c, 256)) for c in (chosen.ours, chosen.best))
    assert further.too_small("long", ours, best) == ""
    early = [[replace(r, notes={"epoch": 2}) for r in x] for x in (ours, best)]
    assert further.too_small("long", *early).endswith(
        "every run was at its best in the first third of its epochs."
    )
    later = [*early[1][:2], replace(early[1][2], notes={"epoch": 3})]
    assert further.too_small("long", early[0], later) == ""
    far = [
        replace(r, result=r.result | {"later.nats": r.result["later.nats"] + 0.02 * n})
        for n, r in enumerate(ours)
    ]
    assert "wider than 4 %" in further.too_small("long", far, best)


# the law


def test_the_law_ends_where_it_was_made_to_end(everything):
    chosen = made.chosen(everything)
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


def test_intervals_of_the_law_cover():
    """Of contests that never were, 95 % have the truth in their intervals, give or take three.

    With deviations as they are drawn it is 87 to 92 %.
    """
    rng = np.random.default_rng(0)
    truth, times = power_law.Floored(100.0, 12.0, 1.2), 600
    inside = np.zeros(2)
    for _ in range(times):
        noisy = {d: list(truth.value(d) + rng.normal(0, 0.3, 5)) for d in (*stages.FITTED, 48)}
        softmax, unseen = list(rng.normal(98, 0.3, 5)), noisy.pop(48)
        spread = power_law.resampled_floored(softmax, noisy, rng, draws=400)
        low, high = spread.above_baseline
        inside += np.array([low <= 2 <= high, law.at(spread, 48, unseen).inside])
    assert (inside / times >= 0.92).all()
    assert (inside / times <= 0.98).all()


def test_two_levels_cover():
    """The same of the bootstrap over seeds and articles, 10 seeds a side and 60 articles."""
    rng = np.random.default_rng(1)
    targets, times, inside = np.ones(60), 1000, 0
    for _ in range(times):
        a, b = rng.standard_normal((2, 10, 1))
        articles = rng.standard_normal(60)
        low, high = confirm.two_level(a + articles, b + 0 * articles, targets, rng, draws=400)
        inside += low <= 0 <= high
    assert 0.935 <= inside / times <= 0.975


@pytest.mark.parametrize(
    ("means", "said"),
    [
        ([100.0, 99.0, 98.0, 97.0, 96.0], "the exponent is at the edge of what was searched"),
        ([110.0, 100.0, 100.0, 100.0, 100.0], "the exponent is at the edge of what was searched"),
        ([95.0, 97.5, 98.75, 99.4, 99.7], "perplexity does not fall with d_osc"),
        ([105.0, 100.0, 97.5, 96.25, 95.625], ""),
    ],
)
def test_what_does_not_bend_has_no_floor(means, said):
    found = law.law(samples(means, 0.01), SOFTMAX)
    assert found.no_floor == (f"no floor can be told: {said}" if said else "")


SOFTMAX = [98.0, 98.1, 98.0, 98.1, 98.0]


def samples(means, spread):
    """Five seeds of each fitted d_osc."""
    return {
        d: [m + spread * x for x in (-1.0, -0.5, 0.0, 0.5, 1.0)]
        for d, m in zip(stages.FITTED, means, strict=True)
    }


def test_a_law_says_what_it_lacks():
    """Diverged, seeds or records; the fit does not wait for the softmax."""
    there = samples([105.0, 100.0, 97.5, 96.25, 95.625], 0.01)
    whole = law.law(there, SOFTMAX)
    assert (whole.lacks, whole.no_softmax) == ("", "")
    assert law.law({}, SOFTMAX).lacks == "no records"
    assert law.law(there | {16: there[16][:2]}, SOFTMAX).lacks == "2 of 5 seeds at d_osc = 16"
    few = {d: x[:2] for d, x in there.items()}
    assert law.law(few, SOFTMAX).lacks == "2 of 5 seeds"
    assert law.law(few | {2: [], 32: []}, SOFTMAX).lacks == (
        "no records at d_osc = 2, 32; 2 of 5 seeds at d_osc = 4, 8, 16"
    )
    lost = law.law(there | {8: [math.nan, *there[8][1:]]}, SOFTMAX)
    assert (lost.fit, lost.lacks) == (None, "diverged at d_osc = 8")
    alone = law.law(there, [math.nan, *SOFTMAX[1:]])
    assert alone.fit == whole.fit
    assert alone.no_softmax == "softmax: diverged"
    assert law.law(there, []).no_softmax == "softmax: no records"


def test_a_law_that_fails_where_it_is_tested_tells_no_floor():
    there = samples([105.0, 100.0, 97.5, 96.25, 95.625], 0.01)
    at_48 = 95.0 + 20 / 48  # what the law says
    off = {48: [at_48 + 1 + 0.01 * n for n in range(5)]}
    assert law.law(there | off, SOFTMAX).no_floor.endswith("the law fails at d_osc = 48")
    right = {48: [at_48 + 0.01 * (n - 2) for n in range(5)]}
    assert law.law(there | right, SOFTMAX).no_floor == ""


def test_draws_without_a_floor_are_counted():
    """The fit itself has one; many of its draws have not."""
    means = [100.0, 99.2, 98.5, 97.9, 97.4]
    found = law.law(samples(means, 1.0), SOFTMAX)
    assert found.fit is not None
    assert found.fit.exponent not in power_law.EXPONENTS[[0, -1]]
    assert "% of the draws the exponent is at the edge" in found.no_floor


def test_the_table_of_the_law_says_inside_or_outside(everything):
    def bent(run):
        m = run.model.attention
        return made.truth(run) + 5 * (getattr(m, "d_osc", 0) == 24)

    def held_out(evidence):
        return [cell for row in tables.law_table(evidence).rows for cell in row[3:5]]

    assert all(cell.endswith((", inside", ", outside")) for cell in held_out(everything))
    assert all(
        cell.endswith(", outside") for cell in held_out(made.evidence(made.everything(bent)))[::2]
    )


# the preset


def test_the_preset_is_what_was_chosen():
    """One line, models.mechanisms.SHARPENED, follows the records that are committed."""
    folder = Path(__file__).parents[2] / "results"
    there = [recordfile.read(path).records for path in folder.glob("wikitext2articles-*.json")]
    found = made.evidence(r for records in there for r in records.values())
    assert made.chosen(found).ours.mechanism == Oscillator.sharpened()


def test_the_page_says_what_was_chosen_where_the_preset_is_another(everything):
    said = page.preset(everything)
    assert said.startswith("These records chose `Oscillator(d_osc=32, sharpness=4, gain='learned')")
    assert said.endswith("is `Oscillator(d_osc=48, sharpness=8, gain='learned')`.")


# the page


def test_the_page_says_what_the_primary_test_says(everything):
    said = verdict.verdict(everything)
    won = "The oscillator on the sphere, d_osc = 32 and p = 4, is better than the best softmax by"
    assert said.startswith(won)
    assert said in page.page(everything, "x")

    lost = made.evidence(made.everything(worse))
    said = verdict.verdict(lost)
    assert said.startswith("The best softmax by validation is better than the oscillator")
    assert "the oscillator on the sphere, d_osc = 32 and p = 4: test perplexity +" in said
    same = made.evidence(made.everything(lambda run: 100.0))
    said = verdict.verdict(same)
    assert said.startswith("No difference between the oscillator on the sphere, d_osc = ")
    c = confirm.comparisons(same, made.chosen(same))["ours"]
    assert isinstance(c, confirm.Comparison)
    least = verdict.detectable(c.welch)
    assert f"would show {confirm.percent(least):.1f} % in four of five cases" in said


def test_what_would_change_it_is_asked_where_ours_is_not_better(everything):
    """Controls that are another mechanism stay where they were, ours is worse by 10."""
    assert verdict.what_would_change_it(everything) == ""
    assert verdict.what_would_change_it(NOTHING) == ""
    assert verdict.what_would_change_it(made.evidence(made.chosen_records())) == ""
    lost = made.evidence(made.everything(worse))
    said = verdict.what_would_change_it(lost)
    assert said in page.page(lost, "x")
    ahead, behind = said.partition("Ahead: ")[2].split(". Not told apart: none. ")
    assert [x.partition(" (")[0] for x in ahead.split("; ")] == [
        "frozen anchors",
        "no dynamics",
        "exponential readout",
        "learned p",
    ]
    assert behind == "Behind: 10."


def worse(run):
    return made.truth(run) + 10 * isinstance(run.model.attention, Oscillator)


def test_what_is_as_good_or_of_another_protocol_is_among_what_would_change_it():
    """p = 1 without gain is as good as softmax, and all of ours is by the published protocol."""

    def truth(run):
        m = run.model.attention
        plain = isinstance(m, Oscillator) and (m.sharpness, m.gain) == (1, None)
        level = 98.5 if plain and run.seed >= 100 else worse(run)
        return level - 40 * (isinstance(m, Oscillator) and run.task.protocol == "published")

    said = verdict.what_would_change_it(made.evidence(made.everything(truth)))
    assert "Ahead: ours, published (test) -" in said
    assert ". Not told apart: p = 1, no gain (test). Behind: " in said


def test_what_spoils_the_softmax_would_change_nothing():
    """In 30 epochs at the whole rate softmax is far behind ours, which is behind it otherwise."""

    def spoilt(run):
        return run.epochs == 30 and run.optimizer.lr == 8e-3

    def truth(run):
        ours = isinstance(run.model.attention, Oscillator)
        return worse(run) + (30 if spoilt(run) and not ours else 0)

    found = made.evidence(made.everything(truth))
    chosen = made.chosen(found)
    at = {r: found.of(stages.trained_longer(chosen.best, r)) for r in (1.0, 0.5)}
    ours = found.of(stages.trained_longer(chosen.ours, 1.0))
    apart = further.difference(ours, at[1.0], "ours")
    assert apart.interval(0.95)[1] < 0  # ahead of it
    assert further.at_its_best(found, chosen.best) == found.of(further.longer(chosen.best, 48))
    said = verdict.what_would_change_it(found)
    assert "30 epochs" not in said.partition(". Behind")[0]
    short = made.evidence(r for r in made.everything(truth) if r != at[0.5][0])
    assert further.at_its_best(short, chosen.best) == []
    gone = [replace(r, curve=[{"loss": math.nan}]) if r == at[1.0][0] else r for r in found.all()]
    best = further.at_its_best(made.evidence(gone), chosen.best)
    assert best == found.of(further.longer(chosen.best, 48))  # what diverged is no rival


def test_what_leaves_the_sphere_or_says_nothing_would_change_nothing():
    """Free anchors far ahead, windows of 257 words too, but at their best in their first epochs."""

    def truth(run):
        free = getattr(run.model.attention, "anchors", "") == "free"
        return worse(run) - 40 * (free or run.task.tokens == 256)

    records = [
        replace(r, notes=r.notes | {"epoch": 2}) if r.recipe["task"]["tokens"] == 256 else r
        for r in made.everything(truth)
        if "task" in r.recipe
    ]
    said = verdict.what_would_change_it(made.evidence(records))
    assert said.startswith("What would change it: 13 other models")
    assert "free anchors" not in said
    assert "T = 256" not in said
    assert "T = 48" not in said


def test_a_difference_that_is_called_detectable_is_detected():
    """In four of five contests of ten seeds, by scipy's Welch test."""
    rng = np.random.default_rng(0)
    a, b = rng.normal(0, 0.004, (2, 10))
    least = verdict.detectable(of_sample(list(a)) - of_sample(list(b)))
    spread = math.sqrt((a.var(ddof=1) + b.var(ddof=1)) / 2)
    x, y = rng.normal(0, spread, (2, 4000, 10))
    p = stats.ttest_ind(x + least, y, axis=1, equal_var=False).pvalue
    assert (p < verdict.ALPHA).mean() == pytest.approx(0.8, abs=0.03)


def test_a_softmax_that_is_lower_on_test_alone_is_named():
    """Validation chose rotary; with positions in every layer softmax is far lower on test."""

    def better_on_test(run):
        hidden = isinstance(run.model.attention, type(FAMILIES[MATCHED].mechanism))
        return made.truth(run) - 10 * (hidden and run.task.test)

    found = made.evidence(made.everything(better_on_test))
    said = verdict.verdict(found)
    assert "is better than the best softmax by validation" in said
    named = f"On test {MATCHED} is lower than the softmax that validation chose; against it ours"
    assert f"{named} has +" in said
    whole = made.evidence(made.everything())
    assert "On test" not in verdict.verdict(whole)


def test_a_half_confirmed_contest_decides_nothing():
    records = made.everything()
    chosen = made.chosen(made.evidence(records))
    ours = key(STAGES["confirm"].runs(chosen.ours)[0].recipe())
    kept = [r for r in records if key(r.recipe) != ours or r.seed < 105]
    said = verdict.verdict(made.evidence(kept))
    assert said.startswith("Nothing is decided yet: ours has 5 of 10 seeds. ")
    assert "at d_osc = 32: ours has 5 of 10 seeds" in said


def test_the_table_has_a_row_for_each_and_every_number(everything):
    table = tables.confirmed(everything)
    first, best = table.rows[:2]
    assert first[:4] == ("ours", "32", "4", "learned")
    assert best[0] == f"best softmax ({made.THEIR_FAMILY})"
    distance = table.columns.index("to best softmax, %")
    assert best[distance : distance + 4] == ("", "", "", "")  # to itself
    assert {len(row) for row in table.rows} == {len(table.columns)}
    assert all(row[5] == "10" for row in table.rows)
    text = page.page(everything, "x")
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
    drawn = ["page.png", "page_test.png"] if which == "everything" else []
    of_trials = [] if which == "nothing" else ["page_trials.png"]
    if which in ("chosen", "everything"):
        of_trials.insert(0, "page_rates.png")
    pages = ["page.md", "page_protocol.md"]
    assert [path.name for path in written] == [*pages, *drawn, *of_trials]
    assert all(path.stat().st_size > 1000 for path in written)
    text = written[0].read_text()
    for picture in ("page.png", "page_test.png", "page_rates.png", "page_trials.png"):
        assert (f"({picture})" in text) == (picture in (*drawn, *of_trials))
    assert text == page.page(found, "page")  # the same from the same
    assert ("Nothing is decided yet" in text) == (which != "everything")
    if which == "nothing":
        assert "Of the trials 0 of 240 models are recorded." in text
    for table in page.TABLES:
        assert {len(row) for row in table(found).rows} <= {len(table(found).columns)}
    said = "these records have chosen none yet."
    if which in ("chosen", "everything"):
        said = "with learning rate 0.008 and dropout 0.2. The preset"
    assert said in page.preset(found)
    lacks = text.partition("## Without a record yet")[2].partition("## Protocol")[0]
    assert {
        "nothing": "confirm, controls, law, length, epochs, rotary, published, scale, measure: "
        "nothing before it is chosen.",
        "trials": "The trials are complete; of 7 families 0 have their learning rate.",
        "chosen": "- measure: 105 of 105 measurements.",
        "everything": "Nothing: ",
    }[which] in lacks


def test_the_page_in_docs_is_what_the_command_writes():
    root = Path(__file__).parents[2]
    found = Evidence(Store(root / "results").all(), Setting())
    for makes, name in ((page.page, ""), (page.protocol_page, "_protocol")):
        written = (root / "docs" / f"beyond_softmax{name}.md").read_text(encoding="utf-8")
        assert written == makes(found, "beyond_softmax"), "run `lohe contest page`"


def test_the_counts_of_table_7_are_those_at_p_1():
    """The table's first rows are the paper's own numbers; sharpening only ever costs."""
    table = measured_tables.counted(NOTHING)
    for row in cost.table_7()[1:]:
        first = next(r for r in table.rows if r[0] == row.label)
        assert [float(x) for x in first[2:5]] == pytest.approx(row.ours, abs=0.006)
    for label in ("Oscillator, all digital", "+ readout physical"):
        by_p = [tuple(map(float, r[2:])) for r in table.rows if r[0] == label]
        assert len(by_p) == 5
        assert by_p == sorted(by_p, reverse=True)


def test_operations_are_counted_at_the_chosen_dimension_too(everything):
    def truth(run):
        return made.truth(run) - 10 * (getattr(run.model.attention, "d_osc", 0) == 48)

    wide = measured_tables.counted(made.evidence(made.chosen_records(truth)))
    assert wide.columns[-3:] == tuple(f"WikiText-2, d_osc = {d}" for d in (16, 32, 48))
    assert measured_tables.counted(everything).columns == wide.columns[:-1]


def test_every_control_is_looked_at(everything):
    chosen = made.chosen(everything)
    rows = measured_tables.readouts(everything).rows
    seeds = {row[0]: row[1] for row in rows}
    assert seeds.keys() == {"ours", stages.best_name(chosen), *stages.controls(chosen.ours)}
    assert seeds["no dynamics"] == "1"
    assert seeds["learned p"] == "3"
    columns = measured_tables.readouts(everything).columns
    last = {row[0]: dict(zip(columns, row, strict=True)) for row in rows}
    assert (last["ours"]["gain"], last["ours"]["p"]) == ("1.50 (1.00 to 2.00)", "4")
    assert last["ours"]["cut, %"] == "12.50"
    assert last["exponential readout"]["gain"] == "β 3"
    assert last["exponential readout"]["p"] == ""
    notes = " ".join(tables.controlled(everything).notes)
    assert "no dynamics has fewer numbers in attention, " in notes


def test_a_device_that_gives_no_number_spoils_its_cell_only():
    records = made.everything()
    chosen = made.chosen(made.evidence(records))
    first = measured.Devices(measured.models(chosen)["ours"][0])
    spoilt = key(measure_recipe(first))

    def spoil(r):
        if key(r.recipe) != spoilt:
            return r
        curve = [row | {"nats": [math.nan]} if row["level"] == 30 else row for row in r.curve]
        return replace(r, curve=curve)

    rows = measured_tables.devices(made.evidence(map(spoil, records))).rows
    (bad,) = (row for row in rows if "no finite number" in row)
    assert bad[0] == "  30"
    assert bad.count("no finite number") == 1
    (stake,) = (row for row in rows if row[0] == "  oscillators anywhere")
    assert stake[1:] == ("+0.40±0.06",) * 3
    assert measured_tables._percent([0.5, math.nan]) == "no finite number"


def test_one_model_on_devices_has_numbers_without_an_error():
    records = made.everything()
    chosen = made.chosen(made.evidence(records))
    of_ours = [measured.Devices(run) for run in measured.models(chosen)["ours"]]
    gone = {(key(measure_recipe(m)), m.run.seed) for m in of_ours[1:]}
    kept = [r for r in records if (key(r.recipe), r.seed) not in gone]
    rows = {row[0]: row for row in measured_tables.devices(made.evidence(kept)).rows}
    assert rows["models"][1:] == ("1", "3", "3")
    assert rows["  oscillators anywhere"][1].startswith("+")
    assert "±" not in rows["  oscillators anywhere"][1]
    assert "±" in rows["  oscillators anywhere"][2]


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
    assert labels == ["p = 1, no gain", "p = 4, learned gain"]
    assert texts == [f"best softmax ({made.THEIR_FAMILY})", "softmax"]


def test_the_protocol_is_json_that_people_can_read():
    given = protocol()
    assert json.loads(json.dumps(given)) == given
    assert set(given["rules"]) >= {"data", "equal compute", "weight decay", "primary test"}
