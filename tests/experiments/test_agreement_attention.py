"""What is measured at the verb, and what Table 3, Figure 4 and the prose make of it."""

import math
from dataclasses import replace
from pathlib import Path

import matplotlib.pyplot as plt
import pytest
import torch
from invented import evidence
from sva_records import find, measurement

import short_sva
from lohe.experiments.evidence import Evidence
from lohe.experiments.measures import Bench
from lohe.experiments.setting import Setting
from lohe.experiments.store.store import Store
from lohe.experiments.studies.sva import agreement_anchors as anchors
from lohe.experiments.studies.sva import agreement_attention as attention
from lohe.experiments.studies.sva import agreement_distributions as distributions
from lohe.experiments.studies.sva import agreement_errors as errors
from lohe.experiments.studies.sva import agreement_verbs as verbs
from lohe.experiments.studies.sva.agreement_cohort import AS_DEFINED, AS_PUBLISHED, COMPARED
from lohe.experiments.verdicts import judge
from lohe.models import Softmax, attention_layers
from lohe.tasks import sva, total
from lohe.viz.style import drawing

PUBLISHED, DEFINED = "as published", "as defined"
CPU = torch.device("cpu")


class OneModel(Bench):
    """A bench with this model on the short sentences."""

    def __init__(self, model):
        super().__init__(Store(Path("nowhere")))
        self._model = model

    def data(self, run):
        return short_sva.data()

    def model(self, run):
        return self._model


def untrained(mechanism, seed: int = 0):
    run = short_sva.run(mechanism, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    return run, run.model.build(short_sva.data(), generator).eval()


def take(measure, model):
    return measure.take(OneModel(model))


@pytest.mark.parametrize("mechanism", COMPARED.values(), ids=list(COMPARED))
def test_a_sentence_alone_gives_what_it_gives_among_others(mechanism):
    """The published figure was made sentence by sentence, without padding."""
    _, model = untrained(mechanism)
    split = short_sva.data().splits["test"]
    found = verbs.look(model, split, ["easy", "hard"], CPU)
    kept = (split.targets["category"] > 0).nonzero()[:, 0]
    assert len(kept) == len(found.logit)
    for n in range(3):
        alone = split.take(kept[n : n + 1])
        assert alone.inputs["key_mask"].all()
        with torch.no_grad():
            logit = model(**alone.inputs)
        (weights,) = verbs.attention_weights(model, **alone.inputs)
        assert found.logit[n].item() == pytest.approx(logit.item(), abs=1e-6)
        assert found.to_subject[n].item() == pytest.approx(weights[0, 0, 6, 2].item(), abs=1e-6)
        assert found.to_distractor[n].item() == pytest.approx(weights[0, 0, 6, 5].item(), abs=1e-6)


def test_what_is_counted_adds_up_and_is_the_tasks_own_accuracy():
    run, model = untrained(AS_PUBLISHED)
    result, curve = (found := take(verbs.VerbAttention(run), model)).result, found.curve
    data = short_sva.data()
    with torch.no_grad():
        sums = run.task.tally(model(**data.valid.take(slice(None)).inputs), data.valid.targets)
    record = measurement(verbs.VerbAttention(run), 0, result, curve)
    hard = run.task.score(total([sums]))["hard"]
    assert verbs.hard_accuracy(record) == pytest.approx(hard.item())
    assert result["wrong.kept_close"] <= min(result["wrong.kept"], result["wrong.close"])
    for side in verbs.SIDES:
        gap = result[f"{side}.to_subject"] - result[f"{side}.to_distractor"]
        assert result[f"{side}.gap"] == pytest.approx(gap)
    histograms = {name: values for line in curve for name, values in line.items()}
    assert sum(histograms["wrong.subjects"].values()) == result["wrong.sentences"]
    for name in ("test.to_subject", "test.to_distractor"):
        counts = histograms[name]
        assert sum(counts) == result["test.sentences"]
        middle = sum(k * (n + 0.5) / 100 for n, k in enumerate(counts)) / sum(counts)
        assert middle == pytest.approx(result[name], abs=0.005)  # half a bin


def test_without_couplings_softmax_attends_to_all_nine_words_alike():
    run, model = untrained(Softmax())
    (layer,) = attention_layers(model)
    torch.nn.init.zeros_(layer.to_q.weight)
    found = take(verbs.VerbAttention(run), model)
    assert found.result["test.to_subject"] == pytest.approx(1 / 9)
    assert found.result["correct.gap"] == pytest.approx(0, abs=1e-7)
    assert found.result["wrong.kept"] == 0
    assert found.curve[0]["test.to_subject"][11] == found.result["test.sentences"]  # 0.11 to 0.12


def test_errors_without_number_are_those_on_fish_and_deer():
    assert {"fish", "deer"} == verbs.INVARIANT
    run, model = untrained(AS_DEFINED)
    found = take(verbs.VerbAttention(run), model)
    words = found.curve[2]["wrong.subjects"]
    assert set(words) <= set(sva.SINGULAR_NOUNS) | set(sva.PLURAL_NOUNS)
    assert found.result["wrong.invariant"] == words.get("fish", 0) + words.get("deer", 0)


def result(correct: int = 1120, gap: float = 0.2, wrong_gap: float = 0.15, **changes: float):
    """A seed that looks like the published ones; what is changed is given."""
    names = {"correct": (correct, gap, 6.4), "wrong": (1153 - correct, wrong_gap, 0.9)}
    values = {}
    for side, (sentences, distance, logit) in names.items():
        values |= {
            f"{side}.sentences": sentences,
            f"{side}.to_subject": 0.1 + distance,
            f"{side}.to_distractor": 0.1,
            f"{side}.gap": distance,
            f"{side}.logit": logit,
        }
    wrong = 1153 - correct
    values |= {"wrong.invariant": wrong, "wrong.close": wrong, "wrong.kept": wrong}
    values |= {"wrong.kept_close": wrong, "wrong.reversed": 0, "test.sentences": 2415}
    for name, x in (("to_subject", 0.3), ("to_distractor", 0.1)):
        values |= {f"test.{name}": x, f"test.{name}_std": 0.1}
    return values | {name.replace("__", "."): x for name, x in changes.items()}


CURVE = [
    {"test.to_subject": [0] * 30 + [24] + [0] * 69},
    {"test.to_distractor": [0] * 10 + [24] + [0] * 89},
    {"wrong.subjects": {"fish": 20, "deer": 13}},
]


def seeds(**by_mechanism: list[dict[str, float]]) -> Evidence:
    """Measurements: softmax=[...], as_published=[...], as_defined=[...]; one result a seed."""
    setting = Setting()
    names = {"softmax": "softmax"} | {
        f"as_{r[3:]}": f"oscillator, {r}" for r in (PUBLISHED, DEFINED)
    }
    return evidence(
        [
            measurement(
                verbs.VerbAttention(setting.agreement(COMPARED[names[n]])), seed, one, CURVE
            )
            for n, results in by_mechanism.items()
            for seed, one in enumerate(results)
        ]
    )


PRINTED = {  # Table 3
    ("softmax", "correct"): ("0.59 ± 0.16", "0.24 ± 0.15", "+0.35"),
    ("softmax", "wrong"): ("0.23 ± 0.14", "0.06 ± 0.06", "+0.16"),
    ("oscillator", "correct"): ("0.20 ± 0.11", "0.08 ± 0.04", "+0.12"),
    ("oscillator", "wrong"): ("0.26 ± 0.09", "0.07 ± 0.04", "+0.19"),
}


@pytest.mark.parametrize(("cell", "printed"), PRINTED.items(), ids=" ".join)
def test_every_number_of_table_3_has_a_line(cell, printed):
    mechanism, side = cell
    lines = attention.lines_3(seeds())
    for symbol, text in zip(("a_vs", "a_vd", "gap"), printed, strict=True):
        for reading in ("",) if mechanism == "softmax" else (PUBLISHED, DEFINED):
            judged = find(lines, f"{mechanism}, {side}, {symbol}", reading)
            assert (judged.line.paper, judged.value) == (text, "no records")


def test_attention_is_judged_by_the_mean_over_seeds():
    lines = attention.lines_3(seeds(softmax=[result(gap=g) for g in (0.3, 0.34, 0.38)]))
    judged = find(lines, "softmax, correct, gap")
    assert judged.line.ours == "+0.34"
    assert "difference -0.00498" in judged.note
    assert find(lines, "hard sentences").value == "reproduced"


@pytest.mark.parametrize(
    ("softmax", "oscillator", "verdict"),
    [
        ((0.3, 0.34), (0.1, 0.12), "holds"),
        ((0.3, 0.34), (-0.1, -0.12), "does not hold"),
        ((0.3, -0.34), (0.1, 0.12), "does not hold"),  # softmax: no mean above 0
        ((), (0.1, 0.12), "no records"),
    ],
)
def test_the_verb_attends_to_its_subject_only_if_it_does_with_both(softmax, oscillator, verdict):
    found = seeds(
        softmax=[result(gap=g + e) for g in softmax for e in (-0.01, 0, 0.01)],
        as_defined=[result(gap=g + e) for g in oscillator for e in (-0.01, 0, 0.01)],
    )
    assert find(attention.lines_3(found), "oscillator, correct, gap", DEFINED).claim == verdict


def test_failed_models_are_counted():
    found = seeds(as_published=[result(), result(), result(correct=900)])
    said = " ".join(attention.table_3(found).notes)
    assert "Failed among these: 1/3 oscillator, as published." in said


def test_one_seed_with_a_negative_gap_breaks_the_claim_about_every_seed():
    for last, verdict in ((0.01, "holds"), (-0.01, "does not hold")):
        found = seeds(as_published=[result(), result(), result(wrong_gap=last)])
        judged = find(attention.lines_3(found), "oscillator, wrong, gap", PUBLISHED)
        assert judged.claim == verdict


def test_a_seed_without_errors_has_no_gap_on_them():
    spotless = result(correct=1153, wrong_gap=math.nan, wrong__logit=math.nan)
    found = seeds(as_published=[result(wrong_gap=0.1), result(wrong_gap=0.3), spotless])
    assert find(attention.lines_3(found), "oscillator, wrong, gap", PUBLISHED).line.ours == "+0.20"
    (row,) = [
        r for r in attention.table_3(found).rows if r[:2] == ("oscillator, as published", "wrong")
    ]
    assert row[2:4] == ("2", "66")
    errors.table_of_errors(found)
    assert (
        find(errors.lines_of_errors(found), "mean |logit|, wrong and right", PUBLISHED).claim
        == "holds"
    )


def test_failed_softmax_seeds_are_kept_apart():
    good = [result(wrong_gap=g) for g in (0.2, 0.26)]
    failed = [result(correct=900, wrong_gap=g) for g in (-0.1, -0.2)]
    lines = attention.lines_3(seeds(softmax=good + failed))
    assert find(lines, "softmax, wrong, gap of seeds that did not fail").line.ours == "+0.23"
    judged = find(lines, "softmax, wrong, gap of seeds that failed")
    assert judged.line.ours == "-0.15 ± 0.07"
    assert "negative in 2 of our 2" in judged.note
    low = find(
        distributions.lines_4(seeds(softmax=good + failed)), "softmax, seeds below 80 % hard"
    )
    assert (low.line.paper, low.line.ours) == ("1/5", "2/4")


@pytest.mark.parametrize(("invariant", "verdict"), [(32, "holds"), (31, "does not hold")])
def test_errors_are_fish_and_deer_if_95_percent_are(invariant, verdict):
    """Of 33 errors; the seed that failed does not count."""
    failed = result(correct=900, wrong__invariant=10)
    found = seeds(as_published=[result(wrong__invariant=invariant), failed])
    judged = find(
        errors.lines_of_errors(found), "wrong predictions: subject is fish or deer", PUBLISHED
    )
    assert judged.claim == verdict
    assert f"{invariant} of 33 in the 1 seeds" in judged.note


@pytest.mark.parametrize(("logit", "verdict"), [(2.1, "holds"), (2.2, "does not hold")])
def test_small_logits_are_below_a_third(logit, verdict):
    found = seeds(as_defined=[result(wrong__logit=logit)])
    judged = find(errors.lines_of_errors(found), "mean |logit|, wrong and right", DEFINED)
    assert judged.claim == verdict


@pytest.mark.parametrize(
    ("close", "verdict"), [(23, "holds"), (20, "does not hold"), (5, "does not hold")]
)
def test_most_is_more_than_half_by_the_binomial_test(close, verdict):
    failed = result(correct=900, wrong__kept_close=0)  # does not count
    found = seeds(softmax=[result(wrong__kept_close=close), failed])  # of 33
    what = "softmax, close calls among errors that keep their gap"
    assert find(errors.lines_of_errors(found), what).claim == verdict


@pytest.mark.parametrize("few", [0, 1, 2])
def test_figures_and_tables_with_few_seeds(few):
    found = seeds(softmax=[result()] * few, as_published=[result()] * few)
    lines = distributions.lines_4(found)
    assert sum(line.value == "no records" for line in lines) >= (few == 0)
    assert len(judge(lines)) == len(lines) > 0
    assert attention.table_3(found).rows
    with drawing():
        figure = distributions.figure_4(found)
        assert figure.axes
        plt.close(figure)


@pytest.mark.parametrize(
    ("by", "verdict"), [(0.02, "holds"), (0.0, "does not hold"), (-0.02, "does not hold")]
)
def test_the_gap_is_larger_on_wrong_predictions_if_a_paired_test_says_so(by, verdict):
    found = seeds(
        as_published=[
            result(gap=g, wrong_gap=g + by + e)  # seeds differ by more than the gaps do
            for g, e in zip((0.1, 0.2, 0.3, 0.4), (-0.002, 0.001, 0.002, -0.001), strict=True)
        ]
    )
    what = "oscillator, gap on wrong less gap on correct predictions"
    assert find(attention.lines_3(found), what, PUBLISHED).claim == verdict
    assert find(attention.lines_3(found), what, DEFINED).claim == "no records"


@pytest.mark.parametrize(
    ("gaps", "verdict"),
    [
        ((-0.1, -0.12, -0.09), "holds"),
        ((-0.1, 0.12, -0.09), "does not hold"),
        ((-0.1,), "no records"),
    ],
)
def test_failed_softmax_runs_favour_the_distractor_if_their_mean_does(gaps, verdict):
    found = seeds(softmax=[result(), *(result(correct=900, wrong_gap=g) for g in gaps)])
    what = "softmax, wrong, gap of seeds that failed"
    judged = find(attention.lines_3(found), what)
    assert (judged.line.claim.verdict if judged.line.claim else "") == verdict


@pytest.mark.parametrize(("last", "verdict"), [(0.29, "holds"), (0.31, "does not hold")])
def test_a_preference_is_consistent_if_every_seed_has_it(last, verdict):
    found = seeds(as_defined=[result(), result(test__to_distractor=last)])  # to the subject 0.3
    assert find(distributions.lines_4(found), "oscillator, a_vs - a_vd", DEFINED).claim == verdict


@pytest.mark.parametrize(
    ("width", "distance", "verdict"),
    [
        (0.05, 0.0, "holds"),
        (0.2, 0.0, "does not hold"),  # sentences differ more
        (0.05, 0.4, "does not hold"),  # seeds differ more
    ],
)
def test_tighter_means_narrower_in_each_seed_and_over_all_of_them(width, distance, verdict):
    def group(width, distance):
        return [
            result(
                test__to_subject=0.5 + distance * (-1) ** n,
                test__to_subject_std=width + n / 1000,
                test__to_distractor_std=width + n / 1000,
            )
            for n in range(6)
        ]

    found = seeds(softmax=group(0.1, 0.0), as_published=group(width, distance))
    what = "oscillator, a_vs: spread between seeds, and within"
    assert find(distributions.lines_4(found), what, PUBLISHED).claim == verdict


@pytest.mark.parametrize(("apart", "verdict"), [(0.11, "holds"), (0.09, "does not hold")])
def test_seeds_are_to_blame_if_they_make_half_of_the_variance(apart, verdict):
    """Two seeds `apart` from their mean have that deviation; sentences have 0.1."""
    found = seeds(softmax=[result(test__to_subject=0.5 + x) for x in (-apart, apart)])
    what = "softmax, a_vs: spread between seeds, and within"
    assert find(distributions.lines_4(found), what).claim == verdict


@pytest.mark.parametrize(("low", "verdict"), [(0.2, "holds"), (0.5, "does not hold")])
def test_failed_runs_pull_attention_down_if_theirs_is_lower(low, verdict):
    good = [result(test__to_subject=0.4 + n / 100) for n in range(8)]
    failed = [result(correct=900, test__to_subject=low + n / 100) for n in range(4)]
    what = "softmax, a_vs of seeds that failed, and of the others"
    assert find(distributions.lines_4(seeds(softmax=good + failed)), what).claim == verdict
    assert find(distributions.lines_4(seeds(softmax=good)), what).claim == "no records"


@pytest.mark.parametrize(("invariant", "verdict"), [(17, "holds"), (16, "does not hold")])
def test_softmax_errs_alike_if_most_errors_of_successful_runs_are_fish_and_deer(invariant, verdict):
    """Of 33 errors; a run with 90 % is no success."""
    middling = result(correct=1040, wrong__invariant=0)
    found = seeds(softmax=[result(wrong__invariant=invariant), middling])
    what = "softmax, wrong predictions: subject is fish or deer"
    judged = find(errors.lines_of_errors(found), what)
    assert judged.claim == verdict
    assert f"{invariant} of {33 + 113} in the 2 that did not fail" in judged.note


def test_anchors_that_turn_together_stay_as_spread_as_they_were():
    run, model = untrained(AS_DEFINED, seed=3)
    start = take(anchors.AnchorAngles(run), model).result
    assert start["mean_turn"] == pytest.approx(0, abs=1e-7)
    r = attention_layers(model)[0].get_parameter("anchors")
    c, s = math.cos(0.3), math.sin(0.3)
    with torch.no_grad():
        r.copy_(2 * r @ torch.tensor([[c, s], [-s, c]]))
    turned = take(anchors.AnchorAngles(run), model).result
    assert turned["mean_turn"] == pytest.approx(0.3, abs=1e-6)
    assert turned["trained.resultant"] == pytest.approx(start["start.resultant"], abs=1e-6)
    assert turned["trained.p"] == pytest.approx(start["start.p"], abs=1e-6)


def angles(p: float) -> dict[str, float]:
    return {"mean_turn": 0.3} | {
        f"{when}.{name}": x
        for when in ("start", "trained")
        for name, x in (("p", p), ("resultant", 0.3))
    }


@pytest.mark.parametrize(("rejected", "verdict"), [(2, "holds"), (3, "does not hold")])
def test_spread_means_uniform_by_rayleighs_test_in_nine_of_ten_seeds(rejected, verdict):
    measure = anchors.AnchorAngles(Setting().agreement(AS_PUBLISHED))
    p = [0.01] * rejected + [0.6] * (20 - rejected)
    curve = [{"start": [0.1 * k for k in range(9)], "trained": [0.2 * k for k in range(9)]}]
    found = evidence([measurement(measure, n, angles(x), curve) for n, x in enumerate(p)])
    lines = anchors.lines_of_anchors(found)
    assert find(lines, "trained anchors", PUBLISHED).claim == verdict
    assert find(lines, "trained anchors", DEFINED).claim == "no records"
    anchors.table_of_anchors(found)
    with drawing():
        plt.close(anchors.figure_of_anchors(found))


def test_the_legend_names_only_what_is_there():
    curve = [{"start": [0.0] * 9, "trained": [0.2 * k for k in range(9)]}]
    measure = anchors.AnchorAngles(Setting().agreement(AS_PUBLISHED))
    with drawing():
        for p, odd in ((0.6, False), (0.01, True)):
            figure = anchors.figure_of_anchors(
                evidence([measurement(measure, 0, angles(p), curve)])
            )
            named = [text.get_text() for text in figure.legends[0].get_texts()]
            assert ("not uniform by Rayleigh's test" in named) == odd
            assert named[:2] == ["start", "trained, as published"]
            plt.close(figure)


def test_measures_are_of_the_cohorts_own_runs():
    setting = Setting()
    wanted = {setting.agreement(m, seed) for m in COMPARED.values() for seed in range(50)}
    assert {m.run for m in verbs.measures(setting)} == wanted
    assert len(anchors.measures(setting)) == 2 * 50
    assert replace(verbs.measures(setting)[1].run, seed=0) == setting.agreement(Softmax())
