"""The pictures of the report: results in, PNG files out."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from torch import Tensor

from lohe.demo.plan import OSCILLATOR, SOFTMAX
from lohe.demo.sentence import ROLES, Sentence
from lohe.demo.verdicts import KINDS, keyword_spotting
from lohe.experiments.reported import published
from lohe.experiments.store.records import Record
from lohe.experiments.studies.robust.physics import HORIZONS, SCALES, Measured, by_seed
from lohe.experiments.studies.sva.agreement_cohort import FAILS_BELOW
from lohe.viz import curves, style
from lohe.viz.html import Picture

COLORS = {SOFTMAX: style.SOFTMAX, OSCILLATOR: style.OSCILLATOR}


@contextmanager
def panel(path: Path, size: tuple[float, float] = (4.8, 3.7)) -> Iterator[Axes]:
    """Axes of a size that a phone shows well; saved when the block ends."""
    with style.drawing():
        import matplotlib.pyplot as plt

        figure, ax = plt.subplots(figsize=size, layout="constrained")
        yield ax
        style.save(figure, path)


def training(records: Mapping[str, list[Record]], folder: Path) -> list[Picture]:
    """Loss and accuracy on hard sentences, epoch by epoch."""
    loss, hard = folder / "training-loss.png", folder / "training-hard.png"
    with panel(loss) as ax:
        for name, group in records.items():
            curves.by_epoch(ax, _curve(group, "loss"), color=COLORS[name], label=name)
        ax.set(title="Training loss, one line a seed", ylabel="cross-entropy")
        ax.legend()
    with panel(hard) as ax:
        for name, group in records.items():
            curves.by_epoch(ax, _curve(group, "hard"), color=COLORS[name], label=name)
        curves.level(ax, FAILS_BELOW, f"a run fails below {FAILS_BELOW:.0f} %")
        ax.set(title="Accuracy on hard sentences", ylabel="validation accuracy, %")
        ax.legend(loc="lower right")
    return [
        Picture(loss, "Training loss falls over the epochs for both mechanisms."),
        Picture(hard, "Accuracy on hard validation sentences over the epochs."),
    ]


def settling(measured: list[Measured], folder: Path) -> list[Picture]:
    """Change of accuracy against the horizon, with the published values."""
    overall, hard = folder / "horizon-overall.png", folder / "horizon-hard.png"
    color, label = COLORS[OSCILLATOR], "ours: mean, and each seed"
    with panel(overall) as ax:
        values = _changes(measured, "settling", "overall")
        curves.changes(ax, HORIZONS, values, color=color, label=label)
        curves.reference(ax, HORIZONS, published("table9")["sva_pp"], "published, five seeds")
        ax.set(title="All sentences", xlabel="horizon", ylabel="change of accuracy, pp")
        ax.legend(loc="lower right")
    with panel(hard) as ax:
        values = _changes(measured, "settling", "hard")
        curves.changes(ax, HORIZONS, values, color=color, label=label)
        ax.set(title="Hard sentences only", xlabel="horizon", ylabel="change of accuracy, pp")
        ax.legend(loc="lower right")
    return [
        Picture(overall, "Accuracy lost to a short horizon, all sentences, ours and published."),
        Picture(hard, "Accuracy lost to a short horizon, hard sentences."),
    ]


def robustness(measured: list[Measured], folder: Path) -> list[Picture]:
    """Change of accuracy against the size of each imperfection, on one scale."""
    found = []
    values = {kind: _changes(measured, kind, "overall") for kind in KINDS}
    least = min(v.min() for v in values.values())
    most = max(v.max() for v in values.values())
    margin = 0.05 * (most - least) + 0.1
    for kind, label in KINDS.items():
        path = folder / f"robustness-{kind}.png"
        with panel(path) as ax:
            color = COLORS[OSCILLATOR]
            curves.changes(ax, SCALES, values[kind], color=color, label="ours: mean, each seed")
            curves.reference(ax, SCALES, keyword_spotting(kind), "published, keyword spotting")
            ax.set(title=label.capitalize(), xlabel="size s", ylabel="change of accuracy, pp")
            ax.set_ylim(min(least, -1) - margin, max(most, 0.2) + margin)
            ax.legend(loc="lower left")
        found.append(Picture(path, f"Change of accuracy under {label}."))
    return found


def attention(means: Mapping[str, Tensor], sentence: Sentence, folder: Path) -> list[Picture]:
    """What the verb attends to: both mechanisms, then one sentence on its way to rest."""
    both, settling = folder / "verb-mechanisms.png", folder / "verb-settling.png"
    with panel(both) as ax:
        weights = np.stack([w.numpy() for w in means.values()])
        colors = [COLORS[name] for name in means]
        curves.words(ax, ROLES, weights, labels=list(means), colors=colors)
        ax.set_title("Attention of the verb, mean of all hard sentences")
        ax.legend()
    with panel(settling) as ax:
        weights = np.stack([*(w.numpy() for w in sentence.early.values()), sentence.rest.numpy()])
        labels = [*(f"horizon {t:g}" for t in sentence.early), "at rest"]
        colors = [style.GREY, style.SKY, style.OSCILLATOR]
        curves.words(ax, sentence.words, weights, labels=labels, colors=colors)
        ax.set_title("One sentence, oscillators on their way to rest")
        ax.legend()
    return [
        Picture(both, "Attention of the verb to subject, distractor and the rest."),
        Picture(settling, f"Attention of the verb at two horizons and at rest: {sentence.text}"),
    ]


def _curve(records: list[Record], metric: str) -> np.ndarray:
    return np.array([[line[metric] for line in record.curve] for record in records])


def _changes(measured: list[Measured], kind: str, metric: str) -> np.ndarray:
    levels = HORIZONS if kind == "settling" else SCALES
    return np.array([by_seed(measured, kind, level, metric) for level in levels]).T
