"""What goes into JSON comes out the same, to the bit."""

import math
import struct
from enum import StrEnum

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lohe.experiments.store.exact import dumps, loads

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
VALUES = st.recursive(SCALARS, lambda x: st.lists(x) | st.dictionaries(st.text(), x), max_leaves=20)


def bits(value):
    """`value` with floats as their 64 bits, so that NaN is itself and -0.0 is not 0.0."""
    match value:
        case float():
            return ("float", "nan" if math.isnan(value) else struct.pack("d", value))
        case list():
            return [bits(v) for v in value]
        case dict():
            return {k: bits(v) for k, v in value.items()}
    return (type(value), value)


@given(VALUES)
def test_round_trip_is_exact(value):
    assert bits(loads(dumps(value))) == bits(value)


def test_one_line_of_ascii():
    text = dumps({"σ": "a\nb", "x": [float("nan"), -float("inf")]})
    assert text.isascii()
    assert "\n" not in text
    assert text.endswith('[{"float":"nan"},{"float":"-inf"}]}')


def test_numbers_in_disguise_become_plain_ones():
    class Mode(StrEnum):
        FAST = "fast"

    assert loads(dumps({"x": np.float64(0.1), "m": Mode.FAST, "t": (1, 2)})) == {
        "x": 0.1,
        "m": "fast",
        "t": [1, 2],
    }


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"a": [0, torch.tensor(1.0)]}, r"value\['a'\]\[1\] must be JSON .* got Tensor.*item\(\)"),
        ({"a": np.float32(1)}, "got float32"),
        ({"a": {3: 1}}, r"value\['a'\] must have str keys, got 3"),
        ({"a": {"float": "nan"}}, "how NaN and inf are stored"),
    ],
)
def test_what_would_not_come_back_is_refused(value, message):
    with pytest.raises(ValueError, match=message):
        dumps(value)


@pytest.mark.parametrize("text", ["", "{", '{"a": NaN}', "[" * 100_000, b"\xff\xfe", "{} {}"])
def test_other_text_is_a_value_error(text):
    with pytest.raises(ValueError):
        loads(text)
