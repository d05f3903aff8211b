"""Training curves for TensorBoard, where its package is installed; nothing here depends on it."""

from pathlib import Path
from typing import Any

from lohe.experiments.runner import Pack, file_name
from lohe.experiments.store.records import key


class Scalars:
    """A `runner.Logger`: FOLDER/<recipe>/seed-<n> gets the metrics of every epoch."""

    def __init__(self, folder: Path):
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise ValueError(
                "--tensorboard needs the package tensorboard, which is not installed: "
                "pip install tensorboard. The records hold the same curves without it."
            ) from None
        self.folder, self._open = folder, SummaryWriter
        self._pack: Pack | None = None
        self._writers: dict[Path, Any] = {}

    def __call__(self, pack: Pack, epoch: int, metrics: list[dict[str, float]]) -> None:
        if pack != self._pack:  # the last one may have stopped early
            self.close()
            self._pack = pack
        run = self.folder / f"{file_name(pack.run)}-{key(pack.run.recipe())}"
        for seed, line in zip(pack.seeds, metrics, strict=True):
            place = run / f"seed-{seed}"
            if place not in self._writers:
                # a killed run continues from a checkpoint: what it had logged after that is void
                self._writers[place] = self._open(str(place), purge_step=epoch + 1)
            for name, value in line.items():
                self._writers[place].add_scalar(name, value, epoch + 1)
            self._writers[place].flush()  # else the next two minutes die with the process
        if epoch + 1 == pack.run.epochs:
            self.close()

    def close(self) -> None:
        for writer in self._writers.values():
            writer.close()
        self._writers.clear()
