"""What does the head of a language model cost on a CPU, and how much of it need not be?

Most of a step of WikiText-2 on one core is the head of 10,000 words: three products, and passes
over 123 MB of logits between them. Here a few rows at a time go through all of it while they are in
the cache, and the products may round their operands to bfloat16 (sums are float32): processors
with AMX do, and are several times faster; on others they stay exact. All else is `lohe.train`'s.

    OMP_NUM_THREADS=1 python benchmarks/quick.py --data ROOT   # two minutes
    # results/quick.json, or where there is no AMX results/quick-without-amx.json

Steps are timed in the same run, after the gradient of every parameter has been compared; first as
PyTorch makes them, then as `lohe run` has them made (lohe.experiments.cpu).
"""

import argparse
import copy
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.func import functional_call

from behind_softmax import MODELS, run_of
from harness import save
from lohe.experiments import cpu
from lohe.experiments.products import rounded
from lohe.tasks.language import PAD
from lohe.train import loop
from lohe.train.pack import Pack, Parameters
from lohe.transforms import into_models

ROWS = 256  # at a time
matmul: Any = torch.backends.mkldnn.matmul  # pyright: ignore[reportAttributeAccessIssue]


class HeadLoss(Function):
    """x (S, rows, d), head W (S, words, d), b (S, words), targets (S, rows) -> losses (S,).

    loss_s is the mean over targets that are no padding of -log softmax(W x + b)[target]; gradients
    are made while the logits are at hand. `products` is what they round to, "bf16" or "ieee".
    """

    @staticmethod
    def forward(
        x: Tensor, w: Tensor, b: Tensor, targets: Tensor, products: str
    ) -> tuple[Tensor, ...]:
        with made_of(products):
            made = [_one(*of_model) for of_model in zip(x, w, b, targets, strict=True)]
        return tuple(torch.stack(parts) for parts in zip(*made, strict=True))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*output[1:])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        assert grads[0] is not None
        factor = grads[0]
        made = (g * factor.view(-1, *(1,) * (g.ndim - 1)) for g in ctx.saved_tensors)
        return *made, None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[Any, Any]:
        *tensors, products = args
        size = info.batch_size
        moved = (into_models(t, d, size) for t, d in zip(tensors, in_dims[:-1], strict=True))
        made = HeadLoss.apply(*moved, products)
        return tuple(t.unflatten(0, (size, -1)) for t in made), (0,) * len(made)


@contextmanager
def made_of(products: str) -> Iterator[None]:
    """Products of float32 may round to this, "bf16" or "ieee"."""
    before, matmul.fp32_precision = matmul.fp32_precision, products
    try:
        yield
    finally:
        matmul.fp32_precision = before


def rounds() -> bool:
    """Whether products that may round to bfloat16 do, on this processor."""
    with made_of("bf16"):
        return rounded()


def _one(x: Tensor, w: Tensor, b: Tensor, targets: Tensor) -> tuple[Tensor, ...]:
    """Loss and gradients of one model."""
    real = targets != PAD
    share = 1 / real.sum()
    loss = x.new_zeros(())
    dx, dw, db = torch.empty_like(x), torch.zeros_like(w), torch.zeros_like(b)
    logits = x.new_empty(min(ROWS, len(x)), len(w))
    parts = (t.split(ROWS) for t in (x, dx, targets[:, None], real))
    for x_part, dx_part, target, counts in zip(*parts, strict=True):
        y = torch.addmm(b, x_part, w.T, out=logits[: len(x_part)])
        top = y.amax(dim=1, keepdim=True)
        at_target = y.gather(1, target) - top
        total = y.sub_(top).exp_().sum(dim=1, keepdim=True)
        loss += ((total.log() - at_target)[:, 0] * counts).sum() * share
        weight = counts[:, None] * share
        y.mul_(weight / total).scatter_add_(1, target, -weight)
        torch.mm(y, w, out=dx_part)
        dw.addmm_(y.T, x_part)
        db += y.sum(dim=0)
    return loss, dx, dw, db


class QuickPack(Pack):
    """A pack of language models whose loss is made by `HeadLoss`, rounded where that is faster."""

    products = "bf16"

    def __init__(self, *args: Any):
        super().__init__(*args)
        self.headless = copy.copy(self.model)
        self.headless._modules = {**self.model._modules, "head": nn.Identity()}

    def _loss(
        self, parameters: Parameters, buffers: Parameters, inputs: dict, targets: dict
    ) -> Tensor:
        body = {n: p for n, p in parameters.items() if not n.startswith("head.")}
        hidden = functional_call(self.headless, (body, buffers), (), inputs)
        head = parameters["head.weight"], parameters["head.bias"]
        following = targets["next"].flatten().long()
        losses, *_ = HeadLoss.apply(
            hidden.flatten(0, 1)[None], *(p[None] for p in head), following[None], self.products
        )
        return losses.squeeze(0)


class ExactPack(QuickPack):
    """The same, and nothing is rounded."""

    products = "ieee"


def use(pack: type[QuickPack] = QuickPack) -> None:
    """Train so from now on, in this process."""
    cpu.get_ready()
    loop.Pack = pack


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, help="data root; else $LOHE_DATA")
    options = parser.parse_args()
    cpu.get_ready()
    kinds = {
        "Pack, products as PyTorch makes them": (Pack, "none"),
        "Pack": (Pack, matmul.fp32_precision),
        "ExactPack": (ExactPack, "none"),
        "QuickPack": (QuickPack, matmul.fp32_precision),
    }
    rows = []
    for name in ("p = 8, gain", "softmax, rotary"):
        run = replace(run_of(MODELS[name], 0), clip=math.inf)  # gradients as they are
        data = run.limited(run.task.load(options.data))
        first = {}
        for kind, (make, products) in kinds.items():
            pack = make(run, [0], data, torch.device("cpu"))
            batches = pack.order(len(data.train)).split(run.batch, dim=1)
            with made_of(products):
                loss = pack.step(batches[0]).item()
                grads = {n: p.grad for n, p in pack.parameters.items()}
                found = {n: g.clone() for n, g in grads.items() if g is not None}
                first = first or found
                worst = max(((found[n] - g).norm() / g.norm()).item() for n, g in first.items())
                if worst > (0.01 if make is QuickPack else 1e-5):
                    raise SystemExit(f"{kind}: gradients off by {worst:.1e}, not timed.")
                times = []
                for batch in batches[1:16]:
                    begun = time.perf_counter()
                    pack.step(batch)
                    times.append(time.perf_counter() - begun)
            row = {
                "model": name,
                "pack": kind,
                "seconds a step": sorted(times)[len(times) // 2],
                "loss": loss,
                "gradients off by": worst,
            }
            print(row, flush=True)
            rows.append(row)
    print("wrote", save("quick" if rounds() else "quick-without-amx", {"rows": rows}))


if __name__ == "__main__":
    main()
