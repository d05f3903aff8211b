"""The trials, like against like: the same learning rate, dropout, seeds and articles."""

import math
import re
from dataclasses import replace

import contest_records as made
import pytest

from lohe.experiments.contest import alike, choose
from lohe.experiments.contest.trials import FAMILIES, OURS, STAGES, trial_runs
from lohe.viz.style import BLUE, drawing

RIVALS = [family for family in FAMILIES if family != OURS]
ROTARY, PLAIN = "softmax, rotary", "softmax"
OTHER_HALF = 0.05  # nats by which ours is worse there, and no other family


def truth(run):
    """Each learning rate and dropout, each family and each d_osc has a perplexity of its own."""
    m = run.model.attention
    base = 100 / run.optimizer.lr**0.2 * (1 + run.model.dropout)
    if not hasattr(m, "d_osc"):
        return base * (1 + len(type(m).__name__) / 1000)
    return base * (1 + 2e-5 / run.optimizer.lr) * (1 + (48 - m.d_osc) / 1000)


def records(noise=1e-9, by_seed=0.0):
    """The seed moves all models of all families alike, and the other half is harder for ours."""
    runs = [run for family in FAMILIES for run in trial_runs(family)]
    found = []
    for record in made.invented(runs, truth, noise):
        harder = OTHER_HALF * ("d_osc" in record.recipe["model"]["attention"])
        moved = {
            f"{split}.nats": record.result[f"{split}.nats"] + by_seed * record.seed + more
            for split, more in (("valid", 0.0), ("later", harder))
        }
        found.append(replace(record, result=record.result | moved))
    return found


def trained(c):
    return alike.Training(c.learning_rate, c.dropout)


@pytest.fixture(scope="module")
def trials():
    return made.evidence(records(by_seed=0.1))


def test_every_cell_is_of_its_own_training(trials):
    """All numbers of the table by the truth; unpaired, other seeds of softmax would move them."""
    table = alike.table(trials)
    assert table.columns[4:] == tuple(RIVALS)
    ours = {s.configuration: s for s in choose.in_trials(trials, OURS)}
    training, seen = None, set()
    for rate, dropout, named, perplexity, *cells in table.rows:
        if not named:
            training = alike.Training(float(rate), float(dropout))
            continue
        (c,) = (
            c
            for c in ours
            if trained(c) == training and named == f"{c.mechanism.d_osc}, {c.mechanism.sharpness:g}"
        )
        seen.add(c)
        there = truth(STAGES["trials"].runs(c)[0]) * math.exp(OTHER_HALF)
        assert perplexity == f"{there * math.exp(0.05):.1f}"  # of seeds 0 and 1
        for family, cell in zip(RIVALS, cells, strict=True):
            (theirs, *_) = (
                s.configuration
                for s in choose.in_trials(trials, family)
                if trained(s.configuration) == training
            )
            ratio = there / truth(STAGES["trials"].runs(theirs)[0])
            assert cell == f"{100 * (ratio - 1):+.1f}"
    assert seen == set(ours)


def test_the_best_stand_above_with_the_seeds_that_ours_has(trials):
    heads = [row for row in alike.table(trials).rows if not row[2]]
    assert [row[:2] for row in heads] == [
        (f"{t.learning_rate:g}", f"{t.dropout:g}") for t in alike.TRAININGS
    ]
    for row, training in zip(heads, alike.TRAININGS, strict=True):
        (c, *_) = alike.tried(trials, PLAIN)[training]
        assert row[4] == f"{truth(STAGES['trials'].runs(c)[0]) * math.exp(0.05):.1f}"


def test_settings_are_in_the_order_of_the_half_that_chooses(trials):
    def turned(record):
        """The other half likes narrow oscillators best."""
        d = record.recipe["model"]["attention"].get("d_osc", 0)
        nats = {"later.nats": record.result["later.nats"] + d}
        return replace(record, result=record.result | nats)

    named = [row[2] for row in alike.table(trials).rows]
    assert named == [row[2] for row in alike.table(made.evidence(map(turned, trials.all()))).rows]


def test_the_standard_error_is_that_of_the_seeds():
    """1 % on each model, two seeds a side; what a seed does to all models is not in it."""
    (note,) = alike.table(made.evidence(records(noise=0.01, by_seed=0.3))).notes
    (said,) = re.findall(r"standard error ([\d.]+) ", note)
    assert float(said) == pytest.approx(1, abs=0.2)


def test_what_is_incomplete_is_left_out_and_said(trials):
    lacking = trial_runs(ROTARY)[0]
    kept = [r for r in trials.all() if (r.recipe, r.seed) != (lacking.recipe(), lacking.seed)]
    table = alike.table(made.evidence(kept))
    assert ROTARY not in table.columns
    assert table.notes[-1] == f"Trials not complete: {ROTARY}."


def test_what_diverged_is_left_out(trials):
    first, *others = alike.TRAININGS

    def gone(record):
        c = record.recipe
        hit = "d_osc" not in c["model"]["attention"] and c["optimizer"]["lr"] == first.learning_rate
        hit = hit and c["model"]["dropout"] == first.dropout
        return replace(record, curve=[{"perplexity": math.inf}]) if hit else record

    found = made.evidence(map(gone, trials.all()))
    for there in alike.rivals(found).values():
        assert [*there] == others
    table, whole = alike.table(found), alike.table(trials)
    cut = [row for row in table.rows if not row[2]]
    assert cut[0][4:] == ("diverged",) * len(RIVALS)
    assert all("diverged" not in row for row in cut[1:])
    settings = len(alike.tried(found, OURS)[first])
    assert all(row[4:] == ("",) * len(RIVALS) for row in table.rows[1 : settings + 1])
    assert table.rows[settings + 1 :] == whole.rows[settings + 1 :]
    assert "not complete" not in table.notes[-1]


def test_nothing_is_shown_before_ours_and_one_other_are_complete():
    for families in ([], [OURS], RIVALS):
        runs = [run for family in families for run in trial_runs(family)]
        found = made.evidence(made.invented(runs))
        assert not alike.rivals(found)
        assert not alike.table(found).rows


def test_the_figure_shows_the_half_that_chooses_epoch_by_epoch(trials):
    with drawing():
        figure = alike.figure(trials)
    shown = {ax.get_title(): ax for ax in figure.axes if ax.get_visible()}
    assert [*shown] == RIVALS
    ours = alike.tried(trials, OURS)
    for family, there in alike.rivals(trials).items():
        curves = [line for line in shown[family].get_lines() if len(line.get_xdata()) > 2]
        assert len(curves) == len(alike.TRAININGS)
        for training, line in zip(alike.TRAININGS, curves, strict=True):
            (c, *_) = ours[training]
            theirs = [x["perplexity"] for x in there[training][0].curve]
            above = truth(STAGES["trials"].runs(c)[0]) / theirs[-1] * 25 / 24 - 1
            assert line.get_xdata() == pytest.approx(theirs, rel=1e-6)
            assert line.get_ydata() == pytest.approx([100 * above] * 24, abs=1e-4)
            assert (line.get_color() == BLUE) == (training.learning_rate == 1e-3)
            assert (line.get_linestyle() == "--") == (training.dropout == 0.2)
