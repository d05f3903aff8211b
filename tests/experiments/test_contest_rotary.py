"""The second question: rotary couplings know distances alone, and its test asks for both."""

import math
from dataclasses import replace

import contest_records as made
import pytest
import torch

from accuracy import ROUNDING
from lohe.attention import OscillatorAttention, PositionedAttention, RotaryAttention
from lohe.experiments.contest import confirm, page, second, stages
from lohe.experiments.contest.rotary import (
    ExponentialRope,
    OscillatorRope,
    RotaryOscillatorAttention,
    RotaryPositionedAttention,
)
from lohe.experiments.contest.second import BOTH
from lohe.experiments.contest.stages import confirmed_spheres, rotary_runs, turned, with_both
from lohe.experiments.contest.trials import STAGES

D_MODEL, HEADS, TOKENS, D_OSC = 12, 3, 10, 4


@pytest.fixture
def x(rng):
    return torch.randn(2, TOKENS, D_MODEL, dtype=torch.float64, generator=rng)


@pytest.fixture
def layer(rng):
    sizes = D_MODEL, HEADS, TOKENS, D_OSC
    options = {"sharpness": 4, "gain": "learned", "causal": True, "generator": rng}
    return RotaryOscillatorAttention(*sizes, base=100.0, **options).double()


# the layers


def test_scores_depend_on_the_distance_alone(layer, x):
    """One token at every place: score (i, j) is score (i + 1, j + 1)."""
    f, g, _ = layer.front_end(*3 * (x[:, :1].expand(-1, TOKENS, -1),))
    scores = f @ g.mT
    assert torch.allclose(scores[..., 1:, 1:], scores[..., :-1, :-1], atol=ROUNDING, rtol=0)
    assert (scores[..., 0, 1:] - scores[..., :1, 0]).abs().min() > 1e-6


@pytest.fixture
def plain(layer, rng):
    """`OscillatorAttention` with the same parameters."""
    sizes = D_MODEL, HEADS, TOKENS, D_OSC
    other = OscillatorAttention(*sizes, sharpness=4, gain="learned", causal=True, generator=rng)
    other.double().load_state_dict(layer.state_dict())
    return other


def test_without_angles_it_is_ours_to_the_bit(layer, plain, x):
    fronts = lambda: zip(layer.front_end(x, x, x), plain.front_end(x, x, x), strict=True)  # noqa: E731
    assert [torch.equal(a, b) for a, b in fronts()] == [False, False, True]  # f, g, v
    layer.spacing = 0.0
    assert all(torch.equal(a, b) for a, b in fronts())


def test_only_the_couplings_are_turned(layer, plain, x):
    """f and g as complex numbers times e^{itω}, then the oscillators of `OscillatorAttention`."""
    f, g, v = plain.front_end(x, x, x)
    t, k = torch.arange(TOKENS).double(), torch.arange(2).double()
    turns = torch.exp(1j * t[:, None] * 100.0 ** (-k / 2))

    def turn(a):
        pairs = torch.view_as_complex(a.unflatten(-1, (2, 2)).contiguous()) * turns
        return torch.view_as_real(pairs).flatten(-2)

    p = plain.problem(turn(f), turn(g), v)
    weights = layer(x, need_weights=True)[1]
    z = plain.oscillators(p)
    similarity = (1 + plain.gain[:, None, None] * z @ p.anchors.mT).clamp(min=0) ** 4
    allowed = torch.ones(TOKENS, TOKENS, dtype=torch.bool).tril()
    similarity = similarity * allowed
    assert torch.allclose(
        weights, similarity / similarity.sum(-1, keepdim=True), atol=ROUNDING, rtol=0
    )


def test_with_exponential_couplings_a_rotary_softmax_is_a_limit(x, rng):
    """Orthonormal anchors and a large gain: `theory.uniform_share`."""
    ours = ExponentialRope(d_osc=TOKENS, gain=1e8, base=100.0)
    layer = ours.build(D_MODEL, HEADS, TOKENS, causal=True, generator=rng).double()
    assert isinstance(layer, RotaryOscillatorAttention)
    layer.anchors.data[:] = torch.eye(TOKENS)
    softmax = RotaryAttention(D_MODEL, HEADS, base=100.0, causal=True, generator=rng).double()
    for mine, theirs in (("to_f", "to_q"), ("to_g", "to_k"), ("to_v", "to_v"), ("to_out",) * 2):
        getattr(softmax, theirs).load_state_dict(getattr(layer, mine).state_dict())
    assert torch.allclose(layer(x), softmax(x), atol=1e-7, rtol=0)


def test_fewer_queries_are_the_last(layer, x):
    whole = layer(x)
    assert torch.allclose(layer.attend(x[:, 6:], x, x), whole[:, 6:], atol=ROUNDING, rtol=0)
    with pytest.raises(ValueError, match="got 10 queries and 6 keys"):
        layer.attend(x, x[:, :6], x[:, :6])


def test_what_it_cannot_do_is_refused(layer, x):
    with pytest.raises(ValueError, match="call the layer on the whole sequence"):
        layer.decode(x)
    with pytest.raises(ValueError, match="turn pairs of channels, and a head has 3"):
        RotaryOscillatorAttention(12, 4, 10)


def test_a_softmax_with_both_is_either_where_the_other_is_nothing(rng, x):
    both = RotaryPositionedAttention(
        D_MODEL, HEADS, max_tokens=TOKENS, base=100.0, deviation=1.0, generator=rng
    ).double()
    rotary = RotaryAttention(D_MODEL, HEADS, base=100.0, generator=rng).double()
    tables = PositionedAttention(D_MODEL, HEADS, TOKENS, generator=rng).double()
    tables.load_state_dict(both.state_dict())
    rotary.load_state_dict(both.state_dict(), strict=False)
    far = (both(x) - tables(x)).abs().max(), (both(x) - rotary(x)).abs().max()
    assert min(far) > 1e-3
    both.spacing = 0.0
    assert torch.allclose(both(x), tables(x), atol=ROUNDING, rtol=0)
    both.spacing = 1.0
    torch.nn.init.zeros_(both.table)
    assert torch.allclose(both(x), rotary(x), atol=ROUNDING, rtol=0)


# what is trained


def chosen():
    return made.chosen(made.evidence(made.chosen_records()))


def test_nothing_is_tuned_for_it():
    """Rotations and sinusoids of the rotary softmax, tables of the other, the rest of ours."""
    won = chosen()
    wide = replace(won, ours=replace(won.ours, mechanism=replace(won.ours.mechanism, d_osc=48)))
    for c in (won, wide):
        kinds = {False: OscillatorRope, True: ExponentialRope}
        for name, (plain, rotary) in turned(c).items():
            same = {"d_osc": plain.mechanism.d_osc, "sharpness": 4, "gain": "learned"}
            kind = kinds[name.endswith("rotary, exp")]
            assert rotary.mechanism == kind(**same, base=c.rotary.mechanism.base)
            back = replace(rotary, mechanism=plain.mechanism, positions=plain.positions)
            assert back == plain
            assert rotary.positions == c.rotary.positions
    assert [c.mechanism.d_osc for c in confirmed_spheres(wide).values()] == [48, 16, 32]
    both = with_both(won)
    assert replace(both, mechanism=won.rotary.mechanism) == won.rotary
    assert both.mechanism.deviation == won.matched.mechanism.deviation
    runs = rotary_runs(wide)
    assert len(runs) == 70
    assert {run.seed for run in runs} == set(STAGES["confirm"].seeds)  # paired with these


# its test


def evidence(ours: float, both: float, noise: float = 0.002):
    """Best softmax 98.5; ours with rotations and the softmax with both as given."""

    def truth(run):
        name = type(run.model.attention).__name__
        given = {"OscillatorRope": ours, "ExponentialRope": ours, "SoftmaxRopePositions": both}
        return given.get(name) or made.truth(run)

    won = chosen()
    runs = stages.confirm_runs(won) + rotary_runs(won)
    return made.evidence([*made.chosen_records(), *made.invented(runs, truth, noise)]), won


@pytest.mark.parametrize(
    ("ours", "both", "better"), [(96, 97, True), (97, 96, False), (99, 100, False)]
)
def test_better_is_better_than_both(ours, both, better):
    found, won = evidence(ours, both)
    p = confirm.better_p_values(second.comparisons(found, won))
    assert all((x < 0.01) == better for x in p.values())
    said = second.answer(found)
    everywhere = "d_osc 32; d_osc 16; d_osc 32, exp; d_osc 16, exp"
    assert (f"It is better than both at {everywhere} (" in said) == better
    assert ("It is not shown to be (" in said) != better
    table = second.second_table(found)
    names = [f"{name}, rotary{how}" for how in ("", ", exp") for name in confirmed_spheres(won)]
    assert [row[0] for row in table.rows] == [*names, BOTH]
    assert {len(row) for row in table.rows} == {len(table.columns)}
    plain = made.truth(stages.confirm_runs(won)[0])
    assert float(table.rows[0][-1].split()[0]) == pytest.approx(100 * (ours / plain - 1), abs=0.5)
    assert said in page.page(found, "x")


def test_p_is_the_larger_of_two_and_corrected_over_dimensions_and_couplings():
    found, won = evidence(97.9, 98.0)
    compared = second.comparisons(found, won)
    larger = {n: max(c.welch.p for c in rivals.values()) for n, rivals in compared.items()}
    p = confirm.better_p_values(compared)
    assert len(larger) == 4
    least, *_, most = sorted(larger, key=larger.__getitem__)
    assert p[least] == pytest.approx(min(1, 4 * larger[least]))
    assert p[most] == pytest.approx(max(*p.values(), larger[most]))


def test_it_leaves_the_primary_test_alone():
    found, won = evidence(90, 91)
    without = made.evidence([*made.chosen_records(), *made.invented(stages.confirm_runs(won))])
    assert confirm.comparisons(found, won) == confirm.comparisons(without, won)


def test_nothing_is_answered_before_all_is_there():
    found, won = evidence(90, 91)
    some = [r for r in found.of(rotary_runs(won)) if r.seed != 103]
    rest = made.evidence([*found.of(stages.confirm_runs(won)), *made.chosen_records(), *some])
    assert second.answer(rest) == ""
    assert set(confirm.better_p_values(second.comparisons(rest, won)).values()) == {1.0}
    rows = second.second_table(rest).rows
    assert rows[0][-4] == "ours, rotary has 9 of 10 seeds"
    assert second.second_table(made.evidence(made.chosen_records())).rows == []
    assert rows[0][-2] == ""


def test_what_diverged_at_one_dimension_leaves_the_others_their_answer():
    found, won = evidence(90, 91)
    all_, first = found.all(), found.of(rotary_runs(won))[0]  # of ours as chosen, d_osc = 32
    gone = made.evidence(replace(r, curve=[{"loss": math.nan}]) if r == first else r for r in all_)
    said = second.answer(gone)
    assert "It is better than both at d_osc 16; d_osc 32, exp; d_osc 16, exp (" in said
    assert "d_osc 32 undecided: seed 100 of ours, rotary diverged" in said
