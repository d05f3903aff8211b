"""Who won: the tests that the protocol states, on numbers of the test articles.

Perplexities are compared by their logarithms, nats of a word: a difference of d is a factor of
exp(d).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from jaxtyping import Float

from lohe.experiments.contest.divergence import has_diverged
from lohe.experiments.contest.stages import (
    Chosen,
    controls,
    in_both_protocols,
    stage_of,
    to_confirm,
)
from lohe.experiments.contest.trials import STAGES, Configuration
from lohe.experiments.evidence import Evidence
from lohe.experiments.store.records import Record
from lohe.experiments.verdicts import NO_RECORDS, Estimate, holm, of_sample
from lohe.measure.significance import widening
from lohe.tasks.wikitext2 import Protocol

TEST = "test.nats"
DRAWS = 10_000
BEST = "the best softmax"


@dataclass(frozen=True)
class Undecided:
    """Why there is no comparison, and whether none will ever be: no run is repeated."""

    why: str
    for_good: bool = False


@dataclass(frozen=True)
class Comparison:
    """Log perplexity of one configuration minus another's, three ways.

    `welch`: two independent samples of seeds, the protocol's test. `paired`: by seed, which shares
    the order of batches and the first embeddings. `articles`: 95 % of a bootstrap over the seeds
    of each and over the test articles of both.
    """

    welch: Estimate
    paired: Estimate | None
    articles: tuple[float, float] | None


Rivals = Mapping[str, Comparison | Undecided]  # one of ours against each, by name


def against(
    ours: Mapping[str, Sequence[Record]],
    theirs: Mapping[str, Sequence[Record]],
    planned: tuple[int, int],
) -> dict[str, Rivals]:
    """Each of ours against each rival, by name."""
    return {
        name: {rival: compare(a, b, (name, rival), planned) for rival, b in theirs.items()}
        for name, a in ours.items()
    }


def complete(rivals: Rivals) -> bool:
    """Whether all seeds of it and of every rival are there, or never will be."""
    return all(isinstance(c, Comparison) or c.for_good for c in rivals.values())


def better_than_all(rivals: Rivals) -> float:
    """p of that it is better than each: the largest of Welch's, 1 where it is not ahead of one.

    All have to be rejected, each at the level itself: no correction for that they are several.
    """
    return max(
        c.welch.p if isinstance(c, Comparison) and c.welch.value < 0 else 1.0
        for c in rivals.values()
    )


def better_p_values(found: Mapping[str, Rivals]) -> dict[str, float]:
    """That each of ours is better than all its rivals, Holm-corrected over ours."""
    return dict(zip(found, holm([better_than_all(x) for x in found.values()]), strict=True))


def records(
    evidence: Evidence, configuration: Configuration, protocol: Protocol, stage: str = ""
) -> list[Record]:
    """What was recorded of the stage's seeds; without a stage of that which confirms it."""
    stage = stage or stage_of(configuration)
    return evidence.of(STAGES[stage].runs(configuration, protocol=protocol))


def diverged(records: Sequence[Record]) -> list[int]:
    """The seeds that diverged in training, or have no finite score on test."""
    return [r.seed for r in records if has_diverged(r) or TEST not in r.result]


def lost(found: Mapping[str, Sequence[int]]) -> Undecided | None:
    """What is said where some of these models have seeds that diverged."""
    parts = [f"seed {', '.join(map(str, s))} of {name}" for name, s in found.items() if s]
    return Undecided(f"undecided: {' and '.join(parts)} diverged", True) if parts else None


def compare(
    a: Sequence[Record],
    b: Sequence[Record],
    names: tuple[str, str],
    planned: tuple[int, int],
) -> Comparison | Undecided:
    """a minus b on the test articles; or why there is none: seeds that diverged, or lack."""
    sides = dict(zip(names, (a, b), strict=True))
    if for_good := lost({name: diverged(side) for name, side in sides.items()}):
        return for_good
    if not a:
        return Undecided(NO_RECORDS)
    for (name, side), wanted in zip(sides.items(), planned, strict=True):
        if len(side) < wanted:
            return Undecided(f"{name} has {len(side)} of {wanted} seeds")
    ours, theirs = ({r.seed: r.result[TEST] for r in x} for x in (a, b))
    both = sorted(ours.keys() & theirs.keys())
    paired = of_sample([ours[s] - theirs[s] for s in both]) if len(both) > 1 else None
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
    over the drawn seeds. Deviations are widened for the small number of seeds; articles are many,
    and left as drawn.
    """

    def shares(n: int) -> Float[np.ndarray, "draws n"]:
        return rng.multinomial(n, np.full(n, 1 / n), size=draws) / n

    mean_a, mean_b = (  # (draws, article)
        x.mean(axis=0) + by * ((shares(len(x)) - 1 / len(x)) @ x)
        for x, by in zip((a, b), widening([len(a), len(b)]), strict=True)
    )
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


@lru_cache(maxsize=4)
def comparisons(evidence: Evidence, chosen: Chosen) -> dict[str, Comparison | Undecided]:
    """All that are planned with the best softmax, by name; the protocol after the name."""

    def to_best(name: str, c: Configuration, protocol: Protocol, stage: str = ""):
        sides = records(evidence, c, protocol, stage), records(evidence, chosen.best, protocol)
        planned = len(STAGES[stage or stage_of(c)].seeds), len(STAGES["confirm"].seeds)
        return compare(*sides, (name, BEST), planned)

    found: dict[str, Comparison | Undecided] = {}
    for name, c in to_confirm(chosen).items():
        if c != chosen.best:
            found[name] = to_best(name, c, "strict")
    for name, c in in_both_protocols(chosen).items():
        if c != chosen.best:
            found[f"{name}, published"] = to_best(name, c, "published")
    for name, c in controls(chosen.ours).items():
        found[name] = to_best(name, c, "strict", "controls")
    return found


def p_values(found: Mapping[str, Comparison | Undecided], lacking: float = 1.0) -> dict[str, float]:
    """Of ours the primary test's own p; of all others Holm's, over as many as were planned.

    One of which a seed diverged counts as p = 1, and one that lacks a seed; as 0 instead these say
    what the others can still come to.
    """

    def own(c: Comparison | Undecided) -> float:
        if isinstance(c, Comparison):
            return c.welch.p
        return 1.0 if c.for_good else lacking

    raw = {name: own(c) for name, c in found.items()}
    others = [name for name in raw if name != "ours"]
    return raw | dict(zip(others, holm([raw[name] for name in others]), strict=True))
