"""The few trained models that are part of the package: made from a store, by

    python -m lohe.experiments.shipping --store results --data ROOT

Parameters are rounded to float16. Each file says what the model scored before and after that, and
carries its vocabulary, and what features were normalised by, so that it can be used where the
corpus is not.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import safetensors
import safetensors.torch
import torch
import typer
from torch import Tensor, nn

from lohe.experiments import weights
from lohe.experiments.measures import Bench
from lohe.experiments.setting import COMPACT, Setting
from lohe.experiments.store import files
from lohe.experiments.store.store import Store
from lohe.experiments.studies.robust.physics import scores
from lohe.experiments.studies.sva.agreement_cohort import AS_DEFINED, AS_PUBLISHED
from lohe.models import Oscillator, Softmax
from lohe.tasks import Data, Split
from lohe.train import Run, assembled

FOLDER = Path(__file__).parent / weights.PACKAGED
LIMIT = 12 * 2**20  # bytes, all files together
SVA_SEEDS = range(5)


def shipped() -> Iterator[Run]:
    """What is to be part of the package; those that are not trained yet are left out."""
    setting, published = Setting(chosen=COMPACT), Oscillator(anchors="free")
    for mechanism in (Softmax(), AS_PUBLISHED, AS_DEFINED):
        yield from (setting.agreement(mechanism, seed) for seed in SVA_SEEDS)
    yield setting.keyword_spotting("ten words", published)
    yield setting.wikitext2(published)
    yield setting.tinystories(published)


def ship(run: Run, bench: Bench, folder: Path = FOLDER) -> dict[str, float]:
    """Write the run's parameters in float16; by how much each metric changes by that.

    A file that says the same already is left alone: safetensors orders metadata by chance.
    """
    found = weights.find(bench.store, run, bench.data)
    if found is None:
        raise FileNotFoundError(f"No weights of {weights.describe(run)} in {bench.store.root}.")
    data = bench.data(run)
    rounded = {name: x.half() for name, x in found.tensors.items()}
    before, after = (
        scores(assembled(run, data, {n: x.float() for n, x in t.items()}), run.task, data.valid)
        for t in (found.tensors, rounded)
    )
    shapes = {name: list(rows.shape[1:]) for name, rows in data.train.inputs.items()}
    said = {
        "lohe": "weights",
        "seed": str(run.seed),
        "recipe": json.dumps(run.recipe()),
        "result": json.dumps({f"valid.{name}": x for name, x in after.items()}),
        "before_rounding": json.dumps({f"valid.{name}": x for name, x in before.items()}),
        "names": json.dumps(data.names),
        "shapes": json.dumps(shapes),
    }
    if "normalised" in data.facts:
        said["normalised"] = json.dumps(data.facts["normalised"])
    folder.mkdir(exist_ok=True)
    if not _holds(folder / weights.name(run), rounded, said):
        files.write(folder / weights.name(run), safetensors.torch.save(rounded, metadata=said))
    return {name: after[name] - before[name] for name in before}


def model(run: Run) -> tuple[nn.Module, tuple[str, ...]]:
    """A packaged model, ready to be used, and its vocabulary; no corpus is needed."""
    tensors, said = _read(_packaged(run))
    names = tuple(json.loads(said["names"]))
    inputs = {name: torch.empty(0, *s) for name, s in json.loads(said["shapes"]).items()}
    data = Data({"train": Split(inputs, {})}, names, checksum="")
    return assembled(run, data, {name: x.float() for name, x in tensors.items()}), names


def about(run: Run) -> dict[str, Any]:
    """What the file of a packaged model says: recipe, scores, vocabulary, normalisation."""
    _, said = _read(_packaged(run))
    return {name: text if name == "lohe" else json.loads(text) for name, text in said.items()}


def _packaged(run: Run) -> Path:
    path = FOLDER / weights.name(run)
    if not path.is_file():
        raise FileNotFoundError(f"{weights.describe(run)} is not part of the package.")
    return path


def _read(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    with safetensors.safe_open(path, framework="pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}, file.metadata()  # noqa: SIM118


def _holds(path: Path, tensors: Mapping[str, Tensor], said: Mapping[str, str]) -> bool:
    """Whether the file is there, with these tensors and this about them."""
    if not path.is_file():
        return False
    there, words = _read(path)
    same = there.keys() == tensors.keys() and words == said
    return same and all(torch.equal(there[name], x) for name, x in tensors.items())


def main(
    store: Annotated[Path, typer.Option(help="Store with the weights.")] = Path("results"),
    data: Annotated[Path | None, typer.Option(help="Data root; else $LOHE_DATA.")] = None,
) -> None:
    """Write the packaged models, and print what rounding to float16 changes."""
    bench = Bench(Store(store), root=data)
    for run in shipped():
        if not weights.kept(bench.store, run):
            typer.echo(f"not trained yet: {weights.describe(run)}")
            continue
        change = ship(run, bench)
        said = ", ".join(f"{name} {x:+.2g}" for name, x in change.items())
        typer.echo(f"{weights.describe(run)}: {said}")
    size = sum(path.stat().st_size for path in FOLDER.glob("*.safetensors"))
    typer.echo(f"{size / 2**20:.1f} of {LIMIT / 2**20:.0f} MiB")
    if size > LIMIT:
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
