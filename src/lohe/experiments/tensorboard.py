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
        self._writers: dict[Path, Any] = {}

    def __call__(self, pack: Pack, epoch: int, metrics: list[dict[str, float]]) -> None:
        run = self.folder / f"{file_name(pack.run)}-{key(pack.run.recipe())}"
        for seed, line in zip(pack.seeds, metrics, strict=True):
            place = run / f"seed-{seed}"
            if place not in self._writers:
                self._writers[place] = self._open(str(place))
            for name, value in line.items():
                self._writers[place].add_scalar(name, value, epoch + 1)
        if epoch + 1 == pack.run.epochs:
            self.close()

    def close(self) -> None:
        for writer in self._writers.values():
            writer.close()
        self._writers.clear()
