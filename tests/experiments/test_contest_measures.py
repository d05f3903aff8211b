"""What is measured on the contest's models, on one that was trained and on any."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import short_contest
from lohe.experiments.contest.beyond import BeyondLength, continued, joined
from lohe.experiments.contest.measured import Devices
from lohe.experiments.contest.readouts import LearnedReadout
from lohe.experiments.contest.trials import STAGES, Configuration
from lohe.experiments.measures import Bench
from lohe.experiments.runner import complete
from lohe.experiments.store.store import Store
from lohe.models import (
    ExponentialReadout,
    LearnedSharpness,
    NoDynamics,
    Oscillator,
    Softmax,
    SoftmaxAlibi,
    SoftmaxPositions,
    SoftmaxRope,
    attention_layers,
)
from lohe.tasks.language import PAD, next_token
from lohe.tasks.wikitext2 import overlapping_windows
from lohe.train import Run

SHARP, ROPE = Oscillator(d_osc=4, sharpness=4, gain="learned"), SoftmaxRope()
EXPONENTIAL = ExponentialReadout(d_osc=4)


def run_of(mechanism, protocol="strict") -> Run:
    (run,) = STAGES["trials"].runs(Configuration(mechanism), seeds=(0,), protocol=protocol)
    return run


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    """Four models that were trained for an epoch, with their records and weights."""
    root = short_contest.write_corpus(tmp_path_factory.mktemp("data"))
    store = Store(tmp_path_factory.mktemp("store"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(STAGES, "trials", STAGES["trials"].__class__(1, (0,)))
        mechanisms = (SHARP, ROPE, LearnedSharpness(4, gain="learned"), EXPONENTIAL)
        runs = [run_of(mechanism) for mechanism in mechanisms]
        assert len(list(complete(runs, store, root=root, with_weights=runs))) == len(runs)
        yield Bench(store, root=root)


# longer than trained


@given(st.integers(2, 40), st.integers(1, 12))
def test_windows_are_joined_to_the_stream_that_they_were_cut_from(words, tokens):
    stream = torch.arange(4, 4 + words, dtype=torch.int16)
    assert torch.equal(joined(next_token(overlapping_windows(stream, tokens))), stream)


@given(st.integers(2, 40), st.integers(1, 12), st.integers(1, 12))
def test_every_length_scores_the_same_words(words, a, b):
    stream = torch.arange(4, 4 + words, dtype=torch.int16)
    scored = [next_token(overlapping_windows(stream, n)).targets["next"] for n in (a, b)]
    assert [x[x != PAD].tolist() for x in scored] == [stream[1:].tolist()] * 2


@pytest.mark.parametrize(("mechanism", "ways"), [(SHARP, 1), (ROPE, 2)])
def test_at_the_trained_length_it_is_what_training_reported(bench, mechanism, ways):
    run = run_of(mechanism)
    found = BeyondLength(run, words=(49, 60, 131)).take(bench)
    reported = bench.store.load(run.recipe())[0].result["later.perplexity"]
    at = {(row["words"], row["positions"]): row["perplexity"] for row in found.curve}
    assert len(at) == 3 * ways
    assert all(math.isfinite(x) for x in at.values())
    for (words, _), perplexity in at.items():
        if words == 49:
            assert perplexity == pytest.approx(reported, rel=1e-5)
    assert at[131, "spread"] != pytest.approx(reported, rel=1e-4)
    assert found.result["targets"] == 2 * 63 - 1  # two articles, each with a title of three words


@pytest.mark.parametrize("mechanism", [Softmax(), ROPE, SoftmaxAlibi()], ids=repr)
@torch.no_grad()
def test_continued_positions_leave_the_trained_ones_alone(bench, mechanism):
    """What the model said of the first words, it says in any longer window."""
    run = run_of(mechanism)
    data = bench.data(run)
    model = run.model.build(data, torch.Generator().manual_seed(0)).eval()
    longer = continued(model, run, data, 80)
    assert longer is not None
    tokens = torch.randint(4, len(data.names), (2, 80))
    torch.testing.assert_close(longer(tokens)[:, :48], model(tokens[:, :48]))


@pytest.mark.parametrize("mechanism", [SHARP, NoDynamics(4), SoftmaxPositions()], ids=repr)
def test_what_is_learned_for_each_position_cannot_be_continued(bench, mechanism):
    run = run_of(mechanism)
    data = bench.data(run)
    assert continued(run.model.build(data, torch.Generator()), run, data, 80) is None


def test_the_published_protocol_has_no_other_lengths(bench):
    with pytest.raises(ValueError, match="cut by the strict protocol, and the model was trained"):
        BeyondLength(run_of(SHARP, "published")).take(bench)


# the readout, and devices


@pytest.mark.parametrize("mechanism", [SHARP, LearnedSharpness(4, gain="learned")], ids=repr)
def test_gain_and_sharpness_are_those_of_the_layers(bench, mechanism):
    run = run_of(mechanism)
    found = LearnedReadout(run).take(bench)
    layers = attention_layers(bench.model(run))
    assert found.result["heads"] == len(found.curve) == 8
    for row in found.curve:
        layer = layers[row["layer"]]
        assert isinstance(layer.gain, torch.Tensor)
        assert row["gain"] == pytest.approx(layer.gain[row["head"]].item(), abs=1e-6)
        assert row["gain"] != 1  # it has learned
        p = layer.sharpness
        p = p[row["head"]].item() if isinstance(p, torch.Tensor) else p
        assert row["sharpness"] == pytest.approx(p, abs=1e-6)


def test_of_an_exponential_readout_beta_is_recorded(bench):
    run = run_of(EXPONENTIAL)
    found = LearnedReadout(run).take(bench)
    layers = attention_layers(bench.model(run))
    for row in found.curve:
        beta = layers[row["layer"]].log_beta[row["head"]].exp().item()
        assert row == {"layer": row["layer"], "head": row["head"], "beta": pytest.approx(beta)}


def test_devices_are_measured_on_the_second_half(bench):
    run = run_of(SHARP)
    found = Devices(run).take(bench)
    reported = bench.store.load(run.recipe())[0].result
    assert found.result["perplexity"] == pytest.approx(reported["later.perplexity"], rel=1e-5)
    kinds = {row["physics"] for row in found.curve}
    assert kinds == {"settling", "coupling", "state", "frequency", "anywhere", "nowhere"}
    assert all(len(row["nats"]) == 1 and math.isfinite(row["nats"][0]) for row in found.curve)
    by_noise = {row["level"]: row["nats"][0] for row in found.curve if row["physics"] == "state"}
    assert abs(by_noise[0.01]) < abs(by_noise[0.5])
