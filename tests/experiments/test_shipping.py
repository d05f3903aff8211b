"""The models in the package: whole, small, named by their recipe, usable without a corpus."""

import json

import pytest
import safetensors
import torch

from lohe.experiments import shipping, weights
from lohe.experiments.measures import Bench
from lohe.experiments.setting import Setting
from lohe.experiments.store.records import key
from lohe.experiments.store.store import Store
from lohe.experiments.studies.robust.physics import scores
from lohe.experiments.studies.sva.agreement import AS_DEFINED, AS_PUBLISHED
from lohe.models import Oscillator, Softmax
from lohe.tasks import SVA
from lohe.train import Run

PACKAGED = [run for run in shipping.shipped() if (shipping.FOLDER / weights.name(run)).is_file()]
SENTENCES = SVA().load()


def about(run: Run) -> dict[str, str]:
    with safetensors.safe_open(shipping.FOLDER / weights.name(run), framework="pt") as file:
        return file.metadata()


def test_they_fit_and_no_stranger_is_among_them():
    found = {path.name: path.stat().st_size for path in shipping.FOLDER.glob("*.safetensors")}
    assert found.keys() == {weights.name(run) for run in PACKAGED}
    assert sum(found.values()) <= shipping.LIMIT
    assert (shipping.FOLDER / "NOTICE").is_file()


@pytest.mark.parametrize("run", PACKAGED, ids=weights.describe)
def test_a_file_is_named_by_the_recipe_that_it_holds(run):
    held = json.loads(about(run)["recipe"])
    assert held == json.loads(json.dumps(run.recipe()))
    assert weights.name(run) == f"{key(held)}-{about(run)['seed']}.safetensors"


@pytest.mark.parametrize("mechanism", [Softmax(), AS_PUBLISHED, AS_DEFINED])
@pytest.mark.parametrize("seed", [0, 4])
def test_agreement_models_score_what_they_say(mechanism, seed):
    run = Setting().agreement(mechanism, seed)
    model, names = shipping.model(run)
    assert names == SENTENCES.names
    said = json.loads(about(run)["result"])
    before = json.loads(about(run)["before_rounding"])
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
    written = (tmp_path / "trained" / weights.name(run)).read_bytes()
    assert len(written) == (shipping.FOLDER / weights.name(run)).stat().st_size
