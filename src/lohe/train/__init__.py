"""Training: a `Run` says what, `train` does it for a pack of seeds at once."""

from lohe.train.loop import Checkpoint, Outcome, Trained, assembled, check_precision, train
from lohe.train.pack import Pack
from lohe.train.run import PRECISIONS, Adam, AdamW, Run, brief, described, unusual

__all__ = [
    "PRECISIONS",
    "Adam",
    "AdamW",
    "Checkpoint",
    "Outcome",
    "Pack",
    "Run",
    "Trained",
    "assembled",
    "brief",
    "check_precision",
    "described",
    "train",
    "unusual",
]
