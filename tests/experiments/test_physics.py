"""Trained models as physics: what is replaced, for how long, and in which unit."""

import math

import pytest
import torch
from invented import loaded

from lohe.experiments.studies.robust import physics
from lohe.experiments.studies.robust.physics import Physics
from lohe.models import Agreement, Oscillator, Softmax, attention_layers
from lohe.substrates import (
    DeviceMismatch,
    FiniteHorizon,
    FrequencyDisorder,
    Mismatch,
    StateNoise,
)
from lohe.tasks import SVA


@pytest.fixture(scope="module")
def data():
    return loaded(SVA())


@pytest.fixture
def model(data, rng):
    return Agreement(attention=Oscillator(), layers=2).build(data, rng).eval()


@pytest.mark.parametrize(
    ("change", "attribute", "kind"),
    [
        (physics.settling(2.0), "settle", FiniteHorizon),
        (physics.coupling(0.1), "drive", Mismatch),
        (physics.device(0.1), "drive", DeviceMismatch),
        (physics.state(0.1), "settle", StateNoise),
        (physics.frequency(0.1), "settle", FrequencyDisorder),
    ],
)
def test_every_layer_is_replaced_and_put_back(model, rng, change, attribute, kind):
    layers = attention_layers(model)
    before = [(layer.drive, layer.settle) for layer in layers]
    with physics.on(model, change, rng):
        assert all(isinstance(getattr(layer, attribute), kind) for layer in layers)
    assert [(layer.drive, layer.settle) for layer in layers] == before


def test_layers_are_put_back_after_an_error(model, rng):
    before = attention_layers(model)[0].settle
    with pytest.raises(KeyError), physics.on(model, physics.settling(1.0), rng):
        raise KeyError
    assert attention_layers(model)[0].settle is before


def test_at_stake_is_all_that_couplings_tell(model, rng):
    layer = attention_layers(model)[0]
    one, other = torch.randn(2, 3, 7, layer.d_model, generator=rng)

    def weights(change, x):
        with physics.on(model, change, torch.Generator().manual_seed(0)):
            return layer(x, need_weights=True)[1]

    anywhere, nowhere = physics.AT_STAKE
    assert not torch.allclose(layer(one, need_weights=True)[1], layer(other, need_weights=True)[1])
    torch.testing.assert_close(weights(anywhere, one), weights(anywhere, other))
    assert weights(anywhere, one).std() > 0.01
    torch.testing.assert_close(weights(nowhere, one), torch.full((3, layer.heads, 7, 7), 1 / 7))


def test_softmax_has_no_physics(data, rng):
    model = Agreement(attention=Softmax()).build(data, rng)
    with (
        pytest.raises(ValueError, match="no oscillator layer"),
        physics.on(model, physics.state(0.1), rng),
    ):
        pass


def test_frequency_is_in_the_published_unit(model, rng):
    with physics.on(model, physics.frequency(0.5), rng):
        settle = attention_layers(model)[0].settle
        assert settle.scale == pytest.approx(0.5 / math.sqrt(2))
        assert settle.horizon == 30


def test_rotation_is_in_the_papers_unit(model, rng):
    rotation = physics.rotation(0.5)
    assert (rotation.name, rotation.level) == ("rotation", 0.5)
    with physics.on(model, rotation, rng):
        assert attention_layers(model)[0].settle.scale == pytest.approx(0.5)


def test_no_imperfection_is_no_change(model, data):
    # Theorem 3: settled for long enough, the flow is the closed form
    ideal = (physics.coupling(0.0), physics.state(0.0), physics.frequency(0.0))
    found = physics.measure(
        {3: model}, SVA(), data.valid.take(slice(200)), (physics.settling(1e4), *ideal), draws=2
    )
    assert [m.seed for m in found] == [3] * 8
    assert all(abs(x) < 1 for m in found for x in m.change.values())


def test_draws_differ_and_repeat(model, data):
    grid = (physics.settling(0.01),)
    split = data.valid.take(slice(1000))
    once, again = (physics.measure({0: model}, SVA(), split, grid, draws=2) for _ in range(2))
    assert once == again
    assert once[0].change != once[1].change


def test_scores_are_those_of_any_batch(model, data):
    split = data.valid.take(slice(300))
    assert physics.scores(model, SVA(), split, 300) == physics.scores(model, SVA(), split, 70)


def test_draws_are_averaged_within_a_seed():
    def measured(seed: int, draw: int, change: float) -> physics.Measured:
        return physics.Measured("state", 0.1, seed, draw, {"hard": change})

    rows = [measured(1, 0, 5.0), measured(0, 0, 1.0), measured(0, 1, 2.0)]
    assert physics.by_seed(rows, "state", 0.1, "hard") == [1.5, 5.0]
    assert physics.by_seed(rows, "state", 0.2, "hard") == []


def test_the_grid_is_the_papers():
    names = [one.name for one in physics.GRID]
    assert {name: names.count(name) for name in set(names)} == {
        "settling": 6,
        "coupling": 5,
        "state": 5,
        "frequency": 5,
    }
    assert all(isinstance(one, Physics) for one in physics.GRID)
    assert torch.tensor(physics.HORIZONS).tolist() == [0.5, 1, 2, 5, 10, 30]
