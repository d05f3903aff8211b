"""The gate: what is right passes in every dtype, and each kind of wrong is caught and named."""

from functools import partial

import pytest
import torch

import lohe
from lohe.bench import attention, gate
from lohe.bench.sets import MECHANISMS
from lohe.ops import oscillator_attention

TOKENS = 203


def find_errors(
    setup, wrong=None, *, dtype=torch.float32, causal=True, mechanism="relu", find="whole"
):
    """What the gate finds for chunked, or for `wrong` in its place."""
    setup, m = setup(dtype), MECHANISMS[mechanism]
    case = setup.case(2, 2, TOKENS, 16, causal)
    x = attention.projections(setup, case) | attention.parameters(setup, case, m)
    call = {**attention.options(m), "causal": causal}
    return getattr(gate, find)(
        wrong or attention.attention(setup, case, m), x, setup.generator, **call
    )


def wrong_names(found: gate.Errors, dtype: torch.dtype = torch.float32) -> set[str]:
    return {name for name in found if gate.verdict({name: found[name]}, dtype)}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_what_is_right_passes(setup, dtype, mechanism):
    for find in ("whole", "few_queries"):
        for causal in (True, False):
            found = find_errors(setup, dtype=dtype, causal=causal, mechanism=mechanism, find=find)
            assert gate.verdict(found, dtype) == ""
            assert found.keys() >= {"output", "f", "g", "v", "anchors"}
            assert ("gain" in found) == mechanism.endswith("gain")


@pytest.mark.parametrize("causal", [True, False])
def test_a_few_queries_have_the_gradients_of_the_whole(setup, causal):
    """The reference against itself: only the two ways of asking differ."""

    def reference(**x):
        return oscillator_attention(**x, coupling="relu", causal=causal)

    call = {"dtype": torch.float64, "causal": causal, "find": "few_queries"}
    found = find_errors(setup, reference, **call)
    assert found.pop("anchors") < 1e-7  # they are float32, and so is their gradient
    assert max(found.values()) < 1e-12


@pytest.mark.parametrize("d_osc", [2, 5])
def test_two_keys_coupled_equally_move_nothing(rng, d_osc):
    """z lies half-way between their anchors, wherever these are: a kernel's gradient is rounding
    there, and the gate asks for none."""
    how = {"generator": rng, "dtype": torch.float64}
    g, v, r = (torch.randn(*s, **how) for s in ((1, 1, 2, 3), (1, 1, 2, 4), (1, 2, d_osc)))
    f = torch.zeros(1, 1, 2, 3, dtype=torch.float64)
    x = {"f": f, "g": g, "v": v, "anchors": r}
    leaves = {name: t.clone().requires_grad_() for name, t in x.items()}
    out = oscillator_attention(**leaves, coupling="relu", causal=True, sharpness=4)
    anchors, values = torch.autograd.grad(out.square().sum(), [leaves["anchors"], leaves["v"]])
    torch.testing.assert_close(anchors, torch.zeros_like(anchors), rtol=0, atol=1e-15)
    assert values.abs().min() > 1e-3
    asked = gate._truth(x, rng, coupling="relu", causal=True, sharpness=4)
    assert not asked.direction.any()


class WrongGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, *grads):
        return 1.05 * grads[0]


def right(**x):
    return oscillator_attention(**x, coupling="relu", causal=True)


def unwritten(**x):
    out = right(**x)
    made = torch.empty_like(out)
    return out + 0 * torch.cat([torch.zeros_like(made[:, :, :-1]), made[:, :, -1:]], dim=2)


def one_row(**x):
    out = right(**x)
    made = out.detach().clone()
    made[1, 1, 77] *= 0.5
    return out + (made - out.detach())


def last_key_forgotten(**x):
    seen = torch.arange(TOKENS) < TOKENS - 1
    return oscillator_attention(**x, coupling="relu", causal=True, key_mask=seen.expand(2, -1))


def not_causal(**x):
    return oscillator_attention(**x, coupling="relu")


def no_floor(causal, **x):
    with lohe.checks(False):  # which ask that couplings be positive
        return oscillator_attention(**x, coupling=torch.relu, causal=causal)


def another_floor(**x):
    return oscillator_attention(**x, coupling=lambda s: torch.relu(s) + 2e-3, causal=True)


@pytest.mark.parametrize("find", ["whole", "few_queries"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("wrong", [not_causal, unwritten])
def test_wrong_outputs_are_caught(setup, wrong, dtype, find):
    assert "output" in wrong_names(find_errors(setup, wrong, dtype=dtype, find=find), dtype)


@pytest.mark.parametrize(
    ("causal", "find"), [(False, "whole"), (False, "few_queries"), (True, "whole")]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_relu_without_its_floor_is_caught(setup, dtype, causal, find):
    """Also where every query sees so many keys that some score is always above 0."""
    found = find_errors(setup, partial(no_floor, causal), dtype=dtype, causal=causal, find=find)
    assert "output" in wrong_names(found, dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_single_row_is_caught(setup, dtype):
    assert wrong_names(find_errors(setup, one_row, dtype=dtype), dtype) == {"output"}


@pytest.mark.parametrize("wrong", [last_key_forgotten, another_floor])
def test_a_trifle_is_caught_in_float32(setup, wrong):
    assert "output" in wrong_names(find_errors(setup, wrong))


@pytest.mark.parametrize("find", ["whole", "few_queries"])
@pytest.mark.parametrize("name", ["f", "g", "v", "anchors", "gain"])
def test_a_wrong_gradient_is_caught_by_name(setup, name, find):
    mechanism = MECHANISMS["relu-d32-p4-gain"]

    def wrong(**x):
        x[name] = WrongGradient.apply(x[name])
        return oscillator_attention(**x, **attention.options(mechanism), causal=True)

    for dtype in (torch.float32, torch.bfloat16):
        found = find_errors(setup, wrong, mechanism="relu-d32-p4-gain", dtype=dtype, find=find)
        assert wrong_names(found, dtype) == {name}


def test_nan_is_wrong_and_said():
    said = gate.verdict({"output": float("nan"), "f": 1e-6, "g": 0.5}, torch.float32)
    assert said == "relative error output nan, g 5.0e-01; at most 1e-04 is rounding"


def test_poison_is_gone_afterwards():
    empty = torch.empty
    with gate.poisoned(torch.device("cpu")):
        x = torch.ones(2)
        made = (
            torch.empty(3),
            torch.empty_like(x),
            x.new_empty(3),
            torch.empty_strided((2,), (1,)),
        )
        assert all(t.isnan().all() for t in made)
        assert torch.empty(3, dtype=torch.int32).shape == (3,)
    assert torch.empty is empty
    assert "new_empty" not in vars(torch.Tensor)


def test_coarse_scores_are_exact(setup):
    setup = setup(torch.bfloat16)
    x = gate.coarse(attention.projections(setup, setup.case(1, 2, 60, 128, True)))
    assert torch.equal(
        (x["f"].float() @ x["g"].float().mT).double(), x["f"].double() @ x["g"].double().mT
    )
    assert (x["f"] - x["f"].round()).abs().max() > 0
