"""Entropies summed up: which rows count, and in which bin."""

import math

import pytest
import torch
from invented import SMOKE, Untrained
from rank_records import tokens_of

from lohe.experiments.studies.rank import cohort
from lohe.experiments.studies.rank.attention_entropy import BINS, AttentionEntropy, summary
from lohe.models import Oscillator


@pytest.fixture(scope="module")
def bench():
    return Untrained()


def test_entropy_of_a_model_is_summed_up(bench):
    run = SMOKE.tinystories(Oscillator())
    found = AttentionEntropy(run, chunks=6).take(bench)
    words = cohort.is_word(tokens_of(bench, run, 6)).sum(dim=1)
    assert found.result["rows"] == 8 * int((words - 1).sum())
    histogram, *heads = found.curve
    assert sum(histogram["histogram"]) == found.result["rows"]
    assert len(histogram["histogram"]) == BINS
    assert len(heads) == 8
    assert 0 <= found.result["q1"] <= found.result["median"] <= found.result["q3"] <= 1
    below = sum(histogram["histogram"][: math.floor(BINS * found.result["median"])])
    assert below <= found.result["rows"] / 2


def test_quantiles_and_bins_by_hand():
    entropy = torch.tensor([0.1, 0.2, 0.3, 0.4, 1.0, 7.0], dtype=torch.float64)
    words = torch.tensor([[True] * 5 + [False]])  # the last row is padding
    found = summary(entropy.expand(1, 2, 3, 6), words)
    assert found.result["rows"] == 30
    assert found.result["median"] == pytest.approx(0.3)
    assert found.result["mean"] == pytest.approx(0.4)
    assert found.curve[0]["histogram"][-1] == 6  # 1 belongs to the last bin
    assert {"layer": 2, "head": 1, "median": 0.3} in found.curve
