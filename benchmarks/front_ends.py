"""Do the compact log-mel arrays differ from the published front end in a way that a model notices?

The arrays of `shared/data` (frames not centred, bands from 20 Hz, a floor of 1e-6 added, 8 bits)
stand in for audio that is not there. On the clips that do have audio, both front ends are compared
as features, and as what the paper's keyword model makes of them: the same seeds trained on each.

    PYTHONPATH=tests python benchmarks/front_ends.py --prepare FILE   # where audio and data are
    python benchmarks/front_ends.py --features FILE --device cuda     # results/front_ends.json
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

SEEDS = list(range(50))
SPLITS = ("train", "valid", "test")
DECIBEL = 10 / math.log(10)  # the stored values are natural logarithms


def prepare(path: Path) -> None:
    """Both kinds of features of every clip with audio, with word and split, in one file."""
    import shared_data

    kept: dict[str, torch.Tensor] = {}
    rows = shared_data.index()
    with tempfile.TemporaryDirectory() as folder:
        for word in shared_data.WORDS:
            shared_data.export_audio(Path(folder), word, rows=rows)
            files = clip_files(Path(folder) / folder_of("0.02") / word)
            place = {r["file"]: int(r["row"]) for r in rows if r["word"] == word}
            audio = torch.stack([read_clip(f, 16_000, 16_000) for f in files])
            kept[f"published.{word}"] = LogMel()(audio)
            stored = shared_data.log_mel(word)[[place[f.stem] for f in files]]
            kept[f"stored.{word}"] = (DECIBEL * stored).half()  # 8 bits of content
            kept[f"split.{word}"] = torch.tensor([SPLITS.index(which_set(f.name)) for f in files])
    save_file({name: x.contiguous() for name, x in kept.items()}, path)


def features(path: Path) -> dict[str, Data]:
    """The two data sets, alike in all but the front end."""
    kept = load_file(path)
    words = [name.split(".")[1] for name in kept if name.startswith("split.")]
    splits = {w: [SPLITS[k] for k in kept[f"split.{w}"].tolist()] for w in words}
    return {
        kind: assemble({w: kept[f"{kind}.{w}"].float() for w in words}, splits, {})
        for kind in ("published", "stored")
    }


def difference(a: Data, b: Data) -> dict[str, float]:
    """Normalised features, as a model sees them."""
    x, y = (d.train.inputs["features"].flatten() for d in (a, b))
    return {
        "rms": (x - y).square().mean().sqrt().item(),
        "correlation": torch.corrcoef(torch.stack([x, y]))[0, 1].item(),
    }


def accuracy(data: Data, attention: Mechanism, device: str) -> list[float]:
    """Test accuracy of each seed, the epoch chosen on the validation clips."""
    run = replace(keyword_spotting(attention), task=KeywordSpotting(words=data.names))
    return [o.result["test"]["accuracy"] for o in train(run, SEEDS, data, device=device).outcomes]


def main() -> None:
    parser = argparse.ArgumentParser(description="Two front ends of the keyword task.")
    parser.add_argument("--prepare", type=Path, help="write the features of clips with audio")
    parser.add_argument("--features", type=Path, help="the file that --prepare wrote")
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    if args.prepare:
        prepare(args.prepare)
        return
    data = features(args.features)
    counts = data["published"].facts["clips"]
    result: dict[str, object] = {"clips": counts, "seeds": len(SEEDS)}
    result["features"] = difference(*data.values())
    print(f"{sum(counts.values())} clips; normalised features differ by {result['features']}")
    for name, attention in (("softmax", Softmax()), ("oscillator", Oscillator(anchors="free"))):
        scores = {front: accuracy(d, attention, args.device) for front, d in data.items()}
        gap = of_sample(scores["stored"]) - of_sample(scores["published"])
        low, high = gap.interval(0.95)
        apart = {"estimate": gap.value, "low": low, "high": high}
        result[name] = {"accuracy": scores, "stored_minus_published": apart}
        shown = {front: "{:.2f} ± {:.2f}".format(*mean_std(s)) for front, s in scores.items()}
        interval = f"{gap.value:+.2f} [{low:+.2f}, {high:+.2f}]"
        print(f"{name}: {shown}, stored - published {interval}", flush=True)
    print(save("front_ends", result))


if __name__ == "__main__":
    main()
