"""What the learning rate does to each mechanism: the searches of both sizes as a picture."""

import math
from collections.abc import Mapping, Sequence

from lohe.experiments.contest import choose, large
from lohe.experiments.contest.choose import Standing
from lohe.experiments.contest.tables import on_later
from lohe.experiments.contest.trials import FAMILIES, OURS, SHARED, STAGES, Configuration, RunsOf
from lohe.experiments.evidence import Evidence
from lohe.experiments.item import Figure
from lohe.models import Softmax
from lohe.tasks import WikiText2Articles
from lohe.train import Run

Points = dict[float, float]  # perplexity by learning rate


def panels(evidence: Evidence) -> dict[str, dict[str, Points]]:
    """By size and family; those of several learning rates."""
    searches: list[tuple[RunsOf, dict[str, list[Standing]]]]
    searches = [(STAGES["rates"].runs, {f: choose.in_search(evidence, f) for f in FAMILIES})]
    if chosen := choose.chosen(evidence):
        there = {f: large.in_search(evidence, chosen, f) for f in chosen.families}
        searches.append((large.in_rates, there))
    found = {
        _size(runs_of(Configuration(Softmax()))): _by_family(evidence, there, runs_of)
        for runs_of, there in searches
    }
    return {size: points for size, points in found.items() if points}


def _size(runs: Sequence[Run]) -> str:
    m, task = runs[0].model, runs[0].task
    assert isinstance(task, WikiText2Articles)
    return f"{m.layers} layers, d_model {m.d_model}, T = {task.tokens}; {len(runs)} seeds"


def _by_family(
    evidence: Evidence,
    there: Mapping[str, Sequence[Standing]],
    runs_of: RunsOf,
) -> dict[str, Points]:
    """Second half of validation, of the setting that is the best on the first, with the smaller
    dropout; without what diverged or lacks a seed."""
    found: dict[str, Points] = {}
    for family, standings in there.items():
        points: Points = {}
        for s in standings:
            same = s.configuration.mechanism == standings[0].configuration.mechanism
            same &= s.configuration.positions == standings[0].configuration.positions
            if same and s.configuration.dropout == min(SHARED["dropout"]) and s.complete:
                later = on_later(evidence.of(runs_of(s.configuration)))
                if math.isfinite(s.mean) and math.isfinite(later):
                    points[s.configuration.learning_rate] = later
        if len(points) > 1:
            found[family] = dict(sorted(points.items()))
    return found


def figure(evidence: Evidence) -> Figure:
    """Perplexity against the learning rate, a panel a size, a curve a family."""
    import matplotlib.pyplot as plt

    from lohe.viz.curves import by_rate, rate_axis
    from lohe.viz.style import BLUE, GREEN, GREY, ORANGE, PURPLE, RED, SKY, legend_below

    looks = dict(zip(FAMILIES, (BLUE, GREY, SKY, ORANGE, RED, PURPLE, GREEN), strict=False))
    there = panels(evidence)
    drawn, axes = plt.subplots(
        1, len(there), figsize=(3.6 + 3.0 * len(there), 4.2), squeeze=False, layout="constrained"
    )
    for ax, (size, by_family) in zip(axes.flat, there.items(), strict=True):
        for family, points in by_family.items():
            wide = 2.6 if family == OURS else 1.3
            by_rate(ax, points, color=looks[family], width=wide, label=family)
        rate_axis(ax, sorted(set().union(*by_family.values())))
        ax.set_title(size)
    axes.flat[0].set_ylabel("perplexity, validation (second half), strict")
    legend_below(drawn, ncols=2)
    return drawn
