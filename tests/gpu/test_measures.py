"""What is measured on the contest's models gives on a CUDA device what it gives on the CPU."""

import math

import pytest
import torch

import short_contest
from lohe.experiments.contest import measured
from lohe.experiments.contest.beyond import BeyondLength
from lohe.experiments.contest.readouts import LearnedReadout
from lohe.experiments.contest.rotary import (
    ExponentialRope,
    OscillatorRope,
    SoftmaxRopePositions,
)
from lohe.experiments.contest.trials import STAGES, Configuration, Stage
from lohe.experiments.measures import Bench
from lohe.experiments.runner import complete
from lohe.experiments.store.store import Store
from lohe.experiments.studies.rank.attention_entropy import AttentionEntropy
from lohe.experiments.studies.rank.concentration import Concentration
from lohe.experiments.studies.rank.effective_rank import EffectiveRank
from lohe.models import ExponentialReadout, NoDynamics, Oscillator, SoftmaxPositions, SoftmaxRope

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA"),
]
DEVICE = "cuda"
SHARP = Oscillator(d_osc=5, sharpness=4, gain="learned")
MECHANISMS = (SHARP, ExponentialReadout(d_osc=5), NoDynamics(5), SoftmaxRope(), SoftmaxPositions())
CLOSE = 1e-3  # relative: float32 sums in another order, through ranks and medians


def run_of(mechanism):
    return STAGES["trials"].runs(Configuration(mechanism), seeds=(0,))[0]


@pytest.fixture(scope="module")
def benches(tmp_path_factory):
    """The same models, trained for an epoch, on the CPU and on the device."""
    root = short_contest.write_corpus(tmp_path_factory.mktemp("data"))
    store = Store(tmp_path_factory.mktemp("store"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(STAGES, "trials", Stage(1, (0,)))
        runs = [run_of(mechanism) for mechanism in MECHANISMS]
        assert len(list(complete(runs, store, root=root, with_weights=runs))) == len(runs)
        yield Bench(store, "cpu", root), Bench(store, DEVICE, root)


def numbers(found) -> list[float]:
    values = [x for row in (found.result, *found.curve) for x in row.values()]
    flat = [y for x in values for y in (x if isinstance(x, list) else [x])]
    return [float(x) for x in flat if not isinstance(x, str)]


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=repr)
@pytest.mark.parametrize(
    "kind", [EffectiveRank, AttentionEntropy, Concentration, BeyondLength, LearnedReadout]
)
def test_a_measure_is_the_same_on_the_device(benches, kind, mechanism):
    if kind is LearnedReadout and not hasattr(mechanism, "d_osc"):
        pytest.skip("softmax has no readout of that kind")
    here, there = (kind(run_of(mechanism)).take(bench) for bench in benches)
    if kind is AttentionEntropy:  # a count may move from one bin to the next
        here, there = (type(x)(x.result, x.curve[1:]) for x in (here, there))
    assert numbers(there) == pytest.approx(numbers(here), rel=CLOSE, abs=CLOSE)


@pytest.mark.parametrize("kind", [measured.Devices, measured.settling])
def test_devices_and_settling_run_there(benches, kind):
    """Their draws are the device's own; the closed form, and how many there are, are the same."""
    here, there = (kind(run_of(SHARP)).take(bench) for bench in benches)
    assert all(map(math.isfinite, numbers(there)))
    assert len(numbers(there)) == len(numbers(here))
    for name in {"perplexity", "examples", "norm.median"} & here.result.keys():
        assert there.result[name] == pytest.approx(here.result[name], rel=CLOSE)


@pytest.mark.parametrize(
    "mechanism",
    [
        SHARP,
        OscillatorRope(5, 4, "learned"),
        ExponentialRope(5, 4, "learned"),
        SoftmaxRopePositions(),
    ],
)
def test_articles_of_the_test_are_scored_there(mechanism, tmp_path):
    """A pack of two, as the confirmation trains it: the sum over articles is the score."""
    root = short_contest.write_corpus(tmp_path / "data")
    runs = Stage(1, (0, 1), test=True).runs(Configuration(mechanism))
    found = {}
    for device in ("cpu", DEVICE):
        store = Store(tmp_path / device)
        assert len(list(complete(runs, store, root=root, device=device))) == 1
        found[device] = store.load(runs[0].recipe())
    for seed in (0, 1):
        there = found[DEVICE][seed]
        parts = there.notes["parts"]["test"]
        nats = sum(parts["article_nll"]) / sum(parts["article_targets"])
        assert there.result["test.nats"] == pytest.approx(nats, rel=1e-5)
        # dropout is the device's own, an epoch a single step
        expected = found["cpu"][seed].result["test.nats"]
        assert there.result["test.nats"] == pytest.approx(expected, rel=0.02)
