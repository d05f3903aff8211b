"""How much faster is a pack of seeds than one after the other?

    python benchmarks/packs.py --device cpu                  # two minutes; results/packs-cpu.json
    python benchmarks/packs.py --device cuda --data ROOT     # minutes; results/packs-cuda.json
    python benchmarks/packs.py --device cpu --quick          # few steps, writes nothing

Table 2's recipe, softmax and the oscillator as published. Ratio = seeds x t(one) / t(pack), of
training steps (CPU) or of whole runs (GPU), where one seed is

    plain   a model as anyone would train it, without vmap: backward, clip_grad_norm_, step (CPU)
    one     a pack of one: what our own loop makes of a single seed, on a GPU from a captured graph

CPU: a plain model and packs of 1, 5 and 10 take 10 steps in turns, so that a busy moment of the
machine hits all. GPU: 50 seeds x 20 epochs in full, and one seed. With --data, the root of an
imported WikiText-2, also 5 seeds x 30 epochs of Table 4 in float32 and TF32: a few epochs are timed
and extrapolated, with --full all are run. The authors' wall clock on their machine stands beside.

No clock for wrong answers: first, a pack must end where its seeds end alone, in float64, and on
the CPU where plain models end.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch

from harness import save, spread
from lohe.bench.clock import HostClock, in_turns
from lohe.experiments.recipes import agreement, wikitext2
from lohe.models import Mechanism, Oscillator, Softmax, set_generator
from lohe.tasks import SVA, Data
from lohe.train import Pack, Run, train
from lohe.train.pack import cosine
from lohe.train.stepper import Stepper

SVA_MECHANISMS: dict[str, Mechanism] = {
    "softmax": Softmax(),
    "oscillator": Oscillator(anchors="free", pads="as-published"),
}
WIKITEXT2_MECHANISMS: dict[str, Mechanism] = {
    "softmax": Softmax(),
    "oscillator": Oscillator(d_osc=2, anchors="free"),
}
SIZES = {"cpu": (5, 10), "cuda": (50,)}
STEPS, TURNS = 10, 22  # steps of one turn; the first two turns are not counted
TIMED_EPOCHS = 4  # of an extrapolated run; the first is counted apart
# REPRODUCTION.md: the authors' wall clock for a seed, on Apple hardware (MPS), in seconds
AUTHORS = {"SVA": "about 60", "WikiText-2": "300 to 1800"}
Seconds = np.ndarray
AGREE = 1e-10  # float64 rounding of a small gradient over Adam's 1e-8, a few steps of 5e-4


class Plain:
    """One seed as anyone would train it: an ordinary module, no vmap."""

    def __init__(self, run: Run, seed: int, data: Data):
        self.run, self.data = run, data
        self.generator = torch.Generator().manual_seed(seed)  # parameters, then orders, as a pack's
        self.model = run.model.build(data, self.generator)
        self.model.to(torch.float64 if run.precision == "float64" else torch.float32)
        set_generator(self.model, torch.Generator().manual_seed(seed))
        self.trained = [p for p in self.model.parameters() if p.requires_grad]
        self.optimizer = run.optimizer.build(self.trained, run.optimizer.lr, fused=True)
        self.rates = cosine(run, run.steps(data)).tolist()

    def order(self) -> torch.Tensor:
        return torch.randperm(self.run.examples(self.data), generator=self.generator)

    def epoch(self, order: torch.Tensor) -> float:
        """A step on every batch of this order; the mean loss."""
        total = 0.0
        self.model.train()
        for rate, index in zip(self.rates, order.split(self.run.batch), strict=False):
            self.optimizer.param_groups[0]["lr"] = rate
            batch = self.data.train.take(index)
            self.optimizer.zero_grad()
            loss = self.run.task.loss(self.model(**batch.inputs), batch.targets)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.trained, self.run.clip)
            self.optimizer.step()
            total += loss.item() * len(index)
        return total / len(order)


def check(data: Data, device: str) -> None:
    for name, attention in SVA_MECHANISMS.items():
        # six batches: on a GPU the last three are replayed from the graph
        run = replace(agreement(attention), epochs=1, limit=384, precision="float64")
        run = replace(run, model=replace(run.model, dropout=0.0))
        together = train(run, [0, 1, 2], data, device=device).parameters
        for seed in range(3):
            alone = train(run, [seed], data, device=device).parameters
            opponents = {"a pack of one": {k: p[0] for k, p in alone.items()}}
            if device == "cpu":
                plain = Plain(run, seed, data)
                plain.epoch(plain.order())
                opponents["a plain model"] = dict(plain.model.named_parameters())
            for which, ended in opponents.items():
                gap = max((together[k][seed] - p).abs().max().item() for k, p in ended.items())
                if not gap < AGREE:
                    raise SystemExit(f"{name}: a pack and {which} differ by {gap:.1e}, seed {seed}")


def turns(run: Run, data: Data, sizes: tuple[int, ...], steps: int) -> dict[str | int, Seconds]:
    """Seconds of a step of a plain model and of packs of each size, on the CPU, in turns."""
    plain, cut = Plain(run, 0, data), steps * run.batch
    epochs: dict[str | int, Callable[[], object]] = {
        "plain": partial(plain.epoch, plain.order()[:cut])
    }
    for size in sizes:
        pack = Pack(run, list(range(size)), data, torch.device("cpu"))
        stepper, order = Stepper(pack, cosine(run, run.steps(data))), pack.order(len(data.train))
        epochs[size] = partial(stepper.epoch, 0, order[:, :cut], run.batch)
    found = in_turns([(epoch,) for epoch in epochs.values()], HostClock(), TURNS)
    return {which: times[2:, 0] / steps for which, times in zip(epochs, found, strict=True)}


def on_cpu(data: Data, quick: bool) -> list[dict[str, object]]:
    """Ratios are those of each turn, and their spread."""
    rows = []
    print(f"{'':12} {'seeds':>6} {'a step':>9} {'to plain':>18} {'to one':>18}")
    for name, attention in SVA_MECHANISMS.items():
        times = turns(agreement(attention), data, (1, *SIZES["cpu"]), 4 if quick else STEPS)
        for which, found in times.items():
            size = 1 if which == "plain" else int(which)
            ratios = {
                f"to_{other}": spread((size * times[of] / found).tolist())
                for other, of in (("plain", "plain"), ("one", 1))
            }
            step = spread(found.tolist())
            rows.append({"mechanism": name, "seeds": which, "step_s": step} | ratios)
            said = " ".join(f"{_between(ratio):>18}" for ratio in ratios.values())
            print(f"{name:12} {which:>6} {1e3 * step['median']:6.1f} ms {said}", flush=True)
    return rows


def _between(s: dict[str, float]) -> str:
    return f"{s['median']:.2f} ({s['quartile_1']:.2f}-{s['quartile_3']:.2f})"


def wall_clock(run: Run, seeds: int, data: Data, epochs: int) -> dict[str, float]:
    """Seconds of `train` over the whole run; beyond `epochs`, by the median of all but the first.

    What happens once (building, capturing the graph, the final scores) is counted once.
    """
    timed = min(epochs, run.epochs)
    torch.cuda.synchronize()
    marks = [time.perf_counter()]

    def report(epoch: int, lines: list[dict[str, float]]) -> None:
        marks.append(time.perf_counter())

    train(replace(run, epochs=timed), list(range(seeds)), data, device="cuda", report=report)
    torch.cuda.synchronize()
    whole = time.perf_counter() - marks[0]
    epoch = statistics.median(b - a for a, b in pairwise(marks[1:]))
    return {
        "seeds": seeds,
        "epochs": run.epochs,
        "epochs_timed": timed,
        "first_epoch_s": marks[1] - marks[0],
        "epoch_s": epoch,
        "wall_s": whole + (run.epochs - timed) * epoch,
    }


def compared(name: str, run: Run, seeds: int, data: Data, epochs: int) -> dict[str, object]:
    """A pack and one seed, of the same run."""
    wall_clock(replace(run, limit=8 * run.batch), seeds, data, 2)  # libraries and caches warm up
    pack, one = wall_clock(run, seeds, data, epochs), wall_clock(run, 1, data, epochs)
    ratio = seeds * one["wall_s"] / pack["wall_s"]
    how = "" if pack["epochs_timed"] == run.epochs else ", extrapolated"
    print(
        f"{name:32} {seeds} seeds {pack['wall_s']:7.1f} s, one {one['wall_s']:7.1f} s, "
        f"ratio {ratio:5.1f}{how}",
        flush=True,
    )
    return {"name": name, "pack": pack, "one": one, "ratio": ratio}


def on_cuda(data: Data, root: Path | None, quick: bool, full: bool) -> list[dict[str, object]]:
    rows = []
    for name, attention in SVA_MECHANISMS.items():
        run = agreement(attention)
        seeds = SIZES["cuda"][0]
        rows.append(compared(f"SVA, {name}", run, seeds, data, 3 if quick else run.epochs))
    if root is None:
        return rows
    corpus = wikitext2(Softmax(), release="tokens").task.load(root)
    for name, attention in WIKITEXT2_MECHANISMS.items():
        for precision in ("float32", "tf32"):
            run = replace(wikitext2(attention, release="tokens"), precision=precision)
            if quick:
                run = replace(run, limit=20 * run.batch)
            epochs = run.epochs if full else TIMED_EPOCHS
            rows.append(compared(f"WikiText-2, {name}, {precision}", run, 5, corpus, epochs))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description="Packs of seeds against one after the other.")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--data", type=Path, help="data root with WikiText-2 (GPU)")
    parser.add_argument("--full", action="store_true", help="WikiText-2 over all epochs")
    parser.add_argument("--quick", action="store_true", help="little of each, nothing written")
    args = parser.parse_args()
    data = SVA().load()
    check(data, args.device)
    if args.device == "cpu":
        rows = on_cpu(data, args.quick)
    else:
        rows = on_cuda(data, args.data, args.quick, args.full)
        print(f"the authors, a seed: {AUTHORS} s")
    if not args.quick:
        result = {"question": (__doc__ or "").partition("\n")[0], "rows": rows}
        print(save(f"packs-{args.device}", {**result, "authors_s_a_seed": AUTHORS}))


if __name__ == "__main__":
    main()
