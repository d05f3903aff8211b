"""Bad input: the message says what was asked, what arrived and what to do."""

import pytest
import torch

import lohe


def call(make, **changes):
    x = make(6)
    options = {k: changes.pop(k) for k in list(changes) if k not in x}
    return lohe.oscillator_attention(**x | changes, **options)


BAD = {
    "three axes": ({"f": torch.randn(3, 6, 8)}, r"`f` must be \(batch, heads, tokens, features\)"),
    "integers": ({"v": torch.ones(2, 3, 6, 5, dtype=torch.long)}, "float16, got torch.int64"),
    "eight bits": ({"f": torch.zeros(2, 3, 6, 8).to(torch.float8_e4m3fn)}, "bfloat16 or float16"),
    "no features": (
        {"f": torch.zeros(2, 3, 6, 0), "g": torch.zeros(2, 3, 6, 0)},
        "at least one feature",
    ),
    "an endless scale": ({"scale": float("inf")}, "a finite number, got inf"),
    "features differ": ({"g": torch.randn(2, 3, 6, 4)}, "`g` must match `f`"),
    "a value too few": ({"v": torch.randn(2, 3, 5, 5)}, "one value for each key"),
    "an anchor too many": (
        {"anchors": torch.randn(3, 7, 2)},
        r"slice the table .* anchors\[:,",
    ),
    "anchors of one number": ({"anchors": torch.randn(3, 6, 1)}, "d_osc must be at least 2"),
    "unknown coupling": ({"coupling": "tanh"}, "softplus, relu, elu, exp"),
    "unknown backend": ({"backend": "cuda"}, "auto, reference, chunked, triton"),
    "no triton yet": ({"backend": "triton"}, "lohe doctor"),
    "dull": ({"sharpness": 0.5}, ">= 1 .* got 0.5"),
    "not a number": ({"sharpness": float("nan")}, ">= 1 .* got nan"),
    "sharpness for two heads": ({"sharpness": torch.ones(2)}, "each of the 3 heads, got shape"),
    "negative gain": ({"gain": -1.0}, "> 0, got -1.0"),
    "additive mask": ({"mask": torch.zeros(6, 6)}, "mask == 0"),
    "mask of 1 and 0": ({"mask": torch.ones(6, 6, dtype=torch.long)}, r"`mask.bool\(\)`"),
    "mask of a wrong size": ({"mask": torch.ones(6, 5, dtype=torch.bool)}, r"\(2, 3, 6, 6\), got"),
    "a key mask as mask": ({"mask": torch.ones(2, 6, dtype=torch.bool)}, "goes in `key_mask`"),
    "a mask as key mask": ({"key_mask": torch.ones(6, 6, dtype=torch.bool)}, r"\(batch, keys\)"),
    "five axes": ({"mask": torch.ones(1, 1, 1, 6, 6, dtype=torch.bool)}, "2, 3 or 4 axes"),
    "no tokens": (
        {"f": torch.randn(2, 3, 0, 8)},
        "at least one query and one key, got 0 and 6",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_explained(make, name):
    changes, message = BAD[name]
    with pytest.raises(ValueError, match=message):
        call(make, **changes)


def test_a_mask_that_could_be_per_batch_or_per_head_is_ambiguous(make):
    x = make(6, batch=3, heads=3)
    mask = torch.ones(3, 6, 6, dtype=torch.bool)
    with pytest.raises(ValueError, match=r"ambiguous.*mask\[:, None\]"):
        lohe.oscillator_attention(**x, mask=mask)
    lohe.oscillator_attention(**x, mask=mask[:, None])


def test_three_axes_are_per_batch_or_per_head_as_they_fit(make, rng):
    x = make(6)
    for leading, index in ((2, (slice(None), None)), (3, (None,)), (1, (None,))):
        mask = torch.rand(leading, 6, 6, generator=rng) > 0.3
        three = lohe.oscillator_attention(**x, mask=mask)
        assert torch.equal(three, lohe.oscillator_attention(**x, mask=mask[index]))


@pytest.mark.parametrize("wrong", [lambda s: s, torch.relu, lambda s: s.log()])
def test_a_callable_must_return_positive_couplings(make, wrong):
    with pytest.raises(ValueError, match=r"positive, finite couplings .*relu\(x\) \+ 1e-3"):
        call(make, coupling=wrong)
    with lohe.checks(False):
        call(make, coupling=wrong)


def test_a_callable_gives_what_its_named_twin_gives(make):
    x = make(6)
    named = lohe.oscillator_attention(**x, causal=True)
    called = lohe.oscillator_attention(**x, causal=True, coupling=torch.nn.functional.softplus)
    torch.testing.assert_close(called, named, rtol=0, atol=1e-14)
    with pytest.raises(ValueError, match='backend="reference"'):
        lohe.oscillator_attention(**x, coupling=torch.exp, backend="chunked")


def test_nan_is_reported_by_the_reference_and_elsewhere_on_request(make):
    x = make(6)
    x["g"][0, 0, 0, 0] = float("nan")
    with pytest.raises(ValueError, match=r"`g` of shape .* has 1 NaN"):
        lohe.oscillator_attention(**x, backend="reference")
    assert lohe.oscillator_attention(**x, backend="chunked").isnan().any()
    with lohe.checks(), pytest.raises(ValueError, match="`g` of shape"):
        lohe.oscillator_attention(**x, backend="chunked")
