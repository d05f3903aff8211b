"""The report says what the judged lines say, and counts each run once."""

from dataclasses import replace

import pytest

import fakes
from lohe.experiments import report
from lohe.experiments.evidence import Evidence
from lohe.experiments.item import Item
from lohe.experiments.measures import measure_recipe
from lohe.experiments.reported import published
from lohe.experiments.setting import PAPERS, Setting
from lohe.experiments.verdicts import Claim, Line, rules
from lohe.models import Softmax

NOTHING = Evidence([], Setting())


def sections(evidence: Evidence = NOTHING, **items: Item) -> list[report.Section]:
    return report.sections(items or fakes.items(fakes.two_mechanisms), evidence)


def rows(table) -> dict[str, dict[str, str]]:
    return {row[0]: dict(zip(table.columns[1:], row[1:], strict=True)) for row in table.rows}


def about(*claims: Claim, **line: str) -> Item:
    """An item that says this about claims."""
    lines = [Line("a line", "", "", claim=claim, **line) for claim in claims]
    return Item(title="an item", lines=lambda evidence: lines)


def test_values_are_counted_by_verdict():
    shown = rows(report.values(sections()))
    assert shown["table2"] == {
        "lines": "9",
        "reproduced": "1",
        "differs": "1",
        "inconclusive": "1",
        "not comparable": "1",
        "no records": "2",
    }
    assert shown["figure6"]["lines"] == "1"
    assert set(shown["claim-budget"].values()) == {"0", "·"}
    assert shown["all"]["lines"] == "10"
    said = " ".join(report.values(sections()).notes)
    assert (
        "4 lines are in no column but the first, called not reported: the paper prints no" in said
    )
    for word in report.VALUES:
        assert f"{word}: " in said, word  # the legend


def test_claims_are_counted_by_verdict():
    shown = rows(report.claims(sections()))
    assert list(shown) == ["table2", "figure6", "all"]  # an item without claims is left out
    assert shown["table2"] == {
        "claims": "4",
        "holds": "1",
        "does not hold": "1",
        "undecided": "1",
        "no records": "1",
    }
    assert shown["all"]["holds"] == "2"


def test_all_of_it_in_two_sentences():
    said = report.overall(sections())
    assert said.startswith("10 lines: not reported 4, no records 2, reproduced 1, ")
    assert " 5 claims: holds 2, does not hold 1" in said
    assert report.overall([]) == "0 lines. 0 claims."


def test_the_headlines_are_claims_of_the_rules():
    claims = [name for names in report.HEADLINES.values() for name in names]
    assert len(report.HEADLINES) == 5
    assert set(claims) <= rules()["claims"].keys()


def test_a_headline_says_every_reading_once():
    found = {h.title: h.findings for h in report.headlines(sections())}
    failures = found["Training failures on subject-verb agreement"]
    assert [(f.verdict, f.reading, f.item) for f in failures] == [
        ("holds", "as published", "table2"),  # figure6 says it too
        ("does not hold", "as defined", "table2"),
    ]
    assert failures[0].said == ", as published, failures: 5/200 against 58/200, p = 3e-14."
    assert report.by_statement(failures) == {
        "Training fails in fewer seeds with the oscillator than with softmax.": failures
    }


def test_a_headline_without_records_says_so_and_one_without_lines_is_left_out():
    found = {h.title: h.findings for h in report.headlines(sections())}
    (trend,) = found["Perplexity against oscillator dimension"]
    assert (trend.verdict, trend.item, trend.said) == ("no records", "table2", ", trend.")
    assert "Couplings off by 50 %" not in found
    assert {title for title, about in found.items() if not about} == set()


@pytest.mark.parametrize(
    ("holds", "verdict"), [(True, "holds"), (False, "does not hold"), (None, "undecided")]
)
def test_a_headline_follows_its_line(holds, verdict):
    item = about(Claim("robust-kws", holds, "-0.1 pp"))
    *_, robust = report.headlines(sections(claim=item))
    found = [(f.verdict, f.numbers) for f in robust.findings]
    assert found == [(verdict, "-0.1 pp")]  # nothing is said about language


def test_at_smoke_scale_nothing_is_judged():
    smoke = Evidence([], Setting("smoke"))
    found = sections(smoke)
    assert {j.value for s in found for j in s.judged} == {"not judged"}
    assert {f.verdict for s in found for f in s.findings} == {"not judged"}
    assert not any(f.numbers for s in found for f in s.findings)
    assert "10 lines not judged." in report.values(found).notes


def timed(setting: Setting) -> Evidence:
    """Six agreement runs of 30 s, four of them recorded, and a measure of 100 s."""
    runs = [fakes.record(run, wall_seconds=30.0) for run in fakes.two_mechanisms(setting)[:4]]
    beyond = replace(setting.agreement(Softmax()), seed=99)  # of the recipe, not of the item
    tossed = fakes.record(beyond, wall_seconds=100.0)
    tossed = replace(tossed, recipe=measure_recipe(fakes.Tosses()), seed=0)
    return Evidence([*runs, tossed, fakes.record(beyond, wall_seconds=1e6)], setting)


def test_device_time_is_that_of_the_items_runs_each_once():
    evidence = timed(Setting())
    table = report.times(sections(evidence), evidence)
    shown = rows(table)
    assert list(shown) == ["table2", "figure6", "all, each once"]
    assert shown["table2"] == {
        "runs": "4",
        "training GPU": "",
        "training CPU": "2 min",
        "measuring GPU": "",
        "measuring CPU": "",
        "authors": "4-8 min",
    }
    assert shown["figure6"] == {**shown["table2"], "measuring CPU": "2 min"}
    assert shown["all, each once"] == shown["figure6"]
    assert "In all 0.0 GPU hours (we had hoped for 2) and 0.1 CPU hours." in table.notes
    assert "Records of further seeds, which tables may use: 1; not in." in table.notes
    assert not any("Keyword" in note for note in table.notes)


def test_hours_of_a_gpu_and_of_a_cpu_are_not_added():
    hours = {"cuda (y)": 2.5, "cpu (x)": 3.0}
    runs = fakes.two_mechanisms(Setting())[:2]
    spent = zip(runs, hours.items(), strict=True)
    records = [fakes.record(run, 3600 * hour, device) for run, (device, hour) in spent]
    evidence = Evidence(records, Setting())
    table = report.times(sections(evidence), evidence)
    row = rows(table)["all, each once"]
    assert (row["training GPU"], row["training CPU"]) == ("2.5 h", "3.0 h")
    assert "In all 2.5 GPU hours (we had hoped for 2) and 3.0 CPU hours." in table.notes


def test_of_keyword_spotting_it_is_said_that_processes_shared_the_device():
    run = Setting().keyword_spotting("ten words", Softmax())
    keywords = Evidence([fakes.record(run)], Setting())
    item = replace(about(), runs=lambda setting: [run])
    table = report.times(sections(keywords, item=item), keywords)
    assert any("several processes at once" in note and "LOG.md" in note for note in table.notes)


@pytest.mark.parametrize(
    ("setting", "said"), [(Setting(), True), (Setting("full", PAPERS), False)], ids=["ours", "all"]
)
def test_a_small_tinystories_is_not_the_same_work(setting, said):
    stories = Evidence([fakes.record(setting.tinystories(Softmax()))], setting)
    item = replace(about(), runs=lambda setting: [setting.tinystories(Softmax())])
    table = report.times(sections(stories, item=item), stories)
    assert rows(table)["item"]["authors"] == "3-3.7 h"
    assert ("Our TinyStories is small" in " ".join(table.notes)) == said
    agreement = timed(setting)
    assert "TinyStories is small" not in " ".join(
        report.times(sections(agreement), agreement).notes
    )


def test_the_authors_time_is_that_of_their_runs():
    """98 runs of 3 to 3.7 h, 70 of 5 to 30 min, 61 of 5 min, 260 of 1 to 2 min."""
    low = 98 * 3 + 70 * 5 / 60 + 61 * 5 / 60 + 260 / 60
    high = 98 * 3.7 + 70 * 30 / 60 + 61 * 5 / 60 + 260 * 2 / 60
    notes = " ".join(report.times([], NOTHING).notes)
    assert f"Their own 489 runs: about {low:.0f}-{high:.0f} h." in notes
    assert "3-3.7 h (TinyStories)" in notes
    assert set(published("authors_time")["minutes"]) == set(report.TASKS.values())


def test_smoke_runs_have_no_counterpart():
    """Generated text, and agreement that is cut short."""
    smoke = timed(Setting("smoke"))
    shown = rows(report.times(sections(smoke), smoke))
    assert (shown["table2"]["runs"], shown["table2"]["authors"]) == ("4", "")
    text = Evidence([fakes.record(smoke.setting.wikitext2(Softmax()))], smoke.setting)
    item = replace(about(), runs=lambda setting: [setting.wikitext2(Softmax())])
    assert rows(report.times(sections(text, item=item), text))["item"]["authors"] == ""


def test_the_records_used_are_named_by_data_device_and_versions():
    evidence = timed(Setting())
    table = report.sources(sections(evidence), evidence)
    assert table.rows == [
        ("mathematics", "1", "cpu (x)", "0.0.1, 2.99, 3.11", "2026-01-02", "abababababab"),
        (
            "subject-verb agreement",
            "5",  # whatever the seed: tables show all of a recipe
            "cpu (x)",
            "0.0.1, 2.99, 3.11",
            "2026-01-02",
            "abababababab",
        ),
    ]


def test_data_of_two_checksums_is_named():
    evidence = timed(Setting())
    assert report.sources(sections(evidence), evidence).notes == []
    first, *others = evidence.all()
    other = Evidence([replace(first, data_checksum="cd" * 32), *others], evidence.setting)
    (note,) = report.sources(sections(other), other).notes
    assert note.startswith("subject-verb agreement has 2 checksums")


def test_another_name_of_the_same_stories_is_no_other_data():
    """The halves of 2026-11-16 and before have the checksum of the whole."""
    ((old, new),) = report.SAME_DATA.items()
    run = Setting().tinystories(Softmax())
    both = [replace(fakes.record(run), data_checksum=c) for c in (old, new)]
    assert report.mixed(both) == []
    assert len(report.mixed([*both, fakes.record(run)])) == 1


def test_data_of_other_tasks_is_not_mixed():
    """Of other lengths, say: they have other recipes."""
    run = Setting().wikitext2(Softmax())
    longer = replace(run, task=replace(run.task, tokens=128))
    assert report.mixed([fakes.record(run), replace(fakes.record(longer), data_checksum="c")]) == []


def test_data_is_described_by_its_choices():
    setting = Setting()
    words = next(iter(setting.corpora.keywords))
    described = {
        report._described(fakes.record(run))
        for run in (setting.wikitext2(Softmax()), setting.keyword_spotting(words, Softmax()))
    }
    assert described == {
        "WikiText-2 (tokens)",
        "keyword spotting (8 words, ln-mel-40x49-hop320-from-20Hz-uint8)",
    }
    measure = fakes.Size(setting.wikitext2(Softmax()))
    record = replace(fakes.record(fakes.run()), recipe=measure_recipe(measure))
    assert report._described(record) == "WikiText-2 (tokens), measured"


def test_margins_are_those_of_the_rules():
    shown = rows(report.margins())
    assert shown["kws_accuracy"]["value"] == "0.7"
    assert len(shown) == len(rules()["margins"])
