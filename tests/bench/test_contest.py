"""The race: who takes part, who is left out and why, and what the ratio is a ratio of."""

from functools import partial

import numpy as np
import pytest
import torch

import lohe
from lohe.bench import attention, clock, contest, decode, gate, step
from lohe.bench.contest import Contestant, attempt, rivals
from lohe.bench.rows import Row, Spread
from lohe.bench.sets import MECHANISMS, SETS, Choice

RELU = {"relu": MECHANISMS["relu"]}


def entry(name, attend) -> Contestant:
    return Contestant(name, "sdpa", [])


def by_name(rows, measure: str) -> dict[str, Row]:
    return {row.name: row for row in rows if row.measure == measure}


def test_the_ratio_is_to_the_fastest_rival_of_each_measure_round_by_round(setup, monkeypatch):
    times = {
        "ours": [[1.0, 4.0], [2.0, 4.0], [4.0, 4.0]],
        "flash": [[2.0, 9.0], [3.0, 9.0], [4.0, 9.0]],
        "cudnn": [[9.0, 6.0], [9.0, 8.0], [9.0, 8.0]],
        "flex": [[0.1, 0.1]] * 3,  # not what the ratio is to
    }
    monkeypatch.setattr(clock, "timed", lambda *_: [np.array(t) for t in times.values()])
    kinds = ("ours", "sdpa", "sdpa", "flex")
    entries = [Contestant(n, k, []) for n, k in zip(times, kinds, strict=True)]
    setup = setup()
    case = setup.case(1, 2, 8, 4, True)
    measures = {"forward": slice(0, 1), "both": slice(0, 2)}
    rows = list(setup.race(case, entries, measures))
    forward, both = by_name(rows, "forward"), by_name(rows, "both")
    assert forward["ours"].rival == "flash"
    assert forward["ours"].seconds == Spread(2.0, 1.5, 3.0)
    assert forward["ours"].ratio == Spread.of([2.0, 1.5, 1.0])
    assert forward["cudnn"].ratio == Spread.of([2 / 9, 3 / 9, 4 / 9])
    assert both["ours"].rival == "flash"
    assert both["ours"].ratio == Spread.of([11 / 5, 12 / 6, 13 / 8])
    assert {row.rounds for row in rows} == {3}
    with_flex = setup.race(case, entries, measures, against=("sdpa", "flex"))
    assert by_name(with_flex, "forward")["ours"].rival == "flex"


def test_every_rival_here_is_tried_and_the_others_say_why(setup):
    setup = setup()
    case = setup.case(1, 2, 40, 8, True)
    x = attention.projections(setup, case)
    sample = (x["f"], x["g"], x["v"])
    entered = []

    def enter(name, attend):
        entered.append(attend(*sample))
        return entry(name, attend)

    found, left_out = rivals(setup, case, sample, enter, with_flex=True)
    assert [c.name for c in found] == ["flash"]
    assert [row.name for row in left_out] == ["cudnn", "efficient", "flex"]
    assert all(row.status == "left out" and row.note for row in left_out)
    weights = (x["f"] @ x["g"].mT / 8**0.5).masked_fill(~torch.ones(40, 40).tril().bool(), -np.inf)
    torch.testing.assert_close(entered[0], weights.softmax(-1) @ x["v"], rtol=1e-4, atol=1e-5)


def test_math_is_the_last_resort(setup, monkeypatch):
    monkeypatch.setitem(contest.SDPA, "flash", contest.SDPA["cudnn"])
    setup = setup()
    x = setup.randn(1, 2, 10, 8)
    found, left_out = rivals(setup, setup.case(1, 2, 10, 8, False), (x, x, x), entry)
    assert [c.name for c in found] == ["math"]
    assert [row.name for row in left_out] == ["flash", "cudnn", "efficient"]


def test_a_rival_that_computes_something_else_is_left_out(setup, monkeypatch):
    monkeypatch.setattr(contest, "flex", lambda *_: partial(contest.sdpa, "math", causal=False))
    setup = setup()
    x = setup.randn(1, 2, 10, 8)
    case = setup.case(1, 2, 10, 8, causal=True)
    found, left_out = rivals(setup, case, (x, x, x), entry, with_flex=True)
    assert [c.name for c in found] == ["flash"]
    assert left_out[-1].note.startswith("differs from flash by ")


def test_a_reason_is_never_empty():
    def fails():
        raise AssertionError

    assert attempt(fails) == "AssertionError"
    assert attempt(lambda: None) == ""


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_forward_backward_and_both(setup, dtype):
    setup = setup(dtype)
    case = setup.case(1, 2, 70, 16, causal=False)
    rows = list(attention.compare(setup, case, MECHANISMS))
    for measure in ("forward", "backward", "both"):
        found = by_name(rows, measure)
        assert found.keys() == {*MECHANISMS, "flash"}
        assert all(row.ratio and row.ratio.median > 0 for row in found.values())
        assert found["flash"].ratio == Spread(1.0, 1.0, 1.0)
    assert set(found["relu"].errors or ()) == {"output", "f", "g", "v", "anchors"}


def test_wrong_is_not_timed(setup, monkeypatch):
    right = attention.oscillator_attention

    def wrong_when_long(f, g, v, anchors, **call):
        out = right(f, g, v, anchors, **call)
        return out if g.shape[2] <= 50 else out * 1.01

    monkeypatch.setattr(attention, "oscillator_attention", wrong_when_long)
    monkeypatch.setattr(attention, "SMALL_TOKENS", 50)
    setup = setup()
    rows = list(attention.compare(setup, setup.case(1, 2, 70, 16, True), RELU))
    (wrong,) = [row for row in rows if row.kind == "ours"]
    assert wrong.status == "wrong"
    assert "output 1.0e-02" in wrong.note
    assert by_name(rows, "forward").keys() == {"flash"}
    assert by_name(attention.compare(setup, setup.case(1, 2, 50, 16, True), RELU), "both")["relu"]


@pytest.mark.parametrize(
    ("draws", "asked", "admitted"),
    [
        ((0.9,), 1, True),
        ((1.1, 0.9), 2, True),  # unlucky
        ((1.1, 1.1), 2, False),
        ((3.1, 0.9), 1, False),  # no bad luck is that bad
        ((float("nan"), 0.9), 1, False),
    ],
)
def test_what_is_wrong_by_little_is_asked_again(setup, draws, asked, admitted):
    setup, bounds = setup(), []

    def check():
        bounds.append(draws[len(bounds)] * gate.bound(torch.float32))
        return {"anchors": bounds[-1]}

    found = setup.admit(setup.case(1, 1, 8, 8, True), "relu", check)
    assert len(bounds) == asked
    if not admitted:
        assert found.status == "wrong"
    elif asked == 1:
        assert found == {"anchors": bounds[0]}
    else:
        assert found == {"anchors": bounds[1], "anchors, first draw": bounds[0]}


def test_a_backend_that_cannot_serve_says_so(setup):
    setup = setup(backend="triton")
    rows = list(attention.compare(setup, setup.case(1, 2, 20, 16, True), RELU))
    assert (rows[0].name, rows[0].status) == ("relu", "left out")
    assert "triton" in rows[0].note


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_decoding_keeps_its_context_and_tells_its_cache(setup, dtype, monkeypatch):
    monkeypatch.setattr(decode, "PIECE", 30)
    setup = setup(dtype)
    case = setup.case(3, 2, 101, 16, causal=True)
    found = by_name(decode.compare(setup, case, MECHANISMS), "decode")
    assert found.keys() == {*MECHANISMS, "flash"}
    keys = 3 * 2 * 101 * 16 * dtype.itemsize
    state = {name: 3 * 2 * (m.d_osc + 1) * 17 * 4 for name, m in MECHANISMS.items()}
    assert found["flash"].cache_bytes == 2 * keys
    assert found["relu"].cache_bytes == keys + state["relu"]
    assert found["relu-d32"].cache_bytes == keys + state["relu-d32"]
    assert found["relu-d32-p4-gain"].cache_bytes == 2 * keys
    assert found["relu"].rival == "flash"


def test_a_wrong_step_of_decoding_is_caught(setup, monkeypatch):
    step_of = decode.Decoding.step
    monkeypatch.setattr(decode.Decoding, "step", lambda *x: 1.01 * step_of(*x))
    setup = setup()
    rows = list(decode.compare(setup, setup.case(2, 2, 40, 16, causal=True), RELU))
    assert (rows[0].status, rows[0].kind) == ("wrong", "ours")


def test_decoding_without_the_floor_of_relu_is_caught(setup, monkeypatch):
    step_of = decode.Decoding.step

    def without_floor(self, *new):
        self.layer.coupling, self.layer.backend = torch.relu, "reference"
        with lohe.checks(False):  # which ask that couplings be positive
            return step_of(self, *new)

    monkeypatch.setattr(decode.Decoding, "step", without_floor)
    setup = setup(torch.bfloat16)
    rows = list(decode.compare(setup, setup.case(2, 2, 40, 16, causal=True), RELU))
    assert (rows[0].status, rows[0].kind) == ("wrong", "ours")


def test_a_step_of_training(setup):
    setup = setup(torch.bfloat16)
    size = step.Size(layers=2, heads=2, d_model=32, vocabulary=50)
    case = setup.case(2, 2, 24, 16, causal=True)
    found = by_name(step.compare(setup, case, RELU, size), "step")
    assert found.keys() == {"relu", "flash"}


def test_training_trains(setup):
    setup = setup()
    size = step.Size(layers=1, heads=2, d_model=32, vocabulary=50)
    training = step.Training(setup, setup.case(2, 2, 24, 16, True), size, MECHANISMS["relu"])
    before = {n: p.detach().clone() for n, p in training.model.named_parameters()}
    training.step()
    moved = [n for n, p in training.model.named_parameters() if not torch.equal(p, before[n])]
    assert moved == list(before)
    assert training.model.encoder.blocks[0].attention.backend == "chunked"


def test_the_sets_ask_for_what_they_say(setup, monkeypatch):
    asked = []
    for module in (attention, decode, step):
        name = module.__name__.rsplit(".", 1)[-1]
        monkeypatch.setattr(
            module,
            "compare",
            lambda setup, case, mechanisms, n=name, flex=False: iter(
                asked.append((n, setup.set, case, tuple(mechanisms), flex)) or ()
            ),
        )
    setup = setup()
    said = list(SETS["all"](setup, Choice()))
    assert [(row.set, row.name, row.status) for row in said] == [
        (name, "flex", "left out") for name in ("long", "step")
    ]
    cases = {(n, s): [c for m, t, c, *_ in asked if (m, t) == (n, s)] for n, s, *_ in asked}
    table = cases["attention", "table"]
    assert {c.batch * c.tokens for c in table} == {16384}
    assert sorted((c.tokens, c.causal) for c in table) == [
        (t, c) for t in (1024, 4096, 16384) for c in (False, True)
    ]
    assert {(c.heads, c.d_h) for c in table} == {(32, 64)}
    assert {(c.heads, c.d_h) for c in cases["attention", "heads128"]} == {(16, 128)}
    assert [(c.batch, c.tokens) for c in cases["decode", "decode"]] == [
        (b, 32768) for b in (1, 8, 64)
    ]
    assert [(c.batch, c.tokens) for c in cases["attention", "long"]] == [(1, 131072)]
    assert [(c.batch, c.tokens, c.heads) for c in cases["step", "step"]] == [(4, 4096, 12)]
    assert {(s, c.tokens) for _, s, c, _, flex in asked if flex} == {
        ("table", 4096),
        ("heads128", 4096),
        ("decode", 32768),
    }
    asked.clear()
    assert not list(SETS["all"](setup, Choice(flex=False, batch=3, heads=5, width=24)))
    assert {(c.batch, c.heads, c.d_h) for _, _, c, *_ in asked} == {(3, 5, 24)}
    assert len([c for n, _, c, *_ in asked if n == "decode"]) == 1
    asked.clear()
    list(SETS["quick"](setup, Choice(tokens=(64,), mechanisms=("softplus",), flex=False)))
    assert [(c.tokens, c.batch, m) for _, _, c, m, _ in asked] == [(64, 32, ("softplus",))] * 2
