"""Cross-entropy is PyTorch's; the fused one is tested by `interpreted.py` and on a GPU."""

import pytest
import torch
from torch.nn import functional as F

from lohe.tasks import cross_entropy as module
from lohe.tasks import language


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_cpu_keeps_pytorchs_own(rng, monkeypatch, dtype):
    monkeypatch.setattr(module, "fused", lambda *_: pytest.fail("not on the CPU"))
    classes = module.MANY
    logits = torch.randn(2, 3, classes, generator=rng, dtype=dtype)
    targets = torch.randint(classes, (2, 3), generator=rng)
    targets[0, 1] = language.PAD
    rows, following = logits.flatten(0, 1), targets.flatten()
    mean = F.cross_entropy(rows, following, ignore_index=language.PAD)
    total = F.cross_entropy(rows.float(), following, ignore_index=language.PAD, reduction="sum")
    assert torch.equal(language.NextWord().loss(logits, {"next": targets}), mean)
    assert torch.equal(language.NextWord().tally(logits, {"next": targets})["nll"], total)
