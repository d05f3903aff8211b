"""The counting convention of Appendix B, against every count the paper prints."""

import doctest
from dataclasses import astuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lohe import cost

# Table 11 as printed: softmax, all digital, equilibration, and readout, and affine sum physical.
PRINTED = {
    ("KWS", "relu"): (57_526, 33_908, 23_912, 14_308, 4_802),
    ("SVA", "relu"): (963, 594, 396, 234, 81),
    ("TinyStories", "relu"): (395_776, 635_136, 362_752, 98_560, 33_024),
    ("KWS", "softplus"): (57_526, 77_126, 67_130, 57_526, 48_020),
    ("SVA", "softplus"): (963, 1_323, 1_125, 963, 810),
    ("TinyStories", "softplus"): (395_776, 932_352, 659_968, 395_776, 330_240),
}
SHAPES = {  # caption of Table 7: T, n_h, d_osc, causal
    "KWS": (49, 2, 2, False),
    "SVA": (9, 1, 2, False),
    "TinyStories": (128, 4, 8, True),
}

shapes = st.tuples(st.integers(1, 300), st.integers(1, 16), st.integers(2, 64))


@pytest.mark.parametrize(("task", "coupling"), PRINTED)
def test_every_printed_count_to_the_unit(task, coupling):
    tokens, heads, d_osc, causal = SHAPES[task]
    counts = cost.operations(tokens, heads, d_osc, coupling, causal)
    assert astuple(counts) == PRINTED[task, coupling]


@pytest.mark.parametrize("table", [cost.table_7, cost.table_10, cost.table_11])
def test_the_tables_agree_with_the_paper(table):
    assert [row.label for row in table()] == list(cost.LABELS.values())
    assert all(row.agrees for row in table())


def test_the_tables_hold_what_the_paper_prints():
    # column by column, so that a typing error in cost.py and one here would have to coincide
    columns = list(zip(*(row.paper for row in cost.table_11()), strict=True))
    assert columns == list(PRINTED.values())
    assert [row.paper for row in cost.table_7()][1:] == [
        (1.7, 1.6, 0.6),
        (2.4, 2.4, 1.1),
        (4.0, 4.1, 4.0),
        (12.0, 11.9, 12.0),
    ]
    assert [row.paper for row in cost.table_10()][1:] == [
        (0.7, 0.7, 0.4),
        (0.9, 0.9, 0.6),
        (1.0, 1.0, 1.0),
        (1.2, 1.2, 1.2),
    ]


def test_a_wrong_number_does_not_agree():
    assert not cost.Row("counts", (962,), (963,)).agrees
    assert not cost.Row("reduction", (1.76,), (1.7,)).agrees


@given(shapes, st.booleans())
def test_softplus_with_a_physical_readout_costs_what_softmax_does(shape, causal):
    # caption of Table 10: both reduce to one exponential per pair, one row sum and one division
    counts = cost.operations(*shape, coupling="softplus", causal=causal)
    assert counts.reduction("equilibration_and_readout_physical") == 1


@given(shapes, st.sampled_from(list(cost.COUPLINGS)), st.booleans())
def test_each_implementation_leaves_less_digital(shape, coupling, causal):
    _, *oscillator = astuple(cost.operations(*shape, coupling=coupling, causal=causal))
    assert oscillator == sorted(oscillator, reverse=True)


@given(shapes)
def test_the_last_reduction_approaches_the_exponential_plus_two(shape):
    # caption of Table 7: an exponential, a row sum and a division against one relu
    tokens, *_ = shape
    reduction = cost.operations(*shape).reduction("affine_physical")
    assert reduction == pytest.approx(cost.EXPONENTIAL + 2 - 1 / tokens)


@given(shapes, st.booleans())
def test_couplings_with_an_exponential_cost_the_same(shape, causal):
    softplus, elu, exp = (
        cost.operations(*shape, coupling=name, causal=causal) for name in ("softplus", "elu", "exp")
    )
    assert softplus == elu == exp


def test_oscillator_budgets_of_the_paper():
    assert cost.oscillators(tokens=49, heads=2, d_osc=2) == 98  # Sec. 5, KWS
    assert cost.oscillators(tokens=50, heads=4, d_osc=32) == 6_200  # Sec. 5, WikiText-2


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"tokens": 0}, "tokens must be at least 1, got 0"),
        ({"heads": -1}, "heads must be at least 1, got -1"),
        ({"d_osc": 1}, "d_osc must be at least 2, got 1"),
        ({"coupling": "tanh"}, "one of relu, softplus, elu, exp, got 'tanh'"),
        ({"gain": "fixed"}, "a number > 0, \"learned\" or None, got 'fixed'"),
        ({"gain": 0.0}, 'a number > 0, "learned" or None, got 0.0'),
    ],
)
def test_bad_input_is_refused_with_a_reason(wrong, message):
    with pytest.raises(ValueError, match=message):
        cost.operations(**{"tokens": 9, "heads": 1, "d_osc": 2, **wrong})


def test_budgets_refuse_bad_shapes_too():
    with pytest.raises(ValueError, match="d_osc must be at least 2"):
        cost.oscillators(tokens=9, heads=1, d_osc=1)


def test_an_unknown_implementation_is_named():
    with pytest.raises(ValueError, match=r"knows the implementations .* got 'optical'"):
        cost.operations(9, 1, 2).reduction("optical")


def test_docstring_examples():
    result = doctest.testmod(cost)
    assert result.attempted > 0
    assert result.failed == 0


@given(shapes, st.booleans(), st.sampled_from([2, 4, 8]))
def test_sharpening_costs_its_squarings_and_a_gain_one_multiply_add_a_pair(shape, causal, p):
    """As long as each is digital, and nothing else changes."""
    plain = astuple(cost.operations(*shape, causal=causal))
    sharp = astuple(cost.operations(*shape, causal=causal, sharpness=p, gain=True))
    tokens, heads, _ = shape
    pairs = heads * cost.pairs(tokens, causal)
    more = [(b - a) // pairs for a, b in zip(plain, sharp, strict=True)]
    squarings = p.bit_length() - 1
    assert more == [0, squarings + 1, squarings + 1, squarings, 0]


@given(st.integers(1, 200))
def test_a_power_takes_the_multiplications_of_repeated_squaring(p):
    """x^p from x by squaring and by multiplying with x, counted as they are done."""
    exponent, multiplications = 1, 0
    for bit in bin(p)[3:]:
        exponent, multiplications = 2 * exponent, multiplications + 1
        if bit == "1":
            exponent, multiplications = exponent + 1, multiplications + 1
    assert exponent == p
    assert cost.power(1, p) == multiplications


def test_a_real_power_costs_an_exponential():
    real, whole = (cost.operations(9, 1, 2, sharpness=p) for p in (2.5, 1))
    assert real.all_digital - whole.all_digital == cost.EXPONENTIAL * 81
    with pytest.raises(ValueError, match="sharpness must be >= 1"):
        cost.operations(9, 1, 2, sharpness=0.5)


@pytest.mark.parametrize("gain", [0.5, 2.0, "learned"])
def test_a_gain_is_counted_whatever_it_is(gain):
    assert cost.operations(9, 1, 2, gain=gain) == cost.operations(9, 1, 2, gain=True)
    assert cost.operations(9, 1, 2, gain=None) == cost.operations(9, 1, 2, gain=False)
