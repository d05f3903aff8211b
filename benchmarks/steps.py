"""What do a pack's own products, loss and dropout save in a step of WikiText-2 training?

    python benchmarks/steps.py --data ROOT     # a minute on a CUDA device; results/steps-cuda.json

Five seeds of Table 4's softmax and oscillator as published, in float32 and TF32, replayed from a
CUDA graph: plain PyTorch, with `lohe.ops.affine`, with `lohe.tasks.cross_entropy`, with
`lohe.ops.drop`, with all three.
Before the clock, losses and gradients of one step are compared with float64, both ways. Without
--data random words of the same shapes are trained on: the time does not depend on them.
"""

import argparse
import statistics
from dataclasses import replace
from pathlib import Path

import torch

from harness import save
from lohe.experiments.recipes import wikitext2
from lohe.models import Oscillator, Softmax
from lohe.ops import affine, drop
from lohe.tasks import Data, cross_entropy, language
from lohe.train import Pack
from lohe.train.pack import cosine
from lohe.train.stepper import GraphStepper

CUDA, SEEDS, STEPS = torch.device("cuda"), list(range(5)), 60
PARTS = {"products": affine, "loss": cross_entropy, "dropout": drop}
OWN = {name: module._pays for name, module in PARTS.items()}


def use(*names: str) -> None:
    for name, module in PARTS.items():
        setattr(module, "_pays", OWN[name] if name in names else lambda x: False)  # noqa: B010


def random_words(words: int) -> Data:
    rng = torch.Generator().manual_seed(0)
    chunks = torch.randint(4, words, (100 * 64, 50), generator=rng, dtype=torch.int16)
    split = language.next_token(chunks)
    return Data({"train": split, "valid": split}, tuple(map(str, range(words))), "random")


def ms_a_step(run, data: Data) -> float:
    pack = Pack(run, SEEDS, data, CUDA)
    stepper = GraphStepper(pack, cosine(run, run.steps(data)))
    order = pack.order(len(data.train))
    stepper.epoch(0, order[:, : 8 * run.batch], run.batch)  # warm-up and capture
    assert stepper.graph is not None  # captured by the warm-up
    times = []
    for _ in range(3):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(STEPS):
            stepper.at.zero_()  # the same batch again: only the time counts
            stepper.now.zero_()
            stepper.graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) / STEPS)
    return statistics.median(times)


def one_step(run, data: Data) -> dict[str, torch.Tensor]:
    """Losses and gradients of the first step, without dropout."""
    run = replace(run, model=replace(run.model, dropout=0.0))
    pack = Pack(run, SEEDS, data, CUDA)
    losses = pack.step(pack.order(len(data.train))[:, : run.batch].to(CUDA))
    return {"loss": losses} | {n: p.grad for n, p in pack.parameters.items() if p.grad is not None}


def check(run, data: Data) -> None:
    use()
    plain, exact = one_step(run, data), one_step(replace(run, precision="float64"), data)
    use(*PARTS)
    fused = one_step(run, data)
    for name, truth in exact.items():
        top = truth.abs().max().item()
        a, b = ((x[name].double() - truth).abs().max().item() / top for x in (plain, fused))
        flag = "   <-- worse" if b > 2 * a + 5e-7 else ""
        if flag or name in ("loss", "head.weight", "embedding.weight") or "anchors" in name:
            print(f"    {name:34} error / max: plain {a:.1e}, fused {b:.1e}{flag}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path)
    args = parser.parse_args()
    base = wikitext2(Softmax(), release="tokens")
    data = base.task.load(args.data) if args.data else random_words(10_000)
    rows = []
    for name, attention in (("softmax", Softmax()), ("oscillator", Oscillator(anchors="free"))):
        for precision in ("float32", "tf32"):
            run = replace(wikitext2(attention, release="tokens"), precision=precision)
            print(f"{name}, {precision}", flush=True)
            check(run, data)
            for label, names in {"plain": (), **{n: (n,) for n in PARTS}, "all": PARTS}.items():
                use(*names)
                ms = ms_a_step(run, data)
                row = {"model": name, "precision": precision, "with": label, "step_ms": ms}
                rows.append(row)
                print(f"    {label:10} {ms:6.2f} ms a step", flush=True)
            use(*PARTS)
    path = save("steps-cuda", {"question": (__doc__ or "").splitlines()[0], "rows": rows})
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
