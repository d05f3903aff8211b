"""Positions spread over more tokens: exact where they coincide, in between otherwise."""

import copy

import pytest
import torch

from accuracy import ROUNDING
from lohe import sphere
from lohe.models import (
    Amplified,
    NoDynamics,
    Oscillator,
    PositionOffset,
    Softmax,
    SoftmaxAlibi,
    SoftmaxPositions,
    SoftmaxRope,
    attention_layers,
    stretched,
)
from lohe.models.positions import positions, sinusoids
from lohe.models.stretch import places

UNIT = {
    "sphere": Oscillator(d_osc=3),
    "sharp": Oscillator(d_osc=4, sharpness=4, gain="learned"),
    "no dynamics": NoDynamics(d_osc=3),
}
EVERY = UNIT | {
    "free": Oscillator(anchors="free"),
    "offset": PositionOffset(),
    "amplified": Amplified(),
    "softmax": Softmax(),
    "positions": SoftmaxPositions(deviation=1.0),
    "rope": SoftmaxRope(),
    "alibi": SoftmaxAlibi(),
}


def layer(mechanism, rng, tokens=7):
    built = mechanism.build(8, 2, tokens, True, rng).double()
    with torch.no_grad():
        for parameter in built.parameters():  # no table at its start, no anchor of unit length
            parameter += 0.3 * torch.randn(parameter.shape, generator=rng)
    return built


@pytest.mark.parametrize("mechanism", UNIT.values(), ids=UNIT)
@pytest.mark.parametrize("max_tokens", [7, 8, 13, 20, 50])
def test_stretched_anchors_are_unit_vectors_on_the_arcs_between_neighbours(
    rng, mechanism, max_tokens
):
    old = layer(mechanism, rng)
    new = stretched(old, max_tokens, trained=7)
    before, after = sphere.normalize(old.anchors.detach()), new.anchors.detach()
    assert after.shape == (2, max_tokens, old.d_osc)
    assert (after.norm(dim=-1) - 1).abs().max() < ROUNDING
    for t in range(max_tokens):
        place = t * 6 / (max_tokens - 1)
        left = min(int(place), 5)
        arc = sphere.angle(before[:, left], before[:, left + 1])
        first = sphere.angle(before[:, left], after[:, t])
        second = sphere.angle(after[:, t], before[:, left + 1])
        torch.testing.assert_close(first, (place - left) * arc, rtol=0, atol=1e-10)
        torch.testing.assert_close(first + second, arc, rtol=0, atol=1e-10)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("factor", [1, 2, 3, 7])
def test_old_anchors_are_met_to_the_bit_where_they_coincide(rng, dtype, factor):
    old = layer(Oscillator(d_osc=3), rng).to(dtype)
    new = stretched(old, 6 * factor + 1, trained=7)
    assert torch.equal(new.anchors[:, ::factor], sphere.normalize(old.anchors))
    free = layer(Oscillator(anchors="free"), rng).to(dtype)
    assert torch.equal(
        stretched(free, 6 * factor + 1, trained=7).anchors[:, ::factor], free.anchors
    )


def test_free_anchors_get_a_length_in_between(rng):
    old = layer(Oscillator(anchors="free"), rng)
    new = stretched(old, 13, trained=7)
    length = old.anchors.norm(dim=-1)
    torch.testing.assert_close(
        new.anchors.norm(dim=-1)[:, 1::2], (length[:, :-1] + length[:, 1:]) / 2
    )
    assert (length - 1).abs().max() > 0.1


@pytest.mark.parametrize("mechanism", EVERY.values(), ids=EVERY)
def test_stretched_by_nothing_is_the_same_and_the_original_stays(rng, mechanism):
    old = layer(mechanism, rng)
    kept = copy.deepcopy(old.state_dict())
    x = torch.randn(2, 7, 8, dtype=torch.float64, generator=rng)
    torch.testing.assert_close(stretched(old, 7, trained=7)(x), old(x), rtol=0, atol=ROUNDING)
    longer = stretched(old, 31, trained=7)
    assert longer(torch.randn(2, 31, 8, dtype=torch.float64, generator=rng)).isfinite().all()
    assert [p.requires_grad for p in longer.parameters()] == [
        p.requires_grad for p in old.parameters()
    ]
    assert all(torch.equal(old.state_dict()[name], rows) for name, rows in kept.items())


@pytest.mark.parametrize("name", [name for name in EVERY if name != "amplified"])
@pytest.mark.parametrize("positions", ["none", "sinusoidal", "learned"])
def test_every_second_token_of_a_longer_sequence_is_seen_as_before(
    language_model, name, positions, rng
):
    """Masked out, the tokens in between change nothing: the others stand where they stood."""
    old = language_model.build(EVERY[name], positions=positions).double().eval()
    new = stretched(old, 17, trained=9)
    tokens = torch.randint(1, 11, (2, 17), generator=rng)
    between = torch.arange(17) % 2 == 0
    x = new.encoder(new.embedding(tokens), between.expand(2, 17))[:, between]
    expected = old.encoder(old.embedding(tokens[:, between]))
    # the sinusoids are kept in float32
    torch.testing.assert_close(x, expected, rtol=0, atol=1e-6)


def test_learned_tables_are_interpolated_and_sinusoids_taken_at_the_place(language_model):
    old = language_model.build(SoftmaxPositions(deviation=1.0), positions="learned")
    new = stretched(old, 17, trained=9)
    for before, after in (
        (old.encoder.positions.table, new.encoder.positions.table),
        (attention_layers(old)[1].table, attention_layers(new)[1].table),
    ):
        assert torch.equal(after[::2], before[:9])
        torch.testing.assert_close(after[1::2], (before[:8] + before[1:9]) / 2)
    waves = stretched(language_model.build(Softmax()), 17, trained=9).encoder.positions
    assert torch.equal(waves.table[::2], sinusoids(9, 8))
    assert "encoder.positions.table" not in waves.state_dict()
    torch.testing.assert_close(waves.table[1, 0], torch.tensor(0.5).sin())


def test_the_anchor_that_was_never_trained_is_left_out(language_model):
    old = language_model.build(Oscillator(d_osc=3))  # nine tokens, ten anchors
    (first, _), (same, _) = attention_layers(old), attention_layers(stretched(old, 33, trained=9))
    assert first.anchors.shape[1] == 10
    assert torch.equal(same.anchors[:, -1], sphere.normalize(first.anchors[:, 8]))


def test_places_are_whole_numbers_where_they_can_be():
    for trained, max_tokens in ((49, 127), (50, 148), (9, 9), (1, 4), (1, 1)):
        at = places(max_tokens, trained, torch.zeros(trained, 1))
        exact = [t * (trained - 1) / max(1, max_tokens - 1) for t in range(max_tokens)]
        torch.testing.assert_close(at.place, torch.tensor(exact, dtype=torch.float64))
        whole = [t * (trained - 1) % max(1, max_tokens - 1) == 0 for t in range(max_tokens)]
        assert (at.fraction == 0).tolist() == whole


def test_a_stretch_that_makes_no_sense_is_explained(rng):
    old = layer(Oscillator(), rng)
    with pytest.raises(ValueError, match=r"trained=7 and max_tokens=6.*needs no stretching"):
        stretched(old, 6, trained=7)
    with pytest.raises(ValueError, match="trained=8, but the model has 7 positions"):
        stretched(old, 20, trained=8)


def test_stretching_twice_is_stretching_once():
    table = positions("sinusoidal", 50, 8)
    twice = stretched(stretched(table, 97, trained=49), 193, trained=97)
    once = stretched(table, 193, trained=49)
    torch.testing.assert_close(twice.table, once.table, rtol=0, atol=1e-5)


def test_a_gain_has_no_sign_to_pass_through_zero():
    layer = Amplified().build(d_model=8, heads=2, max_tokens=3)
    with torch.no_grad():
        layer.to_f.coupling_gain[:, 1] = -1.0
    longer = stretched(layer, 5, trained=3).to_f.coupling_gain
    torch.testing.assert_close(longer, torch.ones_like(longer))
