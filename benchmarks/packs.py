"""How much faster is a pack of seeds than one after the other?

    python benchmarks/packs.py --device cpu                  # two minutes; results/packs-cpu.json
    python benchmarks/packs.py --device cuda --data ROOT     # minutes; results/packs-cuda.json
    python benchmarks/packs.py --device cpu --quick          # few steps, writes nothing

Table 2's recipe, softmax and the oscillator as published, in our own loop; one seed at a time is a
pack of one. Ratio = seeds x t(one) / t(pack), of training steps (CPU) or of whole runs (GPU).

CPU: packs of 1, 5 and 10 take 20 steps in turns, so that a busy moment of the machine hits all.
GPU: 50 seeds x 20 epochs in full, and one seed. With --data, the root of an imported WikiText-2,
also 5 seeds x 30 epochs of Table 4 in float32 and TF32: a few epochs are timed and extrapolated,
with --full all are run. The authors' wall clock on their machine stands beside.

No clock for wrong answers: first, a pack must end where its seeds end alone, in float64.
"""

import argparse
import statistics
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import torch

from harness import save, spread
from lohe.experiments.recipes import agreement, wikitext2
from lohe.models import Mechanism, Oscillator, Softmax
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
STEPS, TURNS = 20, 7  # steps of one turn; the first two turns are not counted
TIMED_EPOCHS = 4  # of an extrapolated run; the first is counted apart
# REPRODUCTION.md: the authors' wall clock for a seed, on Apple hardware (MPS), in seconds
AUTHORS = {"SVA": "about 60", "WikiText-2": "300 to 1800"}
AGREE = 1e-10  # float64 rounding of a small gradient over Adam's 1e-8, a few steps of 5e-4


def check(data: Data, device: str) -> None:
    for name, attention in SVA_MECHANISMS.items():
        # six batches: on a GPU the last three are replayed from the graph
        run = replace(agreement(attention), epochs=1, limit=384, precision="float64")
        run = replace(run, model=replace(run.model, dropout=0.0))
        together = train(run, [0, 1, 2], data, device=device).parameters
        for seed in range(3):
            alone = train(run, [seed], data, device=device).parameters
            gap = max((together[k][seed] - alone[k][0]).abs().max().item() for k in alone)
            if not gap < AGREE:
                raise SystemExit(f"{name}: a pack and its seed {seed} differ by {gap:.1e}")


def turns(run: Run, data: Data, sizes: tuple[int, ...], steps: int) -> dict[int, list[float]]:
    """Seconds of a training step for each size of pack, on the CPU, in turns."""
    packs = {size: Pack(run, list(range(size)), data, torch.device("cpu")) for size in sizes}
    steppers = {n: Stepper(p, cosine(run, run.steps(data))) for n, p in packs.items()}
    times: dict[int, list[float]] = {size: [] for size in sizes}
    for _ in range(TURNS):
        for size, stepper in steppers.items():
            order = packs[size].order(len(data.train))[:, : steps * run.batch]
            start = time.perf_counter()
            stepper.epoch(0, order, run.batch)
            times[size].append((time.perf_counter() - start) / steps)
    return {size: found[2:] for size, found in times.items()}


def on_cpu(data: Data, quick: bool) -> list[dict[str, object]]:
    rows = []
    steps = 4 if quick else STEPS
    print(f"{'':12} {'seeds':>5} {'a step':>9} {'ratio':>6}")
    for name, attention in SVA_MECHANISMS.items():
        times = turns(agreement(attention), data, (1, *SIZES["cpu"]), steps)
        one = statistics.median(times[1])
        for size, found in times.items():
            ratio = size * one / statistics.median(found)
            rows.append({"mechanism": name, "seeds": size, "step_s": spread(found), "ratio": ratio})
            step = 1e3 * statistics.median(found)
            print(f"{name:12} {size:5} {step:6.1f} ms {ratio:6.2f}", flush=True)
    return rows


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
