"""The question in ten epochs: larger rates while they are better, then tests on other seeds."""

import math
from dataclasses import replace

import contest_records as made
import pytest

from lohe.experiments import runner
from lohe.experiments.contest import choose, confirm, page, ten
from lohe.experiments.contest.confirm import Undecided
from lohe.experiments.contest.trials import FAMILIES, STAGES, protocol
from lohe.experiments.store.records import key

OURS, TURNED, RIVAL = ten.CONTENDERS
C = ten.CONTENDERS[OURS]


def at(rates, first_run=None):
    """Evidence with a model of `OURS` at each of these rates, of the perplexity given."""
    runs = (STAGES["ten, rates"].runs(replace(C, learning_rate=rate)) for rate in rates)
    found = (made.invented(x, lambda run: rates[run.optimizer.lr], noise=0) for x in runs)
    return made.evidence(record for records in found for record in records)


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
        ({2e-3: 90, 4e-3: 89, 8e-3: 88}, 3, 8e-3),
        ({2e-3: math.inf, 4e-3: 89, 8e-3: math.inf}, 3, 4e-3),
        ({2e-3: 90, 4e-3: math.inf}, 2, 2e-3),
    ],
)
def test_a_larger_rate_is_tried_where_the_last_was_the_best(reached, asked, best):
    evidence = at(reached)
    assert [s.configuration.learning_rate for s in ten.tried(evidence, C)] == [2e-3, 4e-3, 8e-3][
        :asked
    ]
    known = ten.settled(evidence)
    assert (known.get(OURS) == replace(C, learning_rate=best)) == (best is not None)
    assert set(known) <= {OURS}
    assert ten.more_follow(evidence)


def test_rates_are_chosen_without_the_test_articles_and_on_seeds_of_their_own():
    first, then = STAGES["ten, rates"], STAGES["ten"]
    assert (first.test, then.test) == (False, True)
    assert {first.precision, then.precision} == {"float32"}
    others = {s for n, x in STAGES.items() if not n.startswith("ten") for s in x.seeds}
    others |= {s for f in protocol()["families"].values() for t in f["trials"] for s in t["seeds"]}
    assert not set(first.seeds) & set(then.seeds)
    assert not {*first.seeds, *then.seeds} & others


def test_the_contenders_are_what_led_the_trials_with_the_order_of_batches_shared():
    """As the trials of the two were dealt; the third has the rotations of the rival."""
    for name, family in ((OURS, "oscillator"), (RIVAL, "softmax, rotary")):
        c = ten.CONTENDERS[name]
        dealt = [t.configuration for t in made.choose.trials(family)]
        assert replace(c, learning_rate=1e-3) in dealt
        assert family in FAMILIES
    turned, rival = (ten.CONTENDERS[name].mechanism for name in (TURNED, RIVAL))
    assert (turned.base, turned.coupling) == (rival.base, "exp")
    runs = ten.known_runs(made.evidence([]))
    assert len(runs) == 6
    assert {run.paired for run in runs} == {True}
    assert {run.epochs for run in runs} == {10}
    assert len({key(run.recipe()) for run in runs}) == 6


def test_a_seed_is_trained_by_all_three_before_the_next():
    """So that machines, of which sittings have different ones, fall on the three alike."""
    runs = ten.known_runs(held(99.5, 98.0))[-24:]
    packs = runner.packs(runs, 1)
    assert [p.seeds[0] for p in packs] == [seed for seed in range(80, 88) for _ in range(3)]
    assert [p.run.model for p in packs] == [p.run.model for p in packs[:3]] * 8


# the tests


def held(ours: float, turned: float, noise: float = 0.002, without: int = 0):
    """All of it, with these perplexities and 98 of the rival; lacking some of the last models."""

    def truth(run):
        given = {"Oscillator": ours, "ExponentialRope": turned}
        return given.get(type(run.model.attention).__name__, 98.0)

    records = made.invented(ten.known_runs(made.evidence([])), truth, noise)
    while True:  # rates, then what they make known
        evidence = made.evidence(records)
        lacking = choose.missing(evidence, ten.known_runs(evidence))
        if not lacking:
            return made.evidence(records[: len(records) - without])
        records += made.invented(lacking, truth, noise)


@pytest.mark.parametrize(
    ("ours", "turned", "said"),
    [
        (99.5, 98.0, ("is worse (+1.", "is not told apart from it (")),
        (98.0, 96.0, ("is not told apart from it (", "is better (-2.")),
    ],
)
def test_what_is_said_is_what_the_tests_say(ours, turned, said):
    evidence = held(ours, turned)
    answer = ten.answer(evidence)
    for name, d, text in zip((OURS, TURNED), (48, 32), said, strict=True):
        assert f"{name}, d_osc {d}, {text}" in answer
    assert "; 8 seeds, alpha = 0.01" in answer
    assert answer in page.page(evidence, "x")
    p = ten.p_values(found := ten.comparisons(evidence))
    raw = {name: c.welch.p for name, c in found.items() if not isinstance(c, Undecided)}
    assert min(p.values()) == pytest.approx(2 * min(raw.values()))
    assert max(p.values()) == pytest.approx(max(raw.values()))
    table = ten.table(evidence)
    assert [row[0] for row in table.rows] == [OURS, TURNED, RIVAL]
    assert {len(row) for row in table.rows} == {len(table.columns)}
    assert not any("still to be trained" in note for note in table.notes)


def test_nothing_is_said_before_all_seeds_are_there():
    evidence = held(99.5, 98.0, without=1)
    assert ten.answer(evidence) == ""
    assert set(ten.p_values(ten.comparisons(evidence)).values()) == {1.0}
    table = ten.table(evidence)
    assert "softmax, rotary has 7 of 8 seeds" in table.rows[0]
    assert "Models still to be trained: 1." in table.notes
    nothing = made.evidence([])
    assert ten.answer(nothing) == ""
    assert ten.table(nothing).rows == []
    assert ten.table(nothing).title not in page.page(nothing, "x")
    begun = at({2e-3: 90})
    assert ten.table(begun).rows[0][5] == "0.002: 90.00 (1 seed)"
    assert "Models still to be trained: 29." in ten.table(begun).notes


def test_what_diverged_is_undecided():
    evidence = held(99.5, 98.0)
    records = evidence.all()
    bad = confirm.records(evidence, ten.settled(evidence)[OURS], "strict", "ten")[0]
    gone = [replace(r, curve=[{"loss": math.nan}]) if r is bad else r for r in records]
    answer = ten.answer(made.evidence(gone))
    assert f"{OURS}, d_osc 48, is (undecided: seed 80 of {OURS} diverged)" in answer
    assert f"{TURNED}, d_osc 32, is not told apart" in answer


def test_it_leaves_the_contest_alone():
    """A page with and without it differs by its table and its sentence."""
    everything = made.everything()
    evidence = made.evidence([*everything, *held(99.5, 98.0).all()])
    won = made.chosen(evidence)
    assert won == made.chosen(made.evidence(everything))
    assert confirm.comparisons(evidence, won) == confirm.comparisons(made.evidence(everything), won)
    assert page.verdict(evidence) == page.verdict(made.evidence(everything))
