"""The larger size: its search goes both ways, its test is of ours against each softmax."""

import math
from dataclasses import replace
from itertools import pairwise

import contest_records as made
import pytest
from scipy import stats

from lohe.experiments.contest import confirm, large, later, page, tables
from lohe.experiments.contest.stages import LARGE_RATES, larger
from lohe.experiments.contest.trials import OURS, RIVALS, STAGES

COSINE = "softmax, cosine"
CHOSEN = made.chosen(made.evidence(made.chosen_records()))
SMALL = made.chosen_records()


@pytest.fixture(scope="module")
def everything():
    return made.evidence(made.everything())


def at(reached, dropped=None, family=COSINE):
    """Of a family, models at these rates, with dropout 0.1 and 0.2, of the perplexity given."""
    records = list(SMALL)
    for dropout, there in ((0.1, reached), (0.2, dropped or {})):
        for rate, perplexity in there.items():
            c = replace(CHOSEN.families[family], learning_rate=rate, dropout=dropout)
            records += made.invented(large.in_rates(c), lambda run, x=perplexity: x, noise=0)
    return made.evidence(records)


@pytest.mark.parametrize(
    ("reached", "asked", "best"),
    [
        ({}, [1e-3, 2e-3], None),
        ({1e-3: 90}, [1e-3, 2e-3], None),
        ({1e-3: 90, 2e-3: 89}, [1e-3, 2e-3, 4e-3], None),
        ({1e-3: 90, 2e-3: 89, 4e-3: 91}, [1e-3, 2e-3, 4e-3], 2e-3),
        ({1e-3: 90, 2e-3: 89, 4e-3: 88, 8e-3: 87}, [1e-3, 2e-3, 4e-3, 8e-3], 8e-3),
        ({1e-3: 90, 2e-3: 91}, [1e-3, 2e-3, 5e-4], None),
        ({1e-3: 90, 2e-3: 91, 5e-4: 92}, [1e-3, 2e-3, 5e-4], 1e-3),
        ({1e-3: 90, 2e-3: 90, 5e-4: 90}, [1e-3, 2e-3, 5e-4, 2.5e-4], None),  # smaller of equals
        ({1e-3: 90, 2e-3: 91, 5e-4: 89, 2.5e-4: 88}, [1e-3, 2e-3, 5e-4, 2.5e-4], 2.5e-4),
        ({1e-3: 90, 2e-3: math.inf, 5e-4: 92}, [1e-3, 2e-3, 5e-4], 1e-3),
    ],
)
def test_the_search_goes_on_where_the_last_rate_was_the_best(reached, asked, best):
    """On either side; and then tries dropout 0.2 at the best."""
    tried = large.searched(at(reached), CHOSEN, COSINE)
    found = [(s.configuration.learning_rate, s.configuration.dropout) for s in tried]
    assert found == [(rate, 0.1) for rate in asked] + ([(best, 0.2)] if best else [])
    assert {s.configuration.mechanism for s in tried} == {CHOSEN.families[COSINE].mechanism}


@pytest.mark.parametrize(
    ("dropped", "asked"),
    [({1e-3: 91}, [1e-3]), ({1e-3: 89}, [1e-3, 2e-3]), ({1e-3: 89, 2e-3: 88}, [1e-3, 2e-3, 4e-3])],
)
def test_dropout_is_tried_at_the_best_rate_and_beyond_it_while_it_is_better(dropped, asked):
    evidence = at({1e-3: 90, 2e-3: 91, 5e-4: 92}, dropped)
    tried = (s.configuration for s in large.searched(evidence, CHOSEN, COSINE))
    assert [c.learning_rate for c in tried if c.dropout == 0.2] == asked


def test_nothing_is_scored_on_test_before_every_search_is_at_its_end(everything):
    known = large.known_runs(made.evidence(SMALL), CHOSEN)
    assert len(known) == 2 * len(CHOSEN.families) * len(STAGES["scale rates"].seeds)
    assert not any(run.task.test for run in known)
    whole = large.known_runs(everything, CHOSEN)
    ours = next(run for run in whole if not run.task.test)
    lacking = made.evidence(
        r for r in everything.all() if "task" not in r.recipe or r.recipe != ours.recipe()
    )
    assert not large.best(lacking, CHOSEN)
    assert not any(run.task.test for run in large.known_runs(lacking, CHOSEN))
    assert later.more_follow("scale", lacking, CHOSEN)
    assert not later.more_follow("scale", everything, CHOSEN)
    scored = [run for run in whole if run.task.test]
    assert len(scored) == len(CHOSEN.families) * len(STAGES["scale"].seeds)
    assert not {r.seed for r in scored} & {r.seed for r in whole if not r.task.test}
    assert {run.model.layers for run in whole} == {6}


def test_each_has_its_own_best_rate(everything):
    """`truth` prefers 8e-3 and dropout 0.2 whatever the size, which is the last that is tried."""
    best = large.best(everything, CHOSEN)
    assert list(best) == [OURS, *(name for name, _ in CHOSEN.softmaxes)]
    assert {(c.learning_rate, c.dropout) for c in best.values()} == {(8e-3, 0.2)}
    notes = large.table(everything).notes
    assert "Edge optimum, at the largest learning rate that was searched: oscillator." in notes


def test_ours_is_compared_with_each_by_welch(everything):
    found = large.rivals(everything, CHOSEN)
    assert set(found) == set(RIVALS)
    best = large.best(everything, CHOSEN)
    there = {name: everything.of(larger(c)) for name, c in best.items()}
    for name, c in found.items():
        ours, theirs = ([r.result["test.nats"] for r in there[n]] for n in (OURS, name))
        assert isinstance(c, confirm.Comparison)
        assert c.welch.p == pytest.approx(stats.ttest_ind(ours, theirs, equal_var=False).pvalue)
    table = large.table(everything)
    rows = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    assert [row["mechanism"] for row in rows] == [*best, "every one"]
    assert rows[-1]["p-value"] == f"{confirm.better_than_all(found):.2g}"
    for row in rows[1:-1]:
        c = found[row["mechanism"]]
        assert row["ours to it, %"] == tables.change(c)
        assert (row["paired"], row["seeds and articles"]) == tables.intervals(c)
        assert row["paired"] != row["seeds and articles"]
    assert rows[0]["parameters"] == tables.sizes(larger(best[OURS])[0])
    total, _, attention = (int(n.replace(",", "")) for n in rows[0]["parameters"].split(" / "))
    assert total > 10_000  # thousands
    plain = next(row for row in rows if row["mechanism"] == "softmax")
    anchors = 6 * 6 * 256 * best[OURS].mechanism.d_osc
    more = attention - int(plain["parameters"].rsplit(" / ")[-1].replace(",", ""))
    assert more >= anchors // 1000


def test_the_page_says_whether_ours_is_better_than_every_one(everything):
    said = large.answer(everything)
    size = "At 6 layers, d_model 384, T = 256, with learning rate and dropout searched anew"
    assert said.startswith(size)
    assert "the oscillator on the sphere is better than every one of the 6 softmaxes" in said
    assert "; to softmax, rotary, the lowest of them, -" in said
    assert said in page.page(everything, "x")

    def behind(run):
        return made.truth(run) + 9 * (
            run.model.layers == 6 and hasattr(run.model.attention, "gain")
        )

    lost = made.evidence(made.everything(behind))
    said = large.answer(lost)
    assert "is not shown to be better than every one of the 6 softmaxes" in said
    assert "largest p-value 1;" in said
    assert "the lowest of them, +" in said


def test_a_softmax_that_diverged_leaves_it_undecided(everything):
    best = large.best(everything, CHOSEN)
    lost = larger(best[COSINE])[0]
    key = (lost.recipe(), lost.seed)
    records = [
        replace(r, curve=[{"loss": math.nan}]) if (r.recipe, r.seed) == key else r
        for r in everything.all()
    ]
    found = made.evidence(records)
    rows = {row[0]: row for row in large.table(found).rows}
    assert "undecided: seed 110 of softmax, cosine diverged" in rows[COSINE]
    assert rows["every one"][-1] == "1"
    said = large.answer(found)
    assert "is not shown to be better" in said
    assert said.endswith("; undecided: seed 110 of softmax, cosine diverged).")


def test_before_its_end_there_is_a_table_of_the_search_alone(everything):
    evidence = at({1e-3: 90, 2e-3: 91})
    assert large.answer(evidence) == ""
    assert large.table(evidence).rows == []
    table = large.search_table(evidence)
    (row,) = table.rows
    assert row[:3] == (COSINE, row[1], "0.1")
    assert row[3:] == ("90.00, 90.00", "91.00, 91.00")
    assert "scale: 26 of 30 models, and more follow." in page.lacking(evidence)
    assert table.notes[-1] == "It is not at its end: nothing is compared by it yet."
    assert table.notes[-1] not in large.search_table(everything).notes
    assert page.lacking(everything) == []
    assert large.search_table(made.evidence([])).rows == []
    assert large.answer(made.evidence([])) == ""


def test_the_rates_double():
    assert [b / a for a, b in pairwise(LARGE_RATES)] == [2] * 5


def test_of_a_corpus_too_small_it_is_said(everything):
    """Every run on test at its best in the first third of its epochs, and all of them there."""

    def says(late=(), lacking=()):
        records = []
        for r in everything.all():
            scored = "test.nats" in r.result and r.recipe["model"]["layers"] == 6
            family = scored and r.recipe["model"]["attention"]["type"]
            if not scored or (family not in lacking and (r.seed, family) not in lacking):
                early = scored and family not in late
                records.append(replace(r, notes=r.notes | {"epoch": 2}) if early else r)
        notes = large.table(made.evidence(records)).notes
        return any("the corpus is too small to say anything" in note for note in notes)

    cosine, ours = "SoftmaxCosine", "Oscillator"
    families = {type(c.mechanism).__name__ for c in CHOSEN.families.values()}
    assert says()
    assert not says(late=families)
    assert not says(late={cosine})
    assert not says(late={ours})
    assert not says(lacking=families)
    assert not says(lacking={(110, cosine)})


def test_nothing_is_said_before_every_seed_is_there(everything):
    cosine = large.best(everything, CHOSEN)[COSINE]
    last = larger(cosine)[-1]
    lacks = made.evidence(
        r for r in everything.all() if (r.recipe, r.seed) != (last.recipe(), last.seed)
    )
    rows = {row[0]: row for row in large.table(lacks).rows}
    assert "softmax, cosine has 4 of 5 seeds" in rows[COSINE]
    assert "every one" not in rows
    assert large.answer(lacks) == ""
    assert "scale: 1 of " in page.lacking(lacks)[-1]


@pytest.mark.parametrize(("ahead", "shown"), [(0.2, False), (2.0, True)])
def test_better_is_said_below_one_per_cent_alone(ahead, shown):
    """At the large size all have 100, ours a little less."""

    def truth(run):
        if run.model.layers != 6:
            return made.truth(run)
        ours = hasattr(run.model.attention, "gain")
        return 100 - ahead * ours + abs(math.log2(run.optimizer.lr / 1e-3))

    found = made.evidence(made.everything(truth))
    p = confirm.better_than_all(large.rivals(found, made.chosen(found)))
    assert p < 0.01 if shown else 0.01 < p < 0.05
    assert f"sphere {'is' if shown else 'is not shown to be'} better" in large.answer(found)


def test_a_winner_at_the_smallest_rate_is_an_edge_optimum():
    def truth(run):
        return made.truth(run) + (run.model.layers == 6) * 5 * math.log2(run.optimizer.lr / 8e-3)

    notes = large.table(made.evidence(made.everything(truth))).notes
    assert "Edge optimum, at the smallest learning rate that was searched: oscillator." in notes


def test_the_page_counts_the_code_of_every_model_on_test(everything):
    on_test = [r for r in everything.all() if "test.nats" in r.result]
    scored = sum(r.recipe["model"]["layers"] == 6 for r in on_test)
    assert scored == len(CHOSEN.families) * len(STAGES["scale"].seeds)
    (said, *_) = page.made_by(everything)
    assert said.endswith(f"({len(on_test)}).")
