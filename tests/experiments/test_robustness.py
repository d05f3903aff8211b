"""Table 9 and Figure 8 from records: what is compared, and what the claims ask for."""

import math

import pytest
from invented import claims, evidence, measured, verdicts

from lohe.experiments.setting import Setting
from lohe.experiments.studies.robust import physics, robustness
from lohe.experiments.studies.robust.devices import measures, reported
from lohe.experiments.studies.robust.robustness import HORIZONS, ITEMS, SCALES
from lohe.experiments.studies.robust.subjects import KWS, SUBJECTS, SVA, TINYSTORIES, WIKITEXT2
from lohe.experiments.verdicts import judge
from lohe.viz.style import drawing

GRID = (*physics.GRID, *map(physics.rotation, SCALES))
TABLE, FIGURE = ITEMS["table9"], ITEMS["figure8"]
TABLES = {"table9": robustness.table_9, "figure8": robustness.figure_8_table}


def subject_of(measure):
    task = type(measure.run.task).__name__
    names = {"SVA": SVA, "WikiText2": WIKITEXT2, "TinyStories": TINYSTORIES}
    return names.get(task, KWS)


def made_up(value, spread=0.0):
    """Every measure taken on two models, with value(subject, physics, draw) as the change, and
    `spread` between them."""
    records = []
    for measure in measures(Setting("quick")):
        subject, seed = subject_of(measure), measure.run.seed if measure.run else 0
        further = spread * (seed - 0.5)
        curve = [
            {
                "physics": one.name,
                "level": one.level,
                subject.metric: [
                    value(subject, one, draw) + further for draw in range(measure.draws)
                ],
            }
            for one in GRID
        ]
        records.append(measured(measure, {}, curve))
    return evidence(records, "quick")


def as_published(subject, one, draw):
    theirs = reported(subject, one.name, one.level)
    return theirs.value if theirs else 0.0


@pytest.fixture(scope="module")
def same():
    return made_up(as_published)


def test_what_was_published_is_reproduced_by_itself(same):
    for item in (TABLE, FIGURE):
        lines = item.lines(same)
        found = [j.value for j in judge(lines) if j.value != "not reported"]
        # a few published points have errors wider than the margin
        assert set(found) <= {"reproduced", "inconclusive"}
        assert found.count("reproduced") > 0.9 * len(found)
        assert set(claims(lines).values()) == {True}


def test_every_printed_number_has_a_line(same):
    published = [x for x in TABLE.lines(same) if x.reading == "as published"]
    assert len(published) == 3 + 3 * 6
    said = {line.paper.split()[0] for line in published[1:]}
    assert {"-0.13", "-7.21", "+0.44", "+0.01"} <= said
    points = [x for x in FIGURE.lines(same) if x.reading == "as published"]
    assert len(points) == 2 * 3 * 5 + 2
    assert [x.paper for x in points if x.what == "KWS, mismatch 0.5"] == ["-0.26 pp"]
    assert [x.paper for x in points if x.what == "WikiText-2, frequency 0.5"] == [
        "+3.41 % (TinyStories)"
    ]


def test_large_changes_differ_and_break_the_claims():
    lost = made_up(lambda subject, one, draw: 0.3 if subject.language else -5.0)
    lines = TABLE.lines(lost) + FIGURE.lines(lost)
    assert "differs" in verdicts(lines)
    found = {name: holds for (name, _), holds in claims(lines).items()}
    assert found.pop("robust-state-noise") is True  # at once, and then no worse
    assert set(found.values()) == {False}
    assert set(found) == {
        "robust-kws",
        "robust-kws-frequency",
        "robust-lm-mismatch",
        "robust-lm-frequency",
        "robust-settling",
        "settle-kws-shortest",
        "settle-sva-resolution",
    }


@pytest.mark.parametrize(
    ("kind", "level", "claim", "inside", "outside"),
    [
        ("coupling", 0.5, "robust-lm-mismatch", 0.019, 0.021),
        ("frequency", 0.5, "robust-lm-frequency", 0.049, 0.051),
        ("settling", 30.0, "robust-settling", 0.0024, 0.0026),
    ],
)
def test_language_claims_have_the_bounds_of_the_rules(kind, level, claim, inside, outside):
    for change, holds in ((inside, True), (outside, False)):

        def value(subject, one, draw, change=change):
            chosen = subject.language and (one.name, one.level) == (kind, level)
            return change if chosen else 0.0

        found = made_up(value)
        lines = TABLE.lines(found) + FIGURE.lines(found)
        assert claims(lines)[claim, "as published"] is holds


def test_a_claim_of_equivalence_needs_its_interval_inside():
    """Means of nothing hold no claim where the models are far apart."""
    for spread, holds in ((1e-5, True), (0.05, False)):
        found = made_up(lambda subject, one, draw: 0.0, spread)
        language = {
            name: held
            for (name, _), held in claims(TABLE.lines(found) + FIGURE.lines(found)).items()
            if name.startswith("robust-lm") or name == "robust-settling"
        }
        assert set(language.values()) == {holds}
        assert len(language) == 3


@pytest.mark.parametrize(
    ("at", "smooth"),
    [
        ((0.0, -0.02, -0.1, -0.3, -0.9), True),
        ((0.0, -0.2, -0.15, -0.3, -0.9), True),  # chance
        ((0.0, -0.6, -0.1, -0.3, -0.9), False),
        ((0.2, 0.0, -0.1, -0.3, -0.9), False),  # noise does not help
    ],
)
def test_smooth_is_worse_and_worse_up_to_chance(at, smooth):
    def value(subject, one, draw):
        change = dict(zip(SCALES, at, strict=True)).get(one.level, 0.0)
        return change * (-0.01 if subject.language else 1) if one.name == "state" else 0.0

    lines = FIGURE.lines(made_up(value))
    found = {x.what: x.claim.holds for x in lines if x.claim and "state noise from" in x.what}
    assert found == dict.fromkeys(
        ("KWS, state noise from 0.01 to 0.5", "WikiText-2, state noise from 0.01 to 0.5"), smooth
    )


@pytest.mark.parametrize(
    ("at", "keywords", "sentences"),
    [
        ((-0.2, -0.1, -0.05, -0.005), True, True),
        ((-0.3, -0.1, -0.05, -0.006), False, False),
        ((-0.1, -0.1, -0.05, 0.0), True, False),  # not descending
    ],
)
def test_resolution_is_that_of_the_caption_of_table_9(at, keywords, sentences):
    def value(subject, one, draw):
        change = dict(zip(HORIZONS, at, strict=False)).get(one.level, 0.0)
        return change if one.name == "settling" and not subject.language else 0.0

    found = claims(TABLE.lines(made_up(value)))
    assert found["settle-kws-shortest", "as published"] is keywords
    assert found["settle-sva-resolution", "as defined"] is sentences


def test_keyword_claims_need_the_interval_inside():
    def spread(subject, one, draw):
        return 0.5 if subject is KWS else 0.0

    assert claims(FIGURE.lines(made_up(spread)))["robust-kws", "as published"] is True
    seeds = iter(range(10**6))
    wide = made_up(lambda *_: 0.1 + 0.9 * (next(seeds) // (5 * len(GRID)) % 2))
    assert claims(FIGURE.lines(wide))["robust-kws", "as published"] is False


def test_the_definition_reads_the_scale_of_frequencies_literally():
    def value(subject, one, draw):
        return {"frequency": 0.01, "rotation": 0.06}.get(one.name, 0.0) if subject.language else 0.0

    found = claims(FIGURE.lines(made_up(value)))
    assert found["robust-lm-frequency", "as published"] is True
    assert found["robust-lm-frequency", "as published, deviation s"] is False
    assert found["robust-lm-frequency", "as defined"] is False


@pytest.mark.parametrize("nonsense", [math.nan, math.inf, 0.0])
def test_nonsense_is_not_judged_and_does_not_break(nonsense):
    found = made_up(lambda *_: nonsense)
    for name, table in TABLES.items():
        judged = judge(ITEMS[name].lines(found))
        if not math.isfinite(nonsense):
            assert {j.value for j in judged} <= {"inconclusive", "not reported"}
            assert True not in {j.line.claim.holds for j in judged if j.line.claim}
        assert table(found).rows


def test_the_tables_have_a_row_a_level(same):
    rows = robustness.table_9(same).rows
    assert len(rows) == len(SUBJECTS) * (1 + len(HORIZONS))
    assert len(robustness.figure_8_table(same).rows) == len(SUBJECTS) * 4 * (1 + len(SCALES))


@pytest.mark.parametrize("there", [True, False])
def test_the_figure_has_three_rows_of_four(same, there):
    with drawing():
        figure = robustness.figure_8(same if there else evidence())
    assert len(figure.axes) == 12
    _, texts = figure.axes[-1].get_legend_handles_labels()
    assert texts[0] == "paper (language: TinyStories)"
    assert len(texts) == (4 if there else 1)
    # one legend names what is in any panel, and covers none
    assert [text.get_text() for text in figure.legends[0].get_texts()] == texts
    assert not any(ax.get_legend() for ax in figure.axes)
    # agreement was not published under imperfections: ours alone, or nothing
    said = [text.get_text() for text in figure.axes[4].texts]
    assert said == ([] if there else ["no records"])
