"""The models in the package: whole, small, named by their recipe, usable without a corpus."""

import json

import pytest
import torch

import shared_data
from lohe.experiments import shipping, weights
from lohe.experiments.measures import Bench
from lohe.experiments.setting import Setting
from lohe.experiments.store.records import key
from lohe.experiments.store.store import Store
from lohe.experiments.studies.robust.physics import scores
from lohe.experiments.studies.sva.agreement_cohort import AS_DEFINED, AS_PUBLISHED
from lohe.models import Oscillator, Softmax
from lohe.tasks import SVA

PACKAGED = [run for run in shipping.shipped() if (shipping.FOLDER / weights.name(run)).is_file()]
SENTENCES = SVA().load()


def test_they_fit_and_no_stranger_is_among_them():
    found = {path.name: path.stat().st_size for path in shipping.FOLDER.glob("*.safetensors")}
    assert found.keys() == {weights.name(run) for run in PACKAGED}
    assert sum(found.values()) <= shipping.LIMIT
    assert (shipping.FOLDER / "NOTICE").is_file()


@pytest.mark.parametrize("run", PACKAGED, ids=weights.describe)
def test_a_file_is_named_by_the_recipe_that_it_holds(run):
    held = shipping.about(run)["recipe"]
    assert held == json.loads(json.dumps(run.recipe()))
    assert weights.name(run) == f"{key(held)}-{shipping.about(run)['seed']}.safetensors"


@pytest.mark.parametrize("mechanism", [Softmax(), AS_PUBLISHED, AS_DEFINED])
@pytest.mark.parametrize("seed", [0, 4])
def test_agreement_models_score_what_they_say(mechanism, seed):
    run = Setting().agreement(mechanism, seed)
    model, names = shipping.model(run)
    assert names == SENTENCES.names
    said, before = (shipping.about(run)[name] for name in ("result", "before_rounding"))
    for metric, found in scores(model, run.task, SENTENCES.valid).items():
        # another order of summation may turn one sentence of 4,000
        assert abs(found - said[f"valid.{metric}"]) < 0.1
        assert abs(found - before[f"valid.{metric}"]) < 0.2


def test_the_language_model_reads_words_without_its_corpus():
    model, names = shipping.model(Setting().wikitext2(Oscillator(anchors="free")))
    assert len(names) == 10_000
    prompt = torch.tensor([[1, *(names.index(word) for word in ["in", "the", "united"])]])
    after = model(tokens=prompt)[0, -1].argmax().item()
    assert names[after] == "states"


KEYWORDS = Setting().keyword_spotting("ten words", Oscillator(anchors="free"))


def test_the_keyword_model_listens_without_its_corpus():
    model, names = shipping.model(KEYWORDS)
    assert names == KEYWORDS.task.words
    normalised = {
        name: torch.tensor(x) for name, x in shipping.about(KEYWORDS)["normalised"].items()
    }
    assert {name: tuple(x.shape) for name, x in normalised.items()} == {
        "mean": (40,),
        "deviation": (40,),
    }
    assert (normalised["deviation"] > 0.5).all()  # natural logarithms of mel bands
    silence = (torch.full((1, 49, 40), -14.0) - normalised["mean"]) / normalised["deviation"]
    assert model(features=silence).shape == (1, 10)


@pytest.mark.slow
def test_the_keyword_model_scores_what_it_says(tmp_path):
    try:
        root = shared_data.export_features(tmp_path, KEYWORDS.task.words)
    except FileNotFoundError as error:
        pytest.skip(str(error))
    data = KEYWORDS.task.load(root)
    said = shipping.about(KEYWORDS)
    for name, values in data.facts["normalised"].items():
        assert said["normalised"][name] == pytest.approx(values, rel=1e-5)
    model, _ = shipping.model(KEYWORDS)
    (found,) = scores(model, KEYWORDS.task, data.valid).values()
    one_clip = 100 / len(data.valid)
    assert abs(found - said["result"]["valid.accuracy"]) <= one_clip + 1e-9
    assert abs(found - said["before_rounding"]["valid.accuracy"]) <= 2 * one_clip


def test_a_measurement_finds_them_where_nothing_was_trained(tmp_path):
    bench = Bench(Store(tmp_path))
    run = Setting().agreement(AS_DEFINED, 1)
    assert type(bench.model(run)).__name__ == "AgreementNet"
    with pytest.raises(FileNotFoundError, match="No weights of SVA"):
        bench.model(Setting().agreement(AS_DEFINED, 999))
    with pytest.raises(FileNotFoundError, match="is not part of the package"):
        shipping.model(Setting().agreement(AS_DEFINED, 999))


def test_shipping_rounds_and_says_what_that_changes(tmp_path):
    run = Setting().agreement(Softmax(), 0)
    change = shipping.ship(run, Bench(Store(tmp_path)), tmp_path / "trained")
    assert change == dict.fromkeys(change, 0.0)  # the packaged one is rounded already
    written = tmp_path / "trained" / weights.name(run)
    assert written.stat().st_size == (shipping.FOLDER / weights.name(run)).stat().st_size
    bytes_ = written.read_bytes()
    shipping.ship(run, Bench(Store(tmp_path)), tmp_path / "trained")
    assert written.read_bytes() == bytes_  # said already: not written again
