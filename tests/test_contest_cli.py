"""lohe contest: what it trains, in which order, and that choosing runs know nothing of test."""

import pytest
from typer.testing import CliRunner

from lohe import cli
from lohe.experiments.contest import choose, trials
from lohe.experiments.contest.trials import FAMILIES, OURS, STAGES, protocol
from lohe.experiments.store.store import Store
from lohe.tasks import wikitext2

TWO = (OURS, "softmax")
SHORT = {"trials": 1, "finals": 1, "confirm": 2, "controls": 2}  # seeds; an epoch each


def contest(stage: str, store, *options):
    asked = ["contest", stage, "--store", store, "--device", "cpu", *options]
    return CliRunner().invoke(cli.app, [str(a) for a in asked], prog_name="lohe")


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A data root with four articles of sixty words a split."""
    folder = tmp_path_factory.mktemp("data") / wikitext2.FOLDERS["tokens"]
    folder.mkdir()
    for split in ("train", "valid", "test"):
        articles = [
            f" = {a} = \n \n {' '.join(f'{a}x{n}' for n in range(60))} \n \n" for a in "abcd"
        ]
        (folder / f"wiki.{split}.tokens").write_text(" \n" + "".join(articles), encoding="utf-8")
    return folder.parent


@pytest.fixture(scope="module")
def short():
    """Two families of two trials, one epoch each: the same contest in seconds."""
    with pytest.MonkeyPatch.context() as patch:
        for family in list(FAMILIES):
            if family not in TWO:
                patch.delitem(FAMILIES, family)
        patch.setattr(choose, "RIVALS", TWO[1:])
        for family in TWO:
            given = protocol()["families"][family]
            first = [trial | {"seeds": [0]} for trial in given["trials"][:2]]
            patch.setitem(given, "trials", first)
        for name, seeds in SHORT.items():
            stage = STAGES[name]
            cut = trials.Stage(1, stage.seeds[:seeds], stage.precision, stage.test)
            patch.setitem(STAGES, name, cut)
        patch.setattr(trials, "ASKED", ())
        _forget()
        yield
    _forget()


def _forget() -> None:
    for remembered in (trials.trials, trials.trial_runs):
        remembered.cache_clear()


@pytest.fixture(scope="module")
def chosen(short, root, tmp_path_factory):
    """A store after `lohe contest choose`, and what that printed."""
    store = tmp_path_factory.mktemp("store")
    return store, contest("choose", store, "--data", root)


def test_it_has_help_with_examples():
    result = CliRunner().invoke(cli.app, ["contest", "--help"], prog_name="lohe")
    assert result.exit_code == 0
    assert "Examples:\n    lohe contest choose" in result.output
    assert max(len(line) for line in result.output.splitlines()) <= 80


def test_choosing_trains_trials_and_finals_and_never_sees_test(chosen, root):
    store, result = chosen
    assert result.exit_code == 0, result.output
    assert "choose: 8 models, 8 recorded, 0 to train" in result.stdout
    records = list(Store(store).all())
    assert len(records) == 8
    for record in records:
        assert {name.split(".")[0] for name in record.result} == {"valid", "later"}
        assert record.recipe["task"]["test"] is False
        assert "parts" not in record.notes
    again = contest("choose", store, "--data", root)
    assert again.stdout == result.stdout
    assert "training" not in again.stderr


def test_nothing_is_confirmed_before_it_is_chosen(short, root, tmp_path):
    for stage in ("confirm", "controls", "law", "length", "scale"):
        result = contest(stage, tmp_path, "--data", root)
        assert result.exit_code == 2
        assert "choosing is not complete. Of the trials 0 of 4" in " ".join(result.stderr.split())
    assert list(tmp_path.glob("*.json")) == []


def test_when_the_minutes_are_up_nothing_is_started(short, root, tmp_path):
    result = contest("choose", tmp_path / "new", "--data", root, "--minutes", 0.01)
    assert result.exit_code == 0
    assert result.stdout.startswith("choose: 4 models, 0 recorded, 4 to train\n")
    assert "The finals follow when the trials are complete." in result.stdout
    assert not list((tmp_path / "new").glob("*.json"))


def test_what_is_confirmed_is_scored_on_test_article_by_article(chosen, root):
    store, _ = chosen
    early = contest("controls", store, "--data", root)
    assert early.exit_code == 2
    assert "controls are scored on test after the confirmation" in " ".join(early.stderr.split())
    before = len(list(Store(store).all()))
    dry = contest("confirm", store, "--data", root, "--dry-run")
    assert "0 recorded" in dry.stdout
    assert len(list(Store(store).all())) == before
    result = contest("confirm", store, "--data", root)
    assert result.exit_code == 0, result.output
    confirmed = [r for r in Store(store).all() if r.recipe["task"]["test"]]
    assert len(confirmed) == len(list(Store(store).all())) - before > 0
    for record in confirmed:
        parts = record.notes["parts"]["test"]
        assert len(parts["article_nll"]) == len(parts["article_targets"]) == 4
        nats = sum(parts["article_nll"]) / sum(parts["article_targets"])
        assert record.result["test.nats"] == pytest.approx(nats, rel=1e-5)


def test_the_page_is_written_from_the_records(chosen, tmp_path):
    result = contest("page", chosen[0], "--out", tmp_path / "page.md")
    assert result.exit_code == 0, result.output
    assert {path.name for path in tmp_path.iterdir()} == {"page.md", "page.png"}


def test_an_unknown_stage_is_refused(tmp_path):
    result = contest("win", tmp_path)
    assert result.exit_code == 2
    assert "'win' is no stage. Choose from choose, confirm" in result.stderr
