"""Who won: the tests that the protocol states, on numbers of the test articles.

Perplexities are compared by their logarithms, nats of a word: a difference of d is a factor of
exp(d).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from lohe.experiments.contest.trials import STAGES, Configuration
from lohe.experiments.evidence import Evidence
from lohe.experiments.store.records import Record
from lohe.experiments.verdicts import Estimate, holm, of_sample
from lohe.measure.significance import Difference, student
from lohe.tasks.wikitext2 import Protocol

TEST = "test.nats"
DRAWS = 10_000


@dataclass(frozen=True)
class Comparison:
    """Log perplexity of one configuration minus another's, three ways.

    `welch`: two independent samples of seeds, the protocol's test. `paired`: by seed, which shares
    the order of batches and the first embeddings. `articles`: 95 % of a bootstrap over the seeds
    of each and over the test articles of both.
    """

    welch: Estimate
    paired: Difference | None
    articles: tuple[float, float] | None


def records(
    evidence: Evidence, configuration: Configuration, protocol: Protocol, stage: str = "confirm"
) -> list[Record]:
    """What was recorded of the stage's seeds."""
    runs = STAGES[stage].runs(configuration, protocol=protocol)
    wanted = {run.seed for run in runs}
    return [record for record in evidence.records(runs[0]) if record.seed in wanted]


def compare(a: Sequence[Record], b: Sequence[Record]) -> Comparison | None:
    """a minus b on the test articles; None where either has fewer than two seeds, or diverged."""
    ours, theirs = ({r.seed: r.result.get(TEST, math.nan) for r in x} for x in (a, b))
    values = [*ours.values(), *theirs.values()]
    if min(len(ours), len(theirs)) < 2 or not all(map(math.isfinite, values)):
        return None
    both = sorted(ours.keys() & theirs.keys())
    paired = student([ours[s] - theirs[s] for s in both], 0.0) if len(both) > 1 else None
    welch = of_sample(list(ours.values())) - of_sample(list(theirs.values()))
    return Comparison(welch, paired, _articles(a, b))


def _articles(a: Sequence[Record], b: Sequence[Record]) -> tuple[float, float] | None:
    parts = [[r.notes.get("parts", {}).get("test") for r in records] for records in (a, b)]
    if not all(part for side in parts for part in side):
        return None
    targets = np.array(parts[0][0]["article_targets"])
    nll = [np.array([part["article_nll"] for part in side]) for side in parts]
    return two_level(nll[0], nll[1], targets, np.random.default_rng(0))


def two_level(
    a: Float[np.ndarray, "seeds_a article"],
    b: Float[np.ndarray, "seeds_b article"],
    targets: Float[np.ndarray, " article"],
    rng: np.random.Generator,
    draws: int = DRAWS,
) -> tuple[float, float]:
    """95 % percentile interval of the difference in log perplexity, a minus b.

    In each draw the seeds of a, those of b and the articles are drawn anew with replacement, the
    articles for both at once: log perplexity is Σ nll / Σ targets over the drawn articles, a mean
    over the drawn seeds.
    """

    def shares(n: int) -> Float[np.ndarray, "draws n"]:
        return rng.multinomial(n, np.full(n, 1 / n), size=draws) / n

    mean_a, mean_b = shares(len(a)) @ a, shares(len(b)) @ b  # (draws, article)
    articles = shares(len(targets))
    difference = (articles * (mean_a - mean_b)).sum(axis=1) / (articles @ targets)
    low, high = np.percentile(difference, [2.5, 97.5])
    return float(low), float(high)


def percent(nats: float) -> float:
    """A difference of log perplexities as a change of perplexity in per cent.

    >>> round(percent(-0.02), 2)
    -1.98
    """
    return 100 * math.expm1(nats)


def p_values(comparisons: Mapping[str, Comparison | None]) -> dict[str, float]:
    """Holm's correction of Welch's p over all that there are."""
    there = {name: c.welch.p for name, c in comparisons.items() if c is not None}
    return dict(zip(there, holm(list(there.values())), strict=True))
