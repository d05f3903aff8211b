"""Runs that are missing from a store are trained, in packs, and their records added."""

import platform
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from lohe.experiments import weights
from lohe.experiments.store.checkpoints import Checkpoint
from lohe.experiments.store.locks import Busy, Lost
from lohe.experiments.store.records import Record, key
from lohe.experiments.store.store import Store
from lohe.experiments.tables import seed_ranges
from lohe.tasks import Data, Task, load_aloud
from lohe.tasks.progress import Progress, silent
from lohe.train import Run, Trained, brief, train, unusual
from lohe.version import code_version

LATER = "left for later"
# what happened, of which recipe, epochs done, of how many
Listener = Callable[[str, "Pack", int, int], None]
# the metrics of each seed of a pack after an epoch
Logger = Callable[["Pack", int, list[dict[str, float]]], None]


@dataclass(frozen=True)
class Pack:
    """Seeds of one recipe that are trained together."""

    run: Run
    seeds: list[int]

    @property
    def runs(self) -> list[Run]:
        return [replace(self.run, seed=seed) for seed in self.seeds]

    @property
    def name(self) -> str:
        """For people: task, mechanism, what else is unusual about the model, seeds."""
        model = self.run.model
        what = type(self.run.task).__name__, brief(getattr(model, "attention", None))
        options = unusual(model, without=("attention", "dropout"))
        return ", ".join(x for x in (*what, options, f"seeds {seed_ranges(self.seeds)}") if x)


def packs(runs: Iterable[Run], size: int) -> list[Pack]:
    """Runs grouped by recipe, each seed once, in the order in which the first of each appears."""
    groups: dict[str, dict[int, int]] = {}  # seeds, and where they appear
    for n, run in enumerate(runs := list(runs)):
        groups.setdefault(key(run.recipe()), {}).setdefault(run.seed, n)
    found = dict[int, Pack]()
    for group in groups.values():
        seeds, places = list(group), list(group.values())
        first = replace(runs[places[0]], seed=0)
        for n in range(0, len(seeds), size):
            found[places[n]] = Pack(first, seeds[n : n + size])
    return [found[place] for place in sorted(found)]


def missing(
    runs: Iterable[Run], store: Store, size: int, with_weights: Collection[Run] = ()
) -> list[Pack]:
    """What is still to be trained."""
    found, with_weights = [], frozenset(with_weights)
    for pack in packs(runs, size):
        if seeds := _todo(pack, store, with_weights):
            found.append(Pack(pack.run, seeds))
    return found


def _todo(
    pack: Pack,
    store: Store,
    with_weights: Collection[Run],
    data: Callable[[Run], Data] | None = None,
) -> list[int]:
    """Seeds without a record, or whose weights are wanted and are not there (of this `data`)."""
    without = store.missing(pack.run.recipe(), pack.seeds)
    for seed in pack.seeds:
        run = replace(pack.run, seed=seed)
        if seed not in without and run in with_weights and not weights.kept(store, run, data):
            without.append(seed)
    return [seed for seed in pack.seeds if seed in without]


def complete(
    runs: Iterable[Run],
    store: Store,
    *,
    device: str = "cpu",
    size: int = 10,
    root: Path | None = None,
    progress: Progress = silent,
    listen: Listener = lambda what, pack, done, of: None,
    load: Callable[[Task], Data] | None = None,
    keep: Callable[[Pack, Trained], None] = lambda pack, trained: None,
    with_weights: Collection[Run] = (),
    log: Logger = lambda pack, epoch, metrics: None,
    allowed: Callable[[Pack], bool] = lambda pack: True,
) -> Iterator[Pack]:
    """Train what is missing, one pack after the other; yields each as its records are written.

    Seeds that another process is training are left to it, also those that it took from us while we
    seemed dead. Interrupted at any moment, the next call
    continues from the last epoch. The weights of `with_weights` are kept; a run that has a record
    but no weights is trained again for them, and its record stays. A pack that is not `allowed` is
    left for another time. `progress` hears of the loading of data, `listen` of everything else.
    """
    code_version()  # now: records name the code that they began with
    load = load or (lambda task: load_aloud(task, root, progress))
    loaded: dict[Task, Data] = {}
    with_weights = frozenset(with_weights)

    def data_of(run: Run) -> Data:
        if run.task not in loaded:
            loaded[run.task] = load(run.task)
        return loaded[run.task]

    waiting = deque(packs(runs, size))
    while waiting:
        pack = waiting.popleft()
        recipe = pack.run.recipe()
        if not _todo(pack, store, with_weights, data_of):
            _tidy(pack, store)
            listen("cached", pack, pack.run.epochs, pack.run.epochs)
            continue
        try:
            with store.claim(recipe, pack.seeds) as claim:
                todo = _todo(pack, store, with_weights, data_of)
                if not todo:  # another process has just finished it
                    listen("cached", pack, pack.run.epochs, pack.run.epochs)
                    continue
                now = Pack(pack.run, todo)
                if not allowed(now):
                    listen(LATER, now, 0, pack.run.epochs)
                    continue
                if pack.run.task not in loaded:
                    listen("loading", now, 0, pack.run.epochs)
                data = data_of(pack.run)
                if others := _begun_otherwise(now, store):
                    listen(f"starts over: {others}", now, 0, pack.run.epochs)
                checkpoint = store.checkpoint(recipe, todo, claim.check)
                if earlier := checkpoint.earlier():
                    said = f"what {', '.join(earlier)} began, which may compute otherwise"
                    listen(f"continues: {said}", now, 0, pack.run.epochs)
                trained = _train(now, data, checkpoint, device, listen, log)
                claim.check()
                keep(now, trained)
                wanted = [s for s in todo if replace(pack.run, seed=s) in with_weights]
                weights.keep(store, trained, wanted, data)
                new = records(now, trained, data, device, earlier)
                store.add(new, name=file_name(pack.run))
                checkpoint.clear()
                store.drop_checkpoints(recipe, held=pack.seeds)
                yield now
        except Busy as busy:
            held = [seed for seed in pack.seeds if seed not in busy.free]
            listen(f"left to others: {busy}", Pack(pack.run, held), 0, pack.run.epochs)
            if busy.free:
                waiting.appendleft(Pack(pack.run, busy.free))
        except Lost as lost:
            listen(f"left to others: {lost}", pack, 0, pack.run.epochs)


def _tidy(pack: Pack, store: Store) -> None:
    """Delete checkpoints whose run was killed just before it could; what must stay, stays."""
    recipe = pack.run.recipe()
    with suppress(Busy, OSError), store.claim(recipe, pack.seeds):
        store.checkpoint(recipe, pack.seeds).clear()
        store.drop_checkpoints(recipe, held=pack.seeds)


def _begun_otherwise(pack: Pack, store: Store) -> str:
    """What is said where the seeds were begun in packs of another size; nothing where in this one.

    A pack shares its dropout, so that a part of one cannot be continued.
    """
    begun = [seeds for _, seeds in store.begun(pack.run.recipe()) if set(seeds) & set(pack.seeds)]
    if not begun or pack.seeds in begun:
        return ""
    packs = " and of ".join(f"seeds {seed_ranges(seeds)}" for seeds in begun)
    return (
        f"there is a checkpoint of {packs}, trained at once. To continue it, stop and give the "
        "--pack and --seeds that it was begun with."
    )


def _train(
    pack: Pack, data: Data, checkpoint: Checkpoint, device: str, listen: Listener, log: Logger
) -> Trained:
    def report(epoch: int, metrics: list[dict[str, float]]) -> None:
        log(pack, epoch, metrics)
        listen("training", pack, epoch + 1, pack.run.epochs)

    listen("training", pack, 0, pack.run.epochs)
    return train(
        pack.run,
        pack.seeds,
        data,
        device=device,
        checkpoint=checkpoint,
        # on a GPU an epoch takes seconds, and writing hundreds of megabytes takes as long
        checkpoint_every=30.0 if device.startswith("cuda") else 0.0,
        report=report,
    )


def records(
    pack: Pack, trained: Trained, data: Data, device: str, begun_by: Sequence[str] = ()
) -> list[Record]:
    """One record a seed; the wall time is the pack's, shared among its seeds."""
    return [
        Record(
            recipe=pack.run.recipe(),
            seed=outcome.seed,
            code_version=code_version(),
            data_checksum=data.checksum,
            environment=environment(device),
            result={f"{s}.{m}": x for s, ms in outcome.result.items() for m, x in ms.items()},
            wall_seconds=trained.seconds / len(pack.seeds),
            curve=[{k: _short(v) for k, v in line.items()} for line in outcome.curve],
            notes={"pack": seed_ranges(pack.seeds), "epoch": outcome.epoch, "data": _facts(data)}
            | ({"parts": _rounded(outcome.parts)} if outcome.parts else {})
            | ({"begun_by": list(begun_by)} if begun_by else {}),
        )
        for outcome in trained.outcomes
    ]


def environment(device: str) -> dict[str, Any]:
    """Where it ran."""
    name = torch.cuda.get_device_name(device) if device.startswith("cuda") else platform.machine()
    return {
        "device": f"{device} ({name})",
        "torch": torch.__version__,
        "python": platform.python_version(),
        "threads": torch.get_num_threads(),
        "when": time.strftime("%Y-%m-%d", time.gmtime()),
    }


def file_name(run: Run) -> str:
    """The readable part of a record file's name."""
    attention = type(getattr(run.model, "attention", None)).__name__
    return f"{type(run.task).__name__}-{attention}".lower()


def _short(x: float) -> float:
    """A curve is for looking at: five significant digits keep the files small."""
    return float(f"{x:.5g}")


def _rounded(parts: dict[str, dict[str, list[float]]]) -> dict[str, dict[str, list[float]]]:
    """Sums over many words: nine significant digits are more than float32 gave them."""
    return {
        split: {name: [float(f"{x:.9g}") for x in values] for name, values in metrics.items()}
        for split, metrics in parts.items()
    }


def _facts(data: Data) -> dict[str, Any]:
    """Where the examples came from, and how many; not what features are normalised by."""
    return {k: v for k, v in data.facts.items() if k not in ("task", "normalised")}
