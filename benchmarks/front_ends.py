"""Does a model notice another front end than the published one?

The compact log-mel arrays (frames not centred, bands from 20 Hz, a floor of 1e-6 added, 8 bits)
stand in for audio that is not there. On the clips that do have audio, they are compared with the
published front end as features, and as what the paper's keyword model makes of them: the same seeds
trained on each. With --hops: the hop of 10 ms that the paper names beside the 20 ms of its code,
over the whole clip and, with as many frames as the paper has, over its first half.

    PYTHONPATH=tests python benchmarks/front_ends.py --prepare FILE   # where audio and data are
    python benchmarks/front_ends.py --features FILE --device cuda     # results/front_ends.json
    python benchmarks/front_ends.py --features FILE --hops --seeds 10     # results/hops.json
"""

import argparse
import math
import tempfile
from dataclasses import replace
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from harness import save
from lohe.experiments.recipes import keyword_spotting
from lohe.experiments.verdicts import of_sample
from lohe.measure.significance import mean_std
from lohe.models import Mechanism, Oscillator, Softmax
from lohe.tasks import Data, KeywordSpotting, LogMel
from lohe.tasks.clips import clip_files, folder_of, read_clip, which_set
from lohe.tasks.kws import assemble
from lohe.train import train

SPLITS = ("train", "valid", "test")
PUBLISHED = "published"
ARRAYS = {"stored": ("stored", 49)}  # what is compared with it: features, and frames of them
HOPS = {"10 ms, whole clip": ("hop160", 98), "10 ms, first half": ("hop160", 49)}
DECIBEL = 10 / math.log(10)  # the stored values are natural logarithms


def prepare(path: Path) -> None:
    """All kinds of features of every clip with audio, with word and split, in one file."""
    import shared_data

    kept: dict[str, torch.Tensor] = {}
    rows = shared_data.index()
    with tempfile.TemporaryDirectory() as folder:
        for word in shared_data.WORDS:
            shared_data.export_audio(Path(folder), word, rows=rows)
            files = clip_files(Path(folder) / folder_of("0.02") / word)
            place = {r["file"]: int(r["row"]) for r in rows if r["word"] == word}
            audio = torch.stack([read_clip(f, 16_000, 16_000) for f in files])
            kept[f"{PUBLISHED}.{word}"] = LogMel()(audio)
            kept[f"hop160.{word}"] = LogMel(hop=160, frames=98)(audio)
            stored = shared_data.log_mel(word)[[place[f.stem] for f in files]]
            kept[f"stored.{word}"] = (DECIBEL * stored).half()  # 8 bits of content
            kept[f"split.{word}"] = torch.tensor([SPLITS.index(which_set(f.name)) for f in files])
    save_file({name: x.contiguous() for name, x in kept.items()}, path)


def features(path: Path, others: dict[str, tuple[str, int]]) -> dict[str, Data]:
    """Data sets that are alike in all but the front end; the published one first."""
    kept = load_file(path)
    words = [name.split(".")[1] for name in kept if name.startswith("split.")]
    splits = {w: [SPLITS[k] for k in kept[f"split.{w}"].tolist()] for w in words}
    fronts = {PUBLISHED: (PUBLISHED, 49), **others}
    return {
        name: assemble({w: kept[f"{kind}.{w}"][:, :n].float() for w in words}, splits, {})
        for name, (kind, n) in fronts.items()
    }


def difference(a: Data, b: Data) -> dict[str, float]:
    """Normalised features, as a model sees them."""
    x, y = (d.train.inputs["features"].flatten() for d in (a, b))
    return {
        "rms": (x - y).square().mean().sqrt().item(),
        "correlation": torch.corrcoef(torch.stack([x, y]))[0, 1].item(),
    }


def accuracy(data: Data, attention: Mechanism, seeds: int, device: str) -> list[float]:
    """Test accuracy of each seed, the epoch chosen on the validation clips."""
    run = replace(keyword_spotting(attention), task=KeywordSpotting(words=data.names))
    trained = train(run, list(range(seeds)), data, device=device)
    return [outcome.result["test"]["accuracy"] for outcome in trained.outcomes]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--prepare", type=Path, help="write the features of clips with audio")
    parser.add_argument("--features", type=Path, help="the file that --prepare wrote")
    parser.add_argument("--hops", action="store_true", help="10 ms beside 20, not the arrays")
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    if args.prepare:
        prepare(args.prepare)
        return
    if args.features is None:
        parser.error("--features FILE is needed: what --prepare FILE wrote")
    data = features(args.features, HOPS if args.hops else ARRAYS)
    counts = data[PUBLISHED].facts["clips"]
    result: dict[str, object] = {"clips": counts, "seeds": args.seeds}
    if not args.hops:
        result["features"] = difference(*data.values())
        print(f"{sum(counts.values())} clips; normalised features differ by {result['features']}")
    for name, attention in (("softmax", Softmax()), ("oscillator", Oscillator(anchors="free"))):
        scores = {f: accuracy(d, attention, args.seeds, args.device) for f, d in data.items()}
        shown = {front: "{:.2f} ± {:.2f}".format(*mean_std(s)) for front, s in scores.items()}
        print(f"{name}: {shown}", flush=True)
        apart = {}
        for front in [front for front in data if front != PUBLISHED]:
            gap = of_sample(scores[front]) - of_sample(scores[PUBLISHED])
            low, high = gap.interval(0.95)
            apart[f"{front}_minus_{PUBLISHED}"] = {"estimate": gap.value, "low": low, "high": high}
            print(f"  {front} - {PUBLISHED} {gap.value:+.2f} [{low:+.2f}, {high:+.2f}]", flush=True)
        result[name] = {"accuracy": scores, **apart}
    print(save("hops" if args.hops else "front_ends", result))


if __name__ == "__main__":
    main()
