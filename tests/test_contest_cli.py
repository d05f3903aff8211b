"""lohe contest: what it trains, in which order, and that choosing runs know nothing of test."""

import shutil
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest

import short_contest
from commands import lohe
from lohe import contest_cli
from lohe.experiments import weights
from lohe.experiments.contest import choose, measured
from lohe.experiments.contest.readouts import LearnedReadout
from lohe.experiments.contest.stages import LATER_RUNS
from lohe.experiments.contest.trials import STAGES
from lohe.experiments.deadline import Deadline
from lohe.experiments.estimates import Estimates
from lohe.experiments.evidence import Evidence
from lohe.experiments.measures import measure_recipe
from lohe.experiments.runner import missing
from lohe.experiments.setting import Setting
from lohe.experiments.store.records import key
from lohe.experiments.store.store import Store


def contest(stage: str, store, *options):
    return lohe("contest", stage, "--store", store, "--device", "cpu", *options)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return short_contest.write_corpus(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def short():
    with short_contest.shortened():
        yield


@pytest.fixture(scope="module")
def chosen(short, root, tmp_path_factory):
    """A store after `lohe contest choose`, and what that printed."""
    store = tmp_path_factory.mktemp("store")
    return store, contest("choose", store, "--data", root)


def test_choosing_trains_trials_and_rates_and_never_sees_test(chosen, root):
    store, result = chosen
    assert result.exit_code == 0, result.output
    assert "choose: 10 models, 10 recorded, 0 to train" in result.stdout
    records = list(Store(store).all())
    assert len(records) == 10
    for record in records:
        assert {name.split(".")[0] for name in record.result} == {"valid", "later"}
        assert record.recipe["task"]["test"] is False
        assert "parts" not in record.notes
    again = contest("choose", store, "--data", root)
    assert again.stdout == result.stdout
    assert "training" not in again.stderr


def test_nothing_is_confirmed_before_it_is_chosen(short, root, tmp_path):
    for stage in (
        "confirm",
        "controls",
        "law",
        "published",
        "length",
        "scale",
        "epochs",
        "rotary",
        "measure",
    ):
        result = contest(stage, tmp_path, "--data", root)
        assert result.exit_code == 2
        assert "choosing is not complete. Of the trials 0 of 4" in " ".join(result.stderr.split())
    assert list(tmp_path.glob("*.json")) == []


def test_when_the_minutes_are_up_nothing_is_started(short, root, tmp_path):
    result = contest("choose", tmp_path / "new", "--data", root, "--minutes", 0.01)
    assert result.exit_code == 0
    assert result.stdout.startswith("choose: 4 models, 0 recorded, 4 to train\n")
    assert contest_cli.FOLLOWING in result.stdout
    assert not list((tmp_path / "new").glob("*.json"))


def test_on_a_cpu_minutes_go_by_what_cpus_took(chosen):
    """And by the protocol's speed on a GPU, or where no CPU has trained anything."""
    store = Store(chosen[0])
    evidence = Evidence(store.all(), Setting())
    won = choose.chosen(evidence)
    assert won is not None
    (pack, *_) = missing(LATER_RUNS["confirm"](won), store, 2, [])
    taken, stated = Estimates(store.all(), "cpu").pack(pack), contest_cli._guess(pack)
    assert taken is not None
    assert contest_cli._guesses(store, "cpu")(pack) == taken[0] != stated
    assert contest_cli._guesses(store, "cuda")(pack) == stated
    new = Store(chosen[0] / "nothing")
    assert contest_cli._guesses(new, "cpu")(pack) == stated


def test_what_is_confirmed_is_scored_on_test_article_by_article(chosen, root):
    store, _ = chosen
    early = contest("controls", store, "--data", root)
    assert early.exit_code == 2
    assert "controls is scored on test after confirm, which lacks" in said(early.stderr)
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


@pytest.fixture(scope="module")
def looked_at(chosen, root):
    """The store after confirmation, controls and measurements."""
    store, _ = chosen
    assert contest("confirm", store, "--data", root).exit_code == 0
    early = contest("measure", store, "--data", root)  # of ours and of the softmax
    assert early.exit_code == 0, early.output
    assert "measure: 4 models, 4 recorded, 0 to train" in early.stdout
    assert "78 measurements, 22 taken, 56 to take" in early.stdout
    assert contest("controls", store, "--data", root).exit_code == 0
    return store, contest("measure", store, "--data", root)


def test_measuring_trains_nothing_where_the_weights_were_kept(looked_at, root):
    store, result = looked_at
    assert result.exit_code == 0, result.output
    assert "training" not in result.stderr
    assert "78 measurements, 78 taken, 0 to take" in result.stdout
    again = contest("measure", store, "--data", root)
    assert "measuring" not in again.stderr
    assert again.stdout == result.stdout


def test_lost_weights_are_trained_again_only_where_something_is_not_taken(looked_at, root):
    store, _ = looked_at
    won = choose.chosen(Evidence(Store(store).all(), Setting()))
    assert won is not None
    devices = [measured.Devices(run) for run in measured.models(won)["ours"]]
    before = Store(store).load(devices[0].run.recipe())
    for one in devices:
        weights.path(Store(store), one.run, one.run.seed).unlink()
    assert "78 taken" in contest("measure", store, "--data", root).stdout  # nobody needs them
    (file,) = store.glob(f"measure-*-{key(measure_recipe(devices[0]))}.json")
    file.unlink()
    plan = contest("measure", store, "--data", root, "--dry-run").stdout
    assert "14 recorded, 2 to train" in plan
    assert "76 taken, 2 to take" in plan
    result = contest("measure", store, "--data", root)
    assert result.exit_code == 0, result.output
    assert "78 taken, 0 to take" in result.stdout
    assert Store(store).load(devices[0].run.recipe()) == before  # a record stays what it was


def test_a_measurement_that_fails_costs_the_others_nothing(looked_at, root, tmp_path, monkeypatch):
    """It is said why, and the command does not pretend that all is well."""
    store = shutil.copytree(looked_at[0], tmp_path / "store")
    for kind in ("learnedreadout", "beyondlength"):
        for file in store.glob(f"measure-*-{kind}-*.json"):
            file.unlink()

    def broken(self, bench):
        raise ValueError("no kernel image")

    monkeypatch.setattr(LearnedReadout, "take", broken)
    result = contest("measure", store, "--data", root)
    assert result.exit_code == 1
    assert "ValueError: no kernel image" in result.stderr
    left = result.stderr.count("Not measured, it failed as said above: LearnedReadout")
    assert left > 1
    assert f"{78 - left} taken, {left} to take" in result.stdout
    monkeypatch.undo()
    again = contest("measure", store, "--data", root)
    assert again.exit_code == 0, again.output
    assert "78 taken, 0 to take" in again.stdout


def test_what_is_as_published_is_scored_on_test_after_the_confirmation(looked_at, root, tmp_path):
    early = only_chosen(looked_at[0], tmp_path / "early")
    refused = contest("published", early, "--data", root)
    assert refused.exit_code == 2
    assert "published is scored on test after confirm, which lacks" in said(refused.stderr)
    store = shutil.copytree(looked_at[0], tmp_path / "store")
    before = {(key(r.recipe), r.seed) for r in Store(store).all()}
    result = contest("published", store, "--data", root)
    assert result.exit_code == 0, result.output
    trained = [r for r in Store(store).all() if (key(r.recipe), r.seed) not in before]
    assert len(trained) == 8  # of two, by two protocols, two seeds
    assert all("article_nll" in r.notes["parts"]["test"] for r in trained)
    assert {r.recipe["task"]["protocol"] for r in trained} == {"strict", "published"}


def test_the_second_question_follows_the_controls(looked_at, root, tmp_path):
    store = shutil.copytree(looked_at[0], tmp_path / "store")
    (control,) = list(store.glob("*frozenanchors*.json"))[:1]
    kept = control.read_bytes()
    control.unlink()
    early = contest("rotary", store, "--data", root)
    assert early.exit_code == 2
    assert "rotary is scored on test after controls, which lacks" in said(early.stderr)
    control.write_bytes(kept)
    result = contest("rotary", store, "--data", root)
    assert result.exit_code == 0, result.output
    assert "0 to train" in result.stdout
    turned = [r for r in Store(store).all() if "rope" in str(r.recipe.get("model")).lower()]
    assert {"ExponentialRope"} <= {r.recipe["model"]["attention"]["type"] for r in turned}
    assert contest("page", store, "--out", tmp_path / "page.md").exit_code == 0
    assert "| ours, rotary | 4 |" in (tmp_path / "page.md").read_text(encoding="utf-8")


def test_no_page_is_made_of_a_part_of_the_records(tmp_path):
    (tmp_path / "wikitext2articles-softmax-0123456789abcdef.json").write_text('{"lohe"')
    result = contest("page", tmp_path, "--out", tmp_path / "page.md")
    assert result.exit_code == 2
    assert "without 1 of the files" in " ".join(result.stderr.split())
    assert not (tmp_path / "page.md").exists()


def test_the_page_is_written_from_the_records(looked_at, tmp_path):
    result = contest("page", looked_at[0], "--out", tmp_path / "page.md")
    assert result.exit_code == 0, result.output
    # there is no law to draw
    assert {path.name for path in tmp_path.iterdir()} == {
        "page.md",
        "page_protocol.md",
        "page_rates.png",
        "page_test.png",
        "page_trials.png",
    }
    text = (tmp_path / "page.md").read_text(encoding="utf-8")
    for title in ("Longer than trained", "Gain, entropy and rank", "On imperfect devices"):
        section = text[text.index(f"## {title}") :].partition("\n## ")[0]
        assert "| ours" in section
        assert "no records" not in section
    assert "- law: " in text.partition("## Without a record yet")[2]


@pytest.fixture(scope="module")
def chosen_on_more(short, tmp_path_factory):
    """A store after choosing, and its data: windows of 257 words need more than the others do."""
    root = short_contest.write_corpus(tmp_path_factory.mktemp("more"), words=140)
    store = tmp_path_factory.mktemp("store")
    assert contest("choose", store, "--data", root).exit_code == 0
    return store, root


@pytest.mark.parametrize(
    ("stage", "sizes"),
    [
        ("law", {(2, 128, 48)}),
        ("length", {(2, 128, 48), (2, 128, 128), (2, 128, 256)}),
        ("epochs", {(2, 128, 48)}),
    ],
)
def test_later_stages_train_what_they_say(chosen_on_more, stage, sizes, tmp_path):
    """Layers, width and inputs; the test articles stay closed, and the page has the numbers."""
    store, root = chosen_on_more
    result = contest(stage, store, "--data", root)
    assert result.exit_code == 0, result.output
    assert "0 to train" in result.stdout.splitlines()[0]
    trained = [r for r in Store(store).all() if r.seed in STAGES[stage].seeds]
    if stage in ("length", "epochs"):  # which have the same seeds
        runs = {key(run.recipe()) for run in LATER_RUNS[stage](_chosen(store))}
        trained = [r for r in trained if key(r.recipe) in runs]
    assert not any(name.startswith("test") for r in trained for name in r.result)
    recipes = [(r.recipe["model"], r.recipe["task"]) for r in trained]
    assert {(m["layers"], m["d_model"], t["tokens"]) for m, t in recipes} == sizes
    assert contest("page", store, "--out", tmp_path / "page.md").exit_code == 0
    assert (tmp_path / "page.png").exists() or stage != "law"
    text = (tmp_path / "page.md").read_text(encoding="utf-8")
    lacks = text.partition("## Without a record yet")[2].partition("\n## ")[0]
    assert f"- {stage}: " not in lacks


def test_the_larger_models_are_searched_then_scored_on_test(chosen_on_more, tmp_path, monkeypatch):
    """One call does both; the test articles are scored of fresh seeds alone."""
    store, root = only_chosen(chosen_on_more[0], tmp_path / "store"), chosen_on_more[1]
    early = contest("scale", store, "--data", root)
    assert early.exit_code == 2
    assert "scale is scored on test after confirm, which lacks" in said(early.stderr)
    monkeypatch.delitem(contest_cli.AFTER, "scale")
    assert contest_cli.FOLLOWING in contest("scale", store, "--dry-run").stdout
    result = contest("scale", store, "--data", root)
    assert result.exit_code == 0, result.output
    assert "0 to train" in result.stdout.splitlines()[0]
    assert contest_cli.FOLLOWING not in result.stdout
    large = [r for r in Store(store).all() if r.recipe["model"]["layers"] == 3]
    assert {(r.recipe["model"]["d_model"], r.recipe["task"]["tokens"]) for r in large} == {
        (32, 256)
    }
    scored = {name: [r for r in large if r.seed in STAGES[name].seeds] for name in SCALE}
    assert all("test.nats" not in r.result for r in scored["scale rates"])
    assert all("test.nats" in r.result for r in scored["scale"])
    assert len(scored["scale rates"]) >= 2 * 3  # two rates, and dropout
    assert len(scored["scale"]) == 2 * len(STAGES["scale"].seeds)
    assert len(large) == sum(map(len, scored.values()))
    assert contest("page", store, "--out", tmp_path / "page.md").exit_code == 0
    text = (tmp_path / "page.md").read_text(encoding="utf-8")
    assert "## A larger model: " in text
    assert "searched anew for each, the oscillator on the sphere is" in text
    lacks = text.partition("## Without a record yet")[2].partition("\n## ")[0]
    assert "- scale: " not in lacks


SCALE = ("scale rates", "scale")


def _chosen(store):
    return choose.chosen(Evidence(Store(store).all(), Setting()))


def only_chosen(store, copy):
    """A copy of the store without what other tests have confirmed and measured in it."""
    runs = [r for r in Store(store).all() if "task" in r.recipe]
    Store(copy).add(r for r in runs if not r.recipe["task"]["test"])
    return copy


def said(text: str) -> str:
    """Without the breaks of lines."""
    return " ".join(text.split())


def test_all_is_every_stage_in_order(chosen, root, tmp_path, monkeypatch):
    """Three of the stages, of a few models each: controls open once the confirmation is there."""
    few = {
        "confirm": lambda won: LATER_RUNS["confirm"](won)[:2],
        "controls": lambda won: LATER_RUNS["controls"](won)[:1],
    }
    monkeypatch.setattr(contest_cli, "later_runs", lambda stage, evidence, won: few[stage](won))
    monkeypatch.setattr(contest_cli, "WORK", ("choose", *few))
    store = only_chosen(chosen[0], tmp_path / "store")
    plan = contest("all", store, "--dry-run").stdout.splitlines()
    assert plan[:2] == [
        "choose: 10 models, 10 recorded, 0 to train",
        "confirm: 2 models, 0 recorded, 2 to train",
    ]
    assert "controls: not open yet" in plan
    result = contest("all", store, "--data", root)
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[:3] == [
        "choose: 10 models, 10 recorded, 0 to train",
        "confirm: 2 models, 2 recorded, 0 to train",
        "controls: 1 models, 1 recorded, 0 to train",
    ]
    again = contest("all", store, "--data", root)
    assert again.stdout == result.stdout
    assert "training" not in again.stderr


def test_all_ends_when_the_minutes_are_up(short, root, tmp_path):
    """It does not wait for what it has no time for itself."""
    result = contest("all", tmp_path / "store", "--data", root, "--minutes", "0")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("choose: 4 models, 0 recorded, 4 to train")
    assert "confirm: not open yet" in result.stdout


@pytest.mark.parametrize(("late", "held", "rounds"), [(1, 0, 1), (0, 2, 3), (1, 2, 3), (0, 0, 1)])
def test_all_waits_for_what_others_hold_and_not_for_what_is_too_late(
    late, held, rounds, tmp_path, monkeypatch
):
    """Of two stages one has packs that this process has no time for, one packs of another's, which
    are done after so many looks."""
    looks = []

    def missing(stage, store, evidence):
        if stage == "long":
            return [SimpleNamespace(runs=["long"])] * late
        looks.append(stage)
        return [SimpleNamespace(runs=["shared"])] if len(looks) <= held else []

    monkeypatch.setattr(contest_cli, "WORK", ("long", "shared"))
    monkeypatch.setattr(contest_cli, "POLL_S", 0.0)
    monkeypatch.setattr(contest_cli, "_runs", lambda stage, evidence: [])
    monkeypatch.setattr(contest_cli, "_missing", missing)
    monkeypatch.setattr(contest_cli, "_work", lambda stage, worker: {"long"})
    deadline = Deadline(10.0, lambda pack: None)
    contest_cli._work_all(contest_cli.Worker(Store(tmp_path), "cpu", None, deadline))
    assert len(looks) == rounds


def test_it_looks_again_before_it_leaves(tmp_path, monkeypatch):
    """What another process finishes between the two reads of a look may have opened more."""
    looks, trained = [[], [SimpleNamespace(runs=["opened"])], [], []], []

    def complete(runs, store, **how):
        trained.extend(runs)
        return iter(())  # another has taken it meanwhile

    monkeypatch.setattr(contest_cli, "POLL_S", 0.0)
    monkeypatch.setattr(contest_cli, "_missing", lambda *args: looks.pop(0))
    monkeypatch.setattr(contest_cli, "complete", complete)
    monkeypatch.setattr(contest_cli.terminal, "bars", lambda told: nullcontext(MagicMock()))
    deadline = Deadline(10.0, lambda pack: None)
    contest_cli._train("choose", contest_cli.Worker(Store(tmp_path), "cpu", None, deadline))
    assert trained == ["opened"]
    assert not looks


def test_what_is_confirmed_is_measured_before_there_are_controls(chosen, root, tmp_path):
    """Of the models that have a record; no control is trained for it."""
    store = only_chosen(chosen[0], tmp_path / "store")
    result = contest("measure", store, "--data", root)
    assert result.exit_code == 2
    assert "none is recorded. Continue with `lohe contest confirm`" in said(result.stderr)
    won = choose.chosen(Evidence(Store(store).all(), Setting()))
    assert won is not None
    ours = measured.models(won)["ours"][0]
    any_record = next(iter(Store(store).all()))
    confirmed = replace(any_record, recipe=ours.recipe(), seed=ours.seed)  # its weights are lost
    Store(store).add([confirmed])
    plan = contest("measure", store, "--dry-run").stdout
    assert plan.startswith("measure: 1 models, 0 recorded, 1 to train")


def test_an_unknown_stage_is_refused(tmp_path):
    result = contest("win", tmp_path)
    assert result.exit_code == 2
    assert "'win' is no stage. Choose from choose, confirm" in result.stderr
