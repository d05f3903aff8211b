"""Trained models as physics: what is replaced, for how long, and in which unit."""

import math

import pytest
import torch

from lohe.experiments import robustness
from lohe.experiments.robustness import Physics
from lohe.models import Agreement, Oscillator, Softmax, attention_layers
from lohe.substrates import FiniteHorizon, FrequencyDisorder, Mismatch, StateNoise
from lohe.tasks import SVA


@pytest.fixture(scope="module")
def data():
    return SVA().load()


@pytest.fixture
def model(data, rng):
    return Agreement(attention=Oscillator(), layers=2).build(data, rng).eval()


@pytest.mark.parametrize(
    ("physics", "attribute", "kind"),
    [
        (robustness.settling(2.0), "settle", FiniteHorizon),
        (robustness.coupling(0.1), "drive", Mismatch),
        (robustness.state(0.1), "settle", StateNoise),
        (robustness.frequency(0.1), "settle", FrequencyDisorder),
    ],
)
def test_every_layer_is_replaced_and_put_back(model, rng, physics, attribute, kind):
    layers = attention_layers(model)
    before = [(layer.drive, layer.settle) for layer in layers]
    with robustness.on(model, physics, rng):
        assert all(isinstance(getattr(layer, attribute), kind) for layer in layers)
    assert [(layer.drive, layer.settle) for layer in layers] == before


def test_layers_are_put_back_after_an_error(model, rng):
    before = attention_layers(model)[0].settle
    with pytest.raises(KeyError), robustness.on(model, robustness.settling(1.0), rng):
        raise KeyError
    assert attention_layers(model)[0].settle is before


def test_softmax_has_no_physics(data, rng):
    model = Agreement(attention=Softmax()).build(data, rng)
    with (
        pytest.raises(ValueError, match="no oscillator layer"),
        robustness.on(model, robustness.state(0.1), rng),
    ):
        pass


def test_frequency_is_in_the_published_unit(model, rng):
    with robustness.on(model, robustness.frequency(0.5), rng):
        settle = attention_layers(model)[0].settle
        assert settle.scale == pytest.approx(0.5 / math.sqrt(2))
        assert settle.horizon == 30


def test_no_imperfection_is_no_change(model, data):
    # Theorem 3: settled for long enough, the flow is the closed form
    ideal = (robustness.coupling(0.0), robustness.state(0.0), robustness.frequency(0.0))
    found = robustness.measure(
        {3: model}, SVA(), data.valid.take(slice(200)), (robustness.settling(1e4), *ideal), draws=2
    )
    assert [m.seed for m in found] == [3] * 8
    assert all(abs(x) < 1 for m in found for x in m.change.values())


def test_draws_differ_and_repeat(model, data):
    grid = (robustness.settling(0.01),)
    split = data.valid.take(slice(1000))
    once, again = (robustness.measure({0: model}, SVA(), split, grid, draws=2) for _ in range(2))
    assert once == again
    assert once[0].change != once[1].change


def test_scores_are_those_of_any_batch(model, data):
    split = data.valid.take(slice(300))
    assert robustness.scores(model, SVA(), split, 300) == robustness.scores(model, SVA(), split, 70)


def test_draws_are_averaged_within_a_seed():
    def measured(seed: int, draw: int, change: float) -> robustness.Measured:
        return robustness.Measured("state", 0.1, seed, draw, {"hard": change})

    rows = [measured(1, 0, 5.0), measured(0, 0, 1.0), measured(0, 1, 2.0)]
    assert robustness.by_seed(rows, "state", 0.1, "hard") == [1.5, 5.0]
    assert robustness.by_seed(rows, "state", 0.2, "hard") == []


def test_the_grid_is_the_papers():
    names = [physics.name for physics in robustness.GRID]
    assert {name: names.count(name) for name in set(names)} == {
        "settling": 6,
        "coupling": 5,
        "state": 5,
        "frequency": 5,
    }
    assert all(isinstance(physics, Physics) for physics in robustness.GRID)
    assert torch.tensor(robustness.HORIZONS).tolist() == [0.5, 1, 2, 5, 10, 30]
