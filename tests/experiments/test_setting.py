"""Where a study runs: the recipes, on the corpora that there are."""

from dataclasses import replace
from pathlib import Path

import pytest

from lohe.experiments import PAPER, recipes
from lohe.experiments.evidence import Evidence
from lohe.experiments.setting import COMPACT, CORPORA, GENERATED, PAPERS, Setting
from lohe.experiments.store.records import key
from lohe.experiments.store.store import Store
from lohe.models import Oscillator, Softmax

RESULTS = Path(__file__).parents[2] / "results"


def test_on_the_papers_corpora_runs_are_the_recipes_themselves():
    full, softmax = Setting("full", PAPERS), Softmax()
    assert full.agreement(softmax, 3) == recipes.agreement(softmax, 3)
    assert full.wikitext2(softmax, 3) == recipes.wikitext2(softmax, 3)
    assert full.tinystories(softmax, 3) == recipes.tinystories(softmax, 3)
    (words,) = PAPERS.keywords
    spotting = full.keyword_spotting(words, softmax, "learned", 3)
    assert spotting == recipes.keyword_spotting(softmax, "learned", 3)


def test_other_corpora_change_the_data_and_how_long_stories_are_read():
    run, theirs = Setting().tinystories(Softmax()), recipes.tinystories(Softmax())
    assert run == replace(theirs, task=COMPACT.tinystories, epochs=60, patience=4)
    assert Setting().wikitext2(Softmax()) == recipes.wikitext2(Softmax(), release="tokens")
    assert Setting().agreement(Softmax()) == recipes.agreement(Softmax())


def test_a_precision_is_every_runs_and_has_records_of_its_own():
    fast = Setting(precision="tf32")
    for run, usual in (
        (fast.agreement(Softmax()), Setting().agreement(Softmax())),
        (fast.wikitext2(Softmax()), Setting().wikitext2(Softmax())),
        (fast.tinystories(Softmax()), Setting().tinystories(Softmax())),
    ):
        assert run == replace(usual, precision="tf32")
        assert key(run.recipe()) != key(usual.recipe())
    with pytest.raises(ValueError, match=r"precision='half' is not known\. Choose from float32"):
        Setting(precision="half").agreement(Softmax())


def test_a_trend_needs_fewer_seeds():
    """Of a small TinyStories three; of the paper's own as many as the study asks for."""
    assert len(Setting().seeds_of("tinystories", 10)) == 3
    assert len(Setting().seeds_of("wikitext2", 10)) == 10
    assert len(Setting("full", PAPERS).seeds_of("tinystories", 10)) == 10
    assert len(Setting("smoke").seeds_of("tinystories", 10)) == 1


def test_records_of_before_are_found():
    """The recipes' keys are what the records in this repository are named by."""
    if not RESULTS.is_dir():
        pytest.skip("results/ has been deleted")
    free = Oscillator(anchors="free")
    wanted = [
        Setting().agreement(Softmax()),
        Setting().agreement(Oscillator()),
        Setting().agreement(replace(free, pads="as-published")),
        Setting().wikitext2(Softmax()),
        Setting().wikitext2(free),
    ]
    there = {path.stem.rpartition("-")[2] for path in RESULTS.glob("*.json")}
    assert {key(run.recipe()) for run in wanted} <= there


def test_smoke_needs_no_data_and_no_time():
    smoke = Setting("smoke", PAPERS)
    assert smoke.corpora is GENERATED
    (words,) = smoke.corpora.keywords
    assert smoke.agreement(Softmax()).epochs == 2
    runs = [
        smoke.wikitext2(Softmax()),
        smoke.tinystories(Softmax()),
        smoke.keyword_spotting(words, Softmax()),
    ]
    for run in runs:
        assert run.epochs == 2
        data = run.task.load(Path("/nowhere"))
        assert run.limit == 4 * run.batch
        assert run.examples(data) <= 4 * run.batch


def test_a_scale_decides_the_number_of_seeds():
    assert [len(Setting(s).seeds(50)) for s in ("full", "quick", "smoke")] == [50, 2, 1]
    assert len(Setting("quick").seeds(5, quick=9)) == 5
    assert len(Setting("smoke").seeds(50, smoke=2)) == 2
    with pytest.raises(ValueError, match="scale='big' is not known"):
        Setting("big")


def test_what_is_not_the_papers_is_said():
    assert list(CORPORA) == ["paper", "compact"]
    assert [corpora.published for corpora in (PAPERS, COMPACT, GENERATED)] == [True, False, False]
    assert all(corpora.differs for corpora in (PAPERS, COMPACT, GENERATED))


COUNTED = ("table7", "table10", "table11")  # operations of a mechanism, not of a trained model


def test_a_trend_is_called_so_and_carries_no_verdict():
    if not RESULTS.is_dir():
        pytest.skip("results/ has been deleted")
    evidence = Evidence(list(Store(RESULTS).all()), Setting())
    items = [one for name, one in PAPER.items() if name not in COUNTED]
    lines = [line for one in items for line in one.lines(evidence)]
    stories = [line for line in lines if line.what.startswith("TinyStories")]
    assert len(stories) > 100
    for line in stories:
        assert line.what.startswith("TinyStories (trend)"), line.what
        assert isinstance(line.value, str), line.what  # not compared
