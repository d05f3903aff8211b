"""The search: rates, then dropout, while they are better; and the test against all."""

import math
from dataclasses import replace
from statistics import fmean

import contest_records as made
import pytest

from lohe.experiments.contest import choose, confirm, each, large, page, rates, tables, verdict
from lohe.experiments.contest.choose import searched, settled
from lohe.experiments.contest.stages import confirm_runs, confirmed_spheres, controls
from lohe.experiments.contest.trials import (
    COMPARED_AT,
    FAMILIES,
    MATCHED,
    OURS,
    PUBLISHED,
    RATES,
    RIVALS,
    ROTARY,
    STAGES,
    TRIED,
    protocol,
)
from lohe.experiments.store.records import key
from lohe.viz.style import drawing

ALIBI, COSINE = "softmax, linear biases", "softmax, cosine"
TRIALS = made.trials()


def tried(evidence, family):
    """Learning rate and dropout of each, in order."""
    found = (s.configuration for s in searched(evidence, family))
    return [(c.learning_rate, c.dropout) for c in found]


def at(reached, dropped=None, family=ROTARY):
    """The trials, and of a family models at these rates, with dropout 0.1 and 0.2, of the
    perplexity given."""
    (first,) = choose.settings(made.evidence(TRIALS), family)
    records = list(TRIALS)
    for dropout, there in ((0.1, reached), (0.2, dropped or {})):
        for rate, perplexity in there.items():
            c = replace(first, learning_rate=rate, dropout=dropout)
            runs = STAGES["rates"].runs(c)
            records += made.invented(runs, lambda run, x=perplexity: x, noise=0)
    return made.evidence(records)


@pytest.mark.parametrize(
    ("reached", "asked", "best"),
    [
        ({}, 2, None),
        ({2e-3: 90}, 2, None),
        ({4e-3: 80}, 2, None),  # which need not be better than what is not there yet
        ({2e-3: 90, 4e-3: 91}, 2, 2e-3),
        ({2e-3: 90, 4e-3: 90}, 2, 2e-3),
        ({2e-3: 90, 4e-3: 89}, 3, None),
        ({2e-3: 90, 4e-3: 89, 8e-3: 95}, 3, 4e-3),
        ({2e-3: 90, 4e-3: 89, 8e-3: 88}, 4, None),
        ({2e-3: 90, 4e-3: 89, 8e-3: 88, 1.6e-2: 95}, 4, 8e-3),
        (dict(zip(RATES, range(90, 84, -1), strict=True)), 6, 6.4e-2),
        ({2e-3: math.inf, 4e-3: 89, 8e-3: math.inf}, 3, 4e-3),
        ({2e-3: 90, 4e-3: math.inf}, 2, 2e-3),
    ],
)
def test_a_larger_rate_is_tried_where_the_last_was_the_best(reached, asked, best):
    """And then dropout 0.2 at the best."""
    evidence = at(reached)
    expected = [(rate, 0.1) for rate in RATES[:asked]] + ([(best, 0.2)] if best else [])
    assert tried(evidence, ROTARY) == expected
    assert not settled(evidence, ROTARY)


@pytest.mark.parametrize(
    ("dropped", "asked", "best"),
    [
        ({4e-3: 90}, [4e-3], (4e-3, 0.1)),
        ({4e-3: 89}, [4e-3], (4e-3, 0.1)),
        ({4e-3: 88}, [4e-3, 8e-3], None),
        ({4e-3: 88, 8e-3: 88.5}, [4e-3, 8e-3], (4e-3, 0.2)),
        ({4e-3: 88, 8e-3: 87}, [4e-3, 8e-3, 1.6e-2], None),
        ({4e-3: math.inf}, [4e-3], (4e-3, 0.1)),
    ],
)
def test_dropout_is_tried_at_the_best_rate_and_beyond_it_while_it_is_better(dropped, asked, best):
    evidence = at({2e-3: 90, 4e-3: 89, 8e-3: 89.5}, dropped)
    assert [rate for rate, dropout in tried(evidence, ROTARY) if dropout == 0.2] == asked
    assert settled(evidence, ROTARY) == (best is not None)
    if best:
        c = choose.in_search(evidence, ROTARY)[0].configuration
        assert (c.learning_rate, c.dropout) == best


def test_of_equals_the_smaller_rate_is_the_best_whatever_came_first():
    """Settings are compared at 4e-3, which so is there before 2e-3."""
    records, family = list(TRIALS), COSINE
    while lacking := [
        c
        for c in (s.configuration for s in searched(made.evidence(records), family))
        if choose.missing(made.evidence(records), STAGES["rates"].runs(c))
    ]:
        for c in lacking:
            records += made.invented(STAGES["rates"].runs(c), lambda run: 90, noise=0)
    found = made.evidence(records)
    assert tried(found, family) == [(4e-3, 0.1)] * 2 + [(2e-3, 0.1), (2e-3, 0.2)]
    assert settled(found, family)


def test_a_search_of_several_settings_goes_on_with_the_best_of_them():
    """Scale 3 is better than 10, 8e-3 than the others, dropout 0.2 better and worse beyond."""

    def truth(run):
        rate = {2e-3: 90, 4e-3: 89, 8e-3: 88, 1.6e-2: 95}[run.optimizer.lr]
        return rate + run.model.attention.scale / 10 - 10 * (run.model.dropout - 0.1)

    records = list(TRIALS)
    for _ in range(6):
        found = made.evidence(records)
        runs = [
            run for s in searched(found, COSINE) for run in STAGES["rates"].runs(s.configuration)
        ]
        records += made.invented(choose.missing(found, runs), truth, noise=0)
    there = searched(made.evidence(records), COSINE)
    asked = [(s.configuration.mechanism.scale, s.configuration.learning_rate) for s in there]
    rest = [(3.0, 2e-3), (3.0, 8e-3), (3.0, 1.6e-2)]
    assert asked == [(3.0, 4e-3), (10.0, 4e-3), *rest, (3.0, 8e-3), (3.0, 1.6e-2)]
    assert [s.configuration.dropout for s in there] == [0.1] * 5 + [0.2] * 2
    assert settled(made.evidence(records), COSINE)
    best = choose.in_search(made.evidence(records), COSINE)[0].configuration
    assert (best.learning_rate, best.dropout) == (8e-3, 0.2)


def test_what_is_not_finite_on_the_other_half_chooses_nothing():
    records = made.chosen_records()
    won = made.chosen(made.evidence(records))
    best = key(STAGES["rates"].runs(won.rotary)[0].recipe())
    broken = [
        replace(r, result=r.result | {"later.nats": math.inf}) if key(r.recipe) == best else r
        for r in records
    ]
    assert broken != records
    assert made.chosen(made.evidence(broken)) == won


def test_a_search_waits_for_both_seeds():
    whole = at({2e-3: 90, 4e-3: 91}, {2e-3: 92})
    assert settled(whole, ROTARY)
    for record in whole.all():
        if record.seed == STAGES["rates"].seeds[1]:
            rest = made.evidence(r for r in whole.all() if r is not record)
            assert not settled(rest, ROTARY)
            known = choose.known_runs(rest)
            assert record.seed in {run.seed for run in choose.missing(rest, known)}


@pytest.mark.parametrize("family", TRIED)
def test_the_best_setting_of_the_trials_is_searched_whatever_its_rate_and_dropout(family):
    found = made.evidence(TRIALS)
    (first,) = choose.settings(found, family)
    best = choose.in_trials(found, family)[0].configuration
    assert first == replace(best, learning_rate=COMPARED_AT, dropout=0.1)
    assert choose.settings(made.evidence(TRIALS[1:]), OURS) == []
    assert searched(made.evidence(TRIALS[1:]), OURS) == ()


def test_where_trials_were_given_up_all_settings_are_compared_at_one_rate():
    """The best of them goes on; the others are not trained at other rates."""
    assert {*TRIED, ALIBI, COSINE} == set(FAMILIES)
    nothing = made.evidence([])
    assert [len(choose.settings(nothing, f)) for f in (ALIBI, COSINE)] == [4, 2]
    assert tried(nothing, COSINE) == [(COMPARED_AT, 0.1)] * 2

    def small(run):
        return 90 + run.model.attention.scale

    runs = [run for c in choose.settings(nothing, COSINE) for run in STAGES["rates"].runs(c)]
    begun = made.evidence(made.invented(runs, small))
    assert tried(begun, COSINE) == [(COMPARED_AT, 0.1)] * 2 + [(2e-3, 0.1)]
    scales = [s.configuration.mechanism.scale for s in searched(begun, COSINE)]
    assert scales == [3.0, 10.0, 3.0]


def test_rates_are_chosen_without_the_test_articles_and_on_seeds_of_their_own():
    stage = STAGES["rates"]
    assert (stage.test, stage.epochs, stage.precision) == (False, 10, "float32")
    others = {s for n, x in STAGES.items() if n != "rates" for s in x.seeds}
    others |= {s for f in protocol()["families"].values() for t in f["trials"] for s in t["seeds"]}
    assert not set(stage.seeds) & others


def test_the_best_of_each_family_goes_on_and_the_best_softmax_is_named():
    found = made.evidence(made.chosen_records())
    chosen = made.chosen(found)
    assert chosen.ours == made.OUR_BEST
    assert chosen.family == made.THEIR_FAMILY
    assert {name for name, _ in chosen.softmaxes} == set(RIVALS)
    reached = [choose.in_search(found, name)[0].mean for name, _ in chosen.softmaxes]
    assert reached == sorted(reached)
    for name, c in chosen.softmaxes:
        assert type(c.mechanism) is type(FAMILIES[name].mechanism)
        assert (c.learning_rate, c.dropout) == (8e-3, 0.2)  # as truth prefers
    assert dict(chosen.softmaxes)[MATCHED] == chosen.matched
    assert dict(chosen.softmaxes)[ROTARY] == chosen.rotary == chosen.best


def test_nothing_is_confirmed_before_all_searches_are_at_their_end():
    records = made.chosen_records()
    rates = [r for r in records if r.seed in STAGES["rates"].seeds]
    assert choose.chosen(made.evidence([])) is None
    assert choose.chosen(made.evidence(TRIALS)) is None
    for lacking in rates[::5]:
        rest = made.evidence(r for r in records if r is not lacking)
        assert choose.chosen(rest) is None


def test_the_table_shows_all_that_was_tried():
    found = made.evidence(made.chosen_records())
    table = tables.search(found)
    assert {row[0] for row in table.rows} == set(FAMILIES)
    for family in FAMILIES:
        cells = [c for row in table.rows if row[0] == family for c in row[3:] if c]
        assert len(cells) == len(searched(found, family))
        best = choose.in_search(found, family)[0]
        (first, *_) = (row for row in table.rows if row[0] == family)
        rate = table.columns.index(f"{best.configuration.learning_rate:g}")
        assert first[2] == f"{best.configuration.dropout:g}"
        assert first[rate].startswith(f"{math.exp(best.mean):.2f}, ")
    assert {len(row) for row in table.rows} == {len(table.columns)}
    assert tables.search(made.evidence([])).rows == []
    begun = at({2e-3: 90, 4e-3: math.inf})
    (row,) = tables.search(begun).rows
    assert row[3:] == ("90.00, 90.00", "diverged")
    one = made.evidence(r for r in begun.all() if r.seed != STAGES["rates"].seeds[1])
    assert tables.search(one).rows[0][3] == "90.00, 90.00 (1 of 2 seeds)"


def test_on_what_they_were_trained_is_said_from_the_records():
    evidence = at({2e-3: 90, 4e-3: 89})
    here = [replace(r, environment={"device": "cpu (x86_64)"}) for r in evidence.all()]
    here[-1] = replace(here[-1], environment={"device": "cuda (H200)", "head": "products of x"})
    notes = tables.search(made.evidence(here)).notes
    assert "Trained on cpu (x86_64) (3); cuda (H200), products of x (1)." in notes


@pytest.mark.parametrize(
    ("reached", "end"),
    [
        (dict(zip(RATES, range(60, 54, -1), strict=True)), "largest learning rate"),
        ({2e-3: 60, 4e-3: 61}, "smallest learning rate"),
        ({2e-3: 60, 4e-3: 59, 8e-3: 65}, ""),
    ],
)
def test_a_winner_at_an_end_of_the_learning_rates_is_an_edge_optimum(reached, end):
    def truth(run):
        ours = type(run.model.attention) is type(FAMILIES[ROTARY].mechanism)
        there = ours and run.seed in STAGES["rates"].seeds and run.model.dropout == 0.1
        return reached.get(run.optimizer.lr, 99.0) if there else made.truth(run)

    found = made.evidence(made.chosen_records(truth))
    said = verdict.edges(found)
    assert said == (
        f"Edge optimum, at the {end} that was searched, "
        f"{made.chosen(found).rotary.learning_rate:g}: {ROTARY}. One beyond may be better."
        if end
        else ""
    )


# against every softmax


def against(ours, others=100.0):
    """A contest whose confirmed models have these perplexities by d_osc, all softmaxes that one,
    or each its own."""
    records = made.chosen_records()
    won = made.chosen(made.evidence(records))
    theirs = others if isinstance(others, dict) else dict.fromkeys(RIVALS, others)
    given = {repr(c.mechanism): theirs[name] for name, c in won.softmaxes}
    given |= {repr(c.mechanism): ours[c.mechanism.d_osc] for c in confirmed_spheres(won).values()}

    def truth(run):
        return given.get(repr(run.model.attention), 100.0)

    return made.evidence([*records, *made.invented(confirm_runs(won), truth)]), won


def test_better_than_every_softmax_is_what_the_tests_say():
    """Better is who is better than each; behind one of them, or level with one, is not."""
    evidence, won = against({32: 96.0, 16: 99.0}, dict.fromkeys(RIVALS, 100.0) | {COSINE: 97.0})
    found, said = each.comparisons(evidence, won), each.answer(evidence)
    assert list(found) == ["ours", "oscillator, d_osc = 16"]
    assert all(list(rivals) == [name for name, _ in won.softmaxes] for rivals in found.values())
    p = confirm.better_p_values(found)
    assert p["ours"] == 2 * max(c.welch.p for c in found["ours"].values())
    assert p["oscillator, d_osc = 16"] == 1
    assert f"d_osc = 32 is (p-value {p['ours']:.2g})" in said
    assert "d_osc = 16 is not shown to be (p-value 1)" in said
    assert said in page.page(evidence, "x")
    rows = each.table(evidence).rows
    rivals = [*(r for r, _ in won.softmaxes), each.EVERY]
    assert [row[:2] for row in rows] == [(n, r) for n in found for r in rivals]
    assert [row[-1] for row in rows if row[1] == each.EVERY] == [f"{x:.2g}" for x in p.values()]
    assert {len(row) for row in rows} == {len(each.table(evidence).columns)}


def test_the_figure_has_all_that_was_scored_on_test_the_lowest_first():
    import matplotlib.pyplot as plt

    found = made.evidence(made.everything())
    there = each.entries(found)
    assert {e.name for e in there} >= {"ours, d_osc 32", "ours, d_osc 16", *RIVALS, *PUBLISHED}
    won = made.chosen(found)
    assert sum(e.control for e in there) == len(controls(won.ours))
    assert len(there) == 2 + len(RIVALS) + len(PUBLISHED) + len(controls(won.ours))
    with drawing():
        drawn = each.figure(found)
        (ax,) = drawn.axes
        names = [label.get_text() for label in ax.get_yticklabels()]
        dots = [line.get_xdata()[0] for line in ax.lines[1::2]]
        plt.close(drawn)
    assert names == [e.name for e in there]
    assert dots == sorted(dots)
    first = confirm.records(found, won.ours, "strict")
    at = names.index("ours, d_osc 32")
    assert dots[at] == pytest.approx(
        math.exp(fmean(r.result["test.nats"] for r in first)), rel=1e-12
    )
    gone = [
        replace(r, curve=[{"loss": math.nan}]) if r is first[0] else r for r in made.everything()
    ]
    names = {e.name for e in each.entries(made.evidence(gone))}
    assert "ours, d_osc 32" not in names
    assert each.entries(made.evidence(made.chosen_records())) == []


def test_nothing_is_said_before_every_seed_is_there():
    evidence, won = against({32: 96.0, 16: 96.0})
    for c in (won.ours, won.softmaxes[-1][1]):
        last = confirm.records(evidence, c, "strict")[-1]
        rest = made.evidence(r for r in evidence.all() if r is not last)
        assert each.answer(rest) == ""
        named = {row[0] for row in each.table(rest).rows if row[1] == each.EVERY}
        assert named == ({"oscillator, d_osc = 16"} if c == won.ours else set())
    nothing = made.evidence([])
    assert each.answer(nothing) == ""
    assert each.table(nothing).rows == []
    assert each.TITLE not in page.page(nothing, "x")


def test_what_diverged_is_not_shown_to_be_better():
    evidence, won = against({32: 96.0, 16: 96.0})
    bad = confirm.records(evidence, won.ours, "strict")[0]
    gone = [replace(r, curve=[{"loss": math.nan}]) if r is bad else r for r in evidence.all()]
    said = each.answer(made.evidence(gone))
    assert "d_osc = 32 is not shown to be (p-value 1)" in said
    assert "d_osc = 16 is (p-value " in said


def test_all_that_is_confirmed_is_distinct():
    _, won = against({32: 96.0, 16: 96.0})
    runs = confirm_runs(won)
    assert len({(key(run.recipe()), run.seed) for run in runs}) == len(runs)


# as a picture

SMALL = "2 layers, d_model 128, T = 48; 2 seeds"


def test_the_picture_has_the_second_half_at_each_rate_of_the_best_setting():
    """Of cosine two settings are compared at 4e-3; what diverged or lacks a seed is not drawn."""

    def truth(run):
        return made.truth(run) + getattr(run.model.attention, "scale", 0)

    found = made.evidence(made.chosen_records(truth))
    drawn = rates.panels(found)[SMALL]
    assert list(drawn) == list(FAMILIES)
    by_rate = {s.configuration.learning_rate: s for s in searched(found, COSINE)[::-1]}
    best = choose.in_search(found, COSINE)[0].configuration
    assert best.mechanism.scale == 3.0
    for rate, perplexity in drawn[COSINE].items():
        runs = STAGES["rates"].runs(replace(best, learning_rate=rate, dropout=0.1))
        nats = [math.log(r.result["later.perplexity"]) for r in found.of(runs)]
        assert perplexity == pytest.approx(math.exp(fmean(nats)))
    assert set(drawn[COSINE]) == set(by_rate)
    gone = STAGES["rates"].runs(replace(best, learning_rate=4e-3, dropout=0.1))[0]
    for spoilt in (
        [r for r in found.all() if (r.recipe, r.seed) != (gone.recipe(), gone.seed)],
        [
            replace(r, result=r.result | {"later.perplexity": math.inf})
            if (r.recipe, r.seed) == (gone.recipe(), gone.seed)
            else r
            for r in found.all()
        ],
    ):
        assert 4e-3 not in rates.panels(made.evidence(spoilt))[SMALL].get(COSINE, {})
    assert rates.panels(made.evidence([])) == {}


def test_the_picture_has_a_panel_for_each_size():
    everything = made.evidence(made.everything())
    sizes = [SMALL, f"{large.SIZE}; 2 seeds"]
    assert list(rates.panels(everything)) == sizes
    with drawing():
        first, second = rates.figure(everything).axes
    assert [ax.get_title() for ax in (first, second)] == sizes
    assert [len(ax.get_lines()) for ax in (first, second)] == [len(FAMILIES)] * 2
    assert [float(t.get_text()) for t in second.get_xticklabels()] == [1e-3, 2e-3, 4e-3, 8e-3]
