"""What follows from records of rank, truncation and entropy: judged on the published numbers."""

import math
from dataclasses import replace
from statistics import stdev

import language_records
import pytest
from invented import measured, record
from rank_records import SPREAD, MadeUp

from lohe.experiments import item
from lohe.experiments.evidence import Evidence
from lohe.experiments.reported import published
from lohe.experiments.setting import COMPACT, PAPERS, READINGS, Setting
from lohe.experiments.studies.lm.perplexity import CORPORA, oscillator, reported, run
from lohe.experiments.studies.rank import cohort, effective_rank, flatness, rank_parity, truncation
from lohe.experiments.studies.rank.attention_entropy import AttentionEntropy
from lohe.experiments.studies.rank.bottleneck import figure_10
from lohe.experiments.verdicts import judge
from lohe.models import RankMatchedSoftmax, Softmax
from lohe.viz.style import drawing

NAMES = ["figure9", "figure10", "claim-rank-matched", "claim-rank-parity"]


@pytest.fixture(scope="module")
def made():
    return MadeUp()


def claims(name: str, evidence: Evidence) -> dict[tuple[str, str, str], bool | None]:
    """Whether each claim of an item holds, by claim, corpus and reading."""
    return {
        (line.claim.name, line.what.partition(",")[0].removesuffix(" (trend)"), line.reading): (
            line.claim.holds
        )
        for line in item(name).lines(evidence)
        if line.claim
    }


def expected(*names: str, holds: bool | None) -> dict[tuple[str, str, str], bool | None]:
    return {
        (name, corpus, reading): holds
        for name in names
        for corpus in CORPORA.values()
        for reading in READINGS
    }


PAPER_SAYS = {
    "figure9": expected("lm-entropy", "lm-entropy-sharpness", holds=True),
    "figure10": expected(
        "lm-rank",
        "lm-mask-rank",
        "lm-truncation",
        "lm-truncation-every",
        "lm-truncation-recovered",
        holds=True,
    ),
    "claim-rank-matched": expected("lm-rank-matched", "lm-rank-part", holds=True)
    | {("lm-rank-descent", corpus, ""): True for corpus in CORPORA.values()},
    # the published fit meets the spread of softmax at d_osc = 1530, its effective rank is 48
    "claim-rank-parity": expected("lm-rank-parity", holds=False),
}


@pytest.mark.parametrize("name", NAMES)
def test_the_published_numbers_decide_the_claims(made, name):
    assert claims(name, made.evidence) == PAPER_SAYS[name]


def changed(made: MadeUp, find: str, times: float) -> Evidence:
    """Every result of this name, scaled."""
    scaled = [
        replace(r, result=r.result | {find: r.result[find] * times})
        for r in made.records
        if find in r.result
    ]
    return Evidence([*made.records, *scaled], made.setting)  # of two records the later counts


@pytest.mark.parametrize(
    ("name", "find", "times", "claim", "readings"),
    [
        ("figure10", "similarity.mean", 1.3, "lm-rank", {False}),  # 3.00061 at d_osc = 2
        ("figure10", "as_published", 0.5, "lm-truncation", {False, True}),
        ("figure10", "causal", 0.4, "lm-truncation", {False, True}),
        ("figure9", "median", 0.3, "lm-entropy", {False}),  # differences shrink to 0.09
        ("figure9", "median", 0.4, "lm-entropy", {True}),
        ("figure10", "as_published", 0.8, "lm-truncation-every", {False, True}),  # only at 33
        ("figure10", "causal", 0.2, "lm-truncation-recovered", {False, True}),
    ],
)
def test_a_claim_can_fail(made, name, find, times, claim, readings):
    found = claims(name, changed(made, find, times))
    assert {holds for (of, _, _), holds in found.items() if of == claim} == readings


def test_truncation_above_the_oscillators_at_17_may_be_below_at_33(made):
    found = claims("figure10", changed(made, "as_published", 0.8))
    for corpus in CORPORA.values():
        assert found["lm-truncation", corpus, "as published"] is True
        assert found["lm-truncation-every", corpus, "as published"] is False


def test_a_flatter_readout_at_larger_p_is_found(made):
    mechanism = oscillator("as defined", 8, 4)
    measure = AttentionEntropy(run(made.setting, "wikitext2", mechanism), 128)
    flat = measured(measure, {"median": 0.99, "q1": 0.9, "q3": 1.0, "rows": 8, "mean": 0.9})
    found = claims("figure9", Evidence([*made.records, flat], made.setting))
    assert found["lm-entropy-sharpness", "WikiText-2", "as defined"] is False
    assert found["lm-entropy-sharpness", "WikiText-2", "as published"] is True


@pytest.mark.parametrize(
    ("mean", "part", "descent"),
    [
        (9.41, True, True),
        (8.67, False, False),  # scores of rank 2 cost nothing
        (10.91, False, True),  # they cost all of it
    ],
)
def test_a_part_is_neither_nothing_nor_all(made, mean, part, descent):
    run = made.of("tinystories", RankMatchedSoftmax(d_qk=2))
    other = language_records.records(run, [mean + x for x in SPREAD])
    found = claims("claim-rank-matched", Evidence([*made.records, *other], made.setting))
    assert found["lm-rank-part", "TinyStories", "as published"] is part
    assert found["lm-rank-descent", "TinyStories", ""] is descent


def test_a_mask_that_lifts_unevenly_is_found(made):
    result = {"attention.mean": 38.6 * 1.26, "similarity.mean": 9.0}
    measure = effective_rank.of(made.setting, "wikitext2", oscillator("as defined", 16))
    found = claims("figure10", Evidence([*made.records, measured(measure, result)], made.setting))
    assert found["lm-mask-rank", "WikiText-2", "as defined"] is False
    assert found["lm-mask-rank", "WikiText-2", "as published"] is True


def test_values_on_other_corpora_are_not_compared(made):
    values = {str(line.value) for line in item("figure10").lines(made.evidence)}
    assert values == {"not reported", "not comparable", "no records"}


def test_the_papers_own_corpora_are_compared():
    made = MadeUp(corpora=PAPERS)
    judged = judge(item("figure10").lines(made.evidence))
    assert {j.value for j in judged if j.line.what.startswith("TinyStories")} == {
        "not reported",
        "no records",
        "reproduced",
    }
    other = changed(made, "similarity.mean", 1.2)  # ln 1.2 is above the margin 0.15
    judged = judge(item("figure10").lines(other))
    assert sum(j.value == "differs" for j in judged) == 8


@pytest.mark.parametrize(
    ("corpora", "articles", "stories"),
    [(PAPERS, "not reported", "reproduced"), (COMPACT, "reproduced", "not comparable")],
)
def test_ratios_to_softmax_are_judged_on_one_corpus(corpora, articles, stories):
    """TinyStories where it is the paper's; else WikiText-2 in its place."""
    judged = judge(item("claim-rank-matched").lines(MadeUp(corpora=corpora).evidence))
    found = [j for j in judged if "less softmax" in j.line.what]
    assert [j.value for j in found] == [articles] * 4 + [stories] * 4
    assert [j.elsewhere for j in found] == [corpora is COMPACT] * 4 + [False] * 4


def test_a_sharpened_readout_breaks_the_stated_ceiling(made):
    measure = effective_rank.of(made.setting, "wikitext2", oscillator("as published", 2, 4))
    result = {"similarity.mean": 2.2, "sharpened.mean": 3.1, "sharpened.rank": 9}
    evidence = Evidence([measured(measure, result)], made.setting)
    (judged,) = [j for j in judge(item("figure10").lines(evidence)) if j.value == "differs"]
    assert (judged.line.paper, judged.line.ours) == ("at most 3 for every p", "9")
    assert "bound 9" in judged.note


def test_one_seed_and_nonsense_are_survived(made):
    softmax = run(made.setting, "wikitext2", Softmax())
    records = language_records.records(softmax, [math.nan])
    for r in made.records:
        if r.seed == 0 and r.recipe != softmax.recipe():
            nonsense = dict.fromkeys(r.result, math.nan)
            records.append(r if "valid.perplexity" in r.result else replace(r, result=nonsense))
    evidence = Evidence(records, made.setting)
    for name in NAMES:
        assert set(claims(name, evidence).values()) == {None}
        judge(item(name).lines(evidence))
        if table := item(name).table:
            table(evidence)


def test_results_that_are_all_the_same_are_survived(made):
    same = [replace(r, result=dict.fromkeys(r.result, 1.0)) for r in made.records]
    evidence = Evidence(same, made.setting)
    for name in NAMES:
        lines = item(name).lines(evidence)
        assert [judged.line for judged in judge(lines)] == lines


@pytest.mark.parametrize("corpus", ["tinystories", "wikitext2"])
def test_the_crossing_is_that_of_the_published_fit(corpus):
    # C and alpha of the authors' own fit (Section 4.2, Figure 6)
    fits = {
        "tinystories": (3.5820997344800602, 0.5986320029264863),
        "wikitext2": (15.16572289419718, 0.4202988371299427),
    }
    prefactor, exponent = fits[corpus]
    table = published("table4")[corpus]
    base = sum(table["softmax"]) / 5
    gaps = {d: sum(table["oscillator"][str(d)]) / 5 - base for d in (2, 4, 8, 16, 32)}
    level = stdev(table["softmax"])
    expected = (prefactor / level) ** (1 / exponent)
    assert rank_parity.crossing(gaps, level) == pytest.approx(expected, rel=1e-6)


def test_gaps_that_do_not_fall_cross_nowhere():
    assert rank_parity.crossing({2: 1.0, 4: 1.5}, 0.5) == math.inf
    assert math.isnan(rank_parity.crossing({2: 1.0, 4: -0.5}, 0.5))
    assert math.isnan(rank_parity.crossing({2: 1.0, 4: 0.5}, 0.0))


def test_published_numbers_are_those_that_the_paper_prints():
    paper = published("figure10")
    assert [f"{x['mean']:.2f}" for x in paper["similarity"].values()] == [
        "2.31",
        "3.95",
        "5.79",
        "9.59",
    ]
    assert {round(x, -1) for x in paper["attention"].values()} == {40}
    assert [f"{paper['truncated'][r]:.1f}" for r in ("3", "33")] == ["49.7", "10.6"]
    figure9 = published("figure9")
    assert f"{figure9['softmax'][0]:.2f}" == "0.60"
    assert {f"{x[0]:.2f}" for x in figure9["oscillator"].values()} == {"0.90", "0.91", "0.92"}


def test_smoke_scale_asks_for_little():
    smoke, full = Setting("smoke"), Setting("full", COMPACT)
    for name in NAMES:
        assert len(item(name).measures(smoke)) <= len(item(name).measures(full))
    assert len(item("figure10").measures(full)) == 2 * (17 + 5)
    assert len(item("figure9").measures(full)) == 2 * (9 + 8)
    assert {m.chunks for m in item("figure10").measures(full)} == {128, None}
    assert {m.run and m.run.seed for m in item("figure10").measures(full)} == {0}
    assert len(item("claim-rank-matched").runs(full)) == 15 * (5 + 3)
    assert truncation.of(smoke, "wikitext2", 3).chunks is not None


@pytest.mark.parametrize("name", ["figure9", "figure10"])
@pytest.mark.parametrize("records", ["published", "none"])
def test_figures_are_drawn(made, name, records):
    from matplotlib import pyplot as plt

    evidence = made.evidence if records == "published" else Evidence([], made.setting)
    draw = item(name).figure
    assert draw
    with drawing():
        figure = draw(evidence)
        said = {text.get_text() for ax in figure.axes for text in ax.texts}
        assert ("no records" in said) == (records == "none")
        legends = [ax.get_legend() for ax in figure.axes]
        labels = {text.get_text() for legend in legends if legend for text in legend.get_texts()}
        assert any("paper" in label for label in labels)
        plt.close(figure)


def test_series_of_figure_10_differ_without_their_colour(made):
    from matplotlib import pyplot as plt

    with drawing():
        figure = figure_10(made.evidence)
        for ax in figure.axes:
            lines = [container.lines[0] for container in ax.containers]
            looks = [(x.get_marker(), x.get_linestyle(), x.get_mfc() == "white") for x in lines]
            assert len(set(looks)) == len(looks) > 3
        plt.close(figure)


def test_published_entropies_stand_at_their_d_osc():
    import matplotlib.pyplot as plt

    with drawing():
        figure = flatness.figure_9(Evidence([], Setting()))
        stories = figure.axes[1]
        dots = [float(line.get_xdata()[0]) for line in stories.lines if len(line.get_xdata()) == 1]
        assert dots == list(stories.get_xticks())
        plt.close(figure)


def test_every_seed_is_in_a_box():
    setting = Setting("full")
    runs = [setting.agreement(Softmax(), seed) for seed in range(3)]
    hard = [97.0, 98.0, 70.0]
    records = [
        record(run.recipe(), run.seed, {"valid.hard": x, "valid.overall": x})
        for run, x in zip(runs, hard, strict=True)
    ]
    evidence = Evidence(records, setting)
    boxes = flatness._boxes(evidence)
    assert boxes["softmax\nours\n(3)"] == hard
    assert len(boxes["oscillator\npaper\n(50)"]) == 50
    (line,) = [x for x in flatness.lines(evidence) if "seeds of softmax" in x.what]
    assert (line.paper, line.ours) == ("12/50", "1/3")


def test_perplexities_are_of_the_stories_that_no_epoch_was_selected_on():
    """The same numbers as in Table 4, and truncated models are scored on the same split."""
    setting = Setting("full", COMPACT)
    stories = run(setting, "tinystories", Softmax())
    made = [record(stories.recipe(), 0, {"valid.perplexity": 30.0, "test.perplexity": 31.0})]
    assert cohort.perplexities(Evidence(made, setting), "tinystories", Softmax()) == [31.0]
    assert reported(stories.task) == "test"
    assert reported(run(setting, "wikitext2", Softmax()).task) == "valid"
