"""A run is a value, and its recipe names it."""

import json
from dataclasses import dataclass, replace

import pytest

import short_sva
from lohe.experiments.recipes import agreement, wikitext2
from lohe.experiments.store.records import key
from lohe.models import Oscillator, Softmax
from lohe.tasks import TinyStories
from lohe.train import Adam, AdamW
from lohe.train.run import described

OSCILLATOR = Oscillator()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"batch": 0}, r"batch >= 1 and epochs >= 1, got 0, 20"),
        ({"epochs": 0}, r"batch >= 1 and epochs >= 1, got 64, 0"),
        ({"schedule": "linear"}, r"schedule='linear' is not known. Choose from step, epoch"),
        ({"precision": "fp16"}, r"precision='fp16' is not known. Choose from float32, tf32, bf16"),
        ({"select": "best"}, r"select='best' is not known. Write \"last\", \"lowest METRIC\""),
        ({"select": "lowest"}, r"select='lowest' is not known"),
        ({"select": "lastly"}, r"select='lastly' is not known"),
        ({"clip": 0.0}, r"clip > 0 and limit >= 1 or None, got 0.0, None"),
        ({"limit": 0}, r"clip > 0 and limit >= 1 or None, got 1.0, 0"),
    ],
    ids=str,
)
def test_a_run_that_cannot_be_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        replace(agreement(Softmax()), **change)


@pytest.mark.parametrize("kind", [AdamW, Adam])
@pytest.mark.parametrize(
    "rates", [{"lr": -1.0}, {"lr": float("nan")}, {"lr": 1.0, "weight_decay": -1.0}]
)
def test_an_optimiser_that_cannot_be_is_refused(kind, rates):
    with pytest.raises(ValueError, match=r"Rates are numbers >= 0, got Adam"):
        kind(**rates)


def test_a_clip_that_is_no_number_is_refused():
    """Nothing is larger than NaN: no gradient would have been clipped, and all be NaN."""
    with pytest.raises(ValueError, match=r"clip > 0 .*, got nan"):
        short_sva.run(clip=float("nan"))


def test_steps_of_an_epoch_count_the_smaller_last_batch(data):
    assert short_sva.run().steps(data) == 3  # 64 + 64 + 22
    assert short_sva.run(limit=128).steps(data) == 2
    assert short_sva.run(limit=10**6).steps(data) == 3
    assert (short_sva.run(limit=10).examples(data), short_sva.run().examples(data)) == (10, 150)


def test_a_recipe_is_json_and_ignores_the_seed():
    for run in (agreement(OSCILLATOR, seed=3), wikitext2(Softmax(), seed=3)):
        recipe = run.recipe()
        assert json.loads(json.dumps(recipe)) == recipe
        assert "seed" not in recipe
        assert replace(run, seed=4).recipe() == recipe


def test_everything_that_decides_the_numbers_is_in_the_recipe():
    run = agreement(OSCILLATOR)
    model = run.model
    others = {"coupling": "relu", "sharpness": 2, "gain": "learned", "anchors": "free"}
    others |= {"d_osc": 3, "pads": "as-published", "freeze_values": True}
    shapes = {"d_model": 64, "heads": 2, "layers": 2, "d_ff": 32, "max_tokens": 9}
    shapes |= {"positions": "none", "dropout": 0.2, "attention": Softmax()}
    variants = [
        run,
        *(replace(run, model=replace(model, attention=replace(OSCILLATOR, **{k: v})))
          for k, v in others.items()),
        *(replace(run, model=replace(model, **{k: v})) for k, v in shapes.items()),
        replace(run, optimizer=Adam(lr=5e-4)),  # the same numbers under another name
        replace(run, optimizer=AdamW(lr=5e-3)),
        replace(run, optimizer=AdamW(lr=5e-4, weight_decay=0.0)),
        replace(run, task=TinyStories()),
        replace(run, batch=32),
        replace(run, epochs=21),
        replace(run, schedule="epoch"),
        replace(run, clip=2.0),
        replace(run, select="highest overall"),
        replace(run, precision="tf32"),
        replace(run, precision="bf16"),
        replace(run, limit=1000),
        replace(run, paired=True),
    ]  # fmt: skip
    assert len({key(variant.recipe()) for variant in variants}) == len(variants)
    assert variants[-3].recipe()["precision"] == "bf16"


def test_the_key_of_a_recipe_stays():
    """Records are found by it: a change here orphans every record of Tables 2 and 4."""
    assert key(agreement(Softmax()).recipe()) == "dba061da1355358d"
    assert key(wikitext2(Softmax(), release="tokens").recipe()) == "a5c2970291bbf25c"


def test_what_has_no_name_of_its_own_is_refused():
    @dataclass(frozen=True)
    class Part:
        function: object

    assert described((1, 2.5, None, [True, "a"])) == [1, 2.5, None, [True, "a"]]
    for part in (Part(abs), lambda x: x, {1, 2}, Part):
        with pytest.raises(TypeError, match="made of dataclasses, numbers and strings"):
            described(part)
