"""Scores and weights: which pairs and rows are counted, and what follows from the counts."""

from dataclasses import replace

import pytest
import torch
from invented import SMOKE, Untrained, evidence, measured, verdicts

from lohe.experiments.setting import Setting
from lohe.experiments.studies import monotonicity
from lohe.experiments.studies.monotonicity import COHORTS, FEW, Cohort, Monotonicity
from lohe.experiments.studies.robust.observed import observe, real_tokens
from lohe.ops import reference
from lohe.tasks import Data

SENTENCES, STORIES = Cohort("sva", "as defined"), Cohort("tinystories", "as published")
RAISED = 1e-6  # of a coupling


@pytest.fixture(scope="module")
def bench():
    return Untrained()


def test_counts_are_those_of_raising_every_coupling_in_turn(bench):
    (run,) = SENTENCES.runs(SMOKE)
    found = Monotonicity(run, FEW).take(bench).result
    split = bench.data(run).valid
    whole = real_tokens(split).all(dim=1).nonzero()[:, 0]
    few = whole[torch.arange(FEW) * len(whole) // FEW]
    lowered = rows = 0
    for layer in observe(bench.model(run).double(), **split.take(few).inputs)[1]:
        w, r = layer.couplings, layer.anchors

        def weights(w, r=r):
            z = reference.fixed_point(reference.drive(w, r))
            return reference.attention(reference.similarity(z, r))

        before = weights(w)
        rows += (before.argmax(-1) != w.argmax(-1)).sum().item()
        for j in range(w.shape[-1]):
            raised = w.clone()
            raised[..., j] *= 1 + RAISED
            lowered += (weights(raised)[..., j] < before[..., j]).sum().item()
    tokens = split.inputs["tokens"].shape[1]
    heads = run.model.heads * run.model.layers
    assert found["pairs"] == FEW * heads * tokens**2
    assert found["rows"] == FEW * heads * tokens
    assert (found["lowered"], found["elsewhere"]) == (lowered, rows)
    assert 0 < lowered < found["pairs"]


def test_a_causal_row_of_one_key_is_left_out(bench):
    (run,) = STORIES.runs(SMOKE)
    found = Monotonicity(run, 1).take(bench).result
    tokens = bench.data(run).valid.inputs["tokens"].shape[1]
    heads = run.model.heads * run.model.layers
    assert found["rows"] == heads * (tokens - 1)
    assert found["pairs"] == heads * (tokens * (tokens + 1) // 2 - 1)


def test_padding_alone_is_refused(bench):
    (run,) = SENTENCES.runs(SMOKE)
    data = bench.data(run)
    padded = replace(data.valid, inputs=dict(data.valid.inputs))
    padded.inputs["key_mask"] = padded.inputs["key_mask"].clone()
    padded.inputs["key_mask"][:, -1] = False

    class Padded(Untrained):
        def data(self, run):
            return Data({"train": data.train, "valid": padded}, data.names, data.checksum)

    with pytest.raises(ValueError, match="Every example of the validation split is padded"):
        Monotonicity(run, FEW).take(Padded())


@pytest.mark.parametrize("lowered", [0, 3])
def test_one_pair_is_enough_to_refute(lowered):
    setting = Setting()
    none = {"pairs": 100, "lowered": 0, "rows": 10, "elsewhere": 5}
    records = [measured(m, none) for c in COHORTS for m in c.measures(setting)]
    records[-1].result["lowered"] = lowered
    found = monotonicity.lines(evidence(records))
    assert verdicts(found) == {"not reported"}
    decided = [line.claim for line in found if line.claim]
    assert [claim.holds for claim in decided] == [*[True] * 4, lowered == 0]
    assert "elsewhere in 50.0 (50.0-50.0) % of the rows" in decided[0].found
    assert found[-1].ours == f"{lowered:.1f} %"
    assert len(monotonicity.table(evidence(records)).rows) == len(COHORTS)
