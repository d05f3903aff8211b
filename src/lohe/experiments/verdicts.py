"""Does it hold? Rules and margins are those of rules.json, committed before the full runs but for
what its `seen_before` and `changed` say.

Two questions a line: does our value agree with the printed one, and does the paper's claim hold in
our own runs by the paper's own test.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from statistics import fmean, stdev
from typing import Any, Literal

from lohe.measure.significance import fisher

Verdict = Literal[
    "reproduced", "differs", "inconclusive", "not comparable", "not reported", "no records"
]
NO_RECORDS: Verdict = "no records"
MOST_SEEDS = 10**6  # that anybody would train
LARGER = " (larger than the published change)"


@cache
def rules() -> dict[str, Any]:
    """Margins, levels and claims, as committed."""
    file = resources.files("lohe.experiments") / "rules.json"
    return json.loads(file.read_text(encoding="utf-8"))


def significant(p: float) -> bool:
    """By the level of rules.json."""
    return p < rules()["levels"]["claim"]


def margin(name: str) -> float:
    """A margin of rules.json by name."""
    return rules()["margins"][name]["value"]


def bound(claim: str, which: str = "") -> float:
    """What a claim's test allows, by rules.json; `which` of several."""
    given = rules()["claims"][claim]["bound"]
    return given[which] if which else given


@dataclass(frozen=True)
class Estimate:
    """A number with its standard error; `dof` None: normal, e.g. from a bootstrap.

    `seeds` is how many runs of ours are behind it, `own` the part of the variance that they cause:
    from these follows how many more would decide a question.
    """

    value: float
    se: float
    dof: float | None = None
    seeds: int = 0
    own: float = 0.0

    def interval(self, confidence: float) -> tuple[float, float]:
        half = self._reach(confidence) * self.se
        return self.value - half, self.value + half

    @property
    def p(self) -> float:
        """Two-sided probability of an estimate as far from 0, were 0 the truth."""
        from scipy import special  # stats takes a second to import, and says the same

        if self.se == 0:
            return 1.0 if self.value == 0 else 0.0
        t = abs(self.value) / self.se
        tail = special.ndtr(-t) if self.dof is None else special.stdtr(self.dof, -t)
        return float(2 * tail)

    def __sub__(self, other: "Estimate") -> "Estimate":
        """Difference of independent estimates; degrees of freedom by Welch and Satterthwaite."""
        parts = [(e.se**2, e.dof) for e in (self, other)]
        variance = sum(v for v, _ in parts)
        spread = sum(v**2 / dof for v, dof in parts if dof)
        dof = variance**2 / spread if spread else None
        own = self.own + other.own
        seeds = max(self.seeds, other.seeds)
        return Estimate(self.value - other.value, math.sqrt(variance), dof, seeds, own)

    def with_seeds(self, n: int) -> "Estimate":
        """The same with n seeds of ours: their part of the variance falls, and with it the weight
        of their degrees of freedom."""
        others, own, dof = self.se**2 - self.own, self.own * self.seeds / n, self.dof
        if dof is not None:
            theirs = self.se**4 / dof - self.own**2 / (self.seeds - 1)
            dof = (own + others) ** 2 / (own**2 / (n - 1) + max(0.0, theirs))
        return replace(self, se=math.sqrt(own + others), dof=dof, seeds=n, own=own)

    def _reach(self, confidence: float) -> float:
        from scipy import special

        at = (1 + confidence) / 2
        return float(special.ndtri(at) if self.dof is None else special.stdtrit(self.dof, at))


def ours(sample: Sequence[float]) -> Estimate:
    """Mean of our own seeds."""
    mean = of_sample(sample)
    return replace(mean, seeds=len(sample), own=mean.se**2)


def mean(sample: Sequence[float]) -> Estimate | None:
    """Mean of our own seeds; None where it has no error: fewer than two, or one that diverged."""
    return ours(sample) if len(sample) > 1 and all(map(math.isfinite, sample)) else None


def gap(a: Sequence[float], b: Sequence[float]) -> Estimate | None:
    """Mean of a minus mean of b, both ours; None where one of them has no error."""
    over, under = mean(a), mean(b)
    return over - under if over and under else None


def of_sample(sample: Sequence[float]) -> Estimate:
    """Mean of a sample with its standard error.

    >>> of_sample([1.0, 2.0, 3.0]).value
    2.0
    """
    if len(sample) < 2:
        raise ValueError(f"A mean with an error needs two values at least, got {len(sample)}.")
    n = len(sample)
    return Estimate(fmean(sample), stdev(sample) / math.sqrt(n), n - 1)


def printed(mean: float, std: float, n: int) -> Estimate:
    """A mean of which the paper prints the spread over n runs."""
    return Estimate(mean, std / math.sqrt(n), n - 1)


def exactly(value: float) -> Estimate:
    """A number without a spread of its own."""
    return Estimate(value, 0.0)


def log(estimate: Estimate) -> Estimate:
    """Logarithm of a positive estimate, by the delta method: ratios become differences."""
    scale = 1 / estimate.value
    return replace(
        estimate,
        value=math.log(estimate.value),
        se=estimate.se * abs(scale),
        own=estimate.own * scale**2,
    )


@dataclass(frozen=True)
class Agreement:
    """Our value minus the printed one, and how far apart they may be.

    `seen` is the difference itself where the estimate is another number: the middle of an interval.
    `effect` is the printed value where that is a change or a gap. `exact` is the difference's p
    where an exact test knows it.
    """

    difference: Estimate
    margin: float
    seen: float | None = None
    effect: float | None = None
    exact: float | None = None

    @property
    def p(self) -> float:
        return self.difference.p if self.exact is None else self.exact

    @property
    def coarse(self) -> bool:
        """Whether no change at all would agree, too: the margin is larger than the printed one."""
        return self.effect is not None and abs(self.effect) < self.margin

    def verdict(self, p: float | None = None) -> Verdict:
        """By rules.json; `p` is the difference's, corrected for the number of lines."""
        levels = rules()["levels"]
        low, high = self.difference.interval(levels["reproduced"])
        if -self.margin <= low and high <= self.margin:
            return "reproduced"
        p = self.p if p is None else p
        if p < 1 - levels["differs"] and abs(self.difference.value) > self.margin:
            return "differs"
        return "inconclusive"

    def seeds_to_decide(self, corrected: float = 1.0) -> int | None:
        """The fewest seeds of ours with which the rules would decide, were estimate and spreads to
        stay; None: no number of them would. Holm multiplies p by `corrected`.
        """
        d = self.difference
        if not d.seeds or not d.own > 0 or not math.isfinite(d.value):
            return None

        def decided(n: int) -> bool:
            then = replace(self, difference=d.with_seeds(n))
            return then.verdict(min(1.0, corrected * then.difference.p)) != "inconclusive"

        few, many = d.seeds, d.seeds
        while not decided(many):
            few, many = many, 2 * many
            if many > MOST_SEEDS:
                return None
        while many - few > 1:
            middle = (few + many) // 2
            few, many = (few, middle) if decided(middle) else (middle, many)
        return many


def counts(k: int, n: int, k_paper: int, n_paper: int, within: float | None = None) -> Agreement:
    """Two rates, of k in n runs: their difference with Fisher's p and the interval of Agresti and
    Caffo, who add a success and a failure to each."""
    a, b = (k + 1) / (n + 2), (k_paper + 1) / (n_paper + 2)
    own = a * (1 - a) / (n + 2)
    se = math.sqrt(own + b * (1 - b) / (n_paper + 2))
    allowed = margin("failure_rate") if within is None else within
    seen = k / n - k_paper / n_paper if n and n_paper else None
    p = fisher(k, n, k_paper, n_paper)
    return Agreement(Estimate(a - b, se, None, n, own), allowed, seen, exact=p)


@dataclass(frozen=True)
class Claim:
    """A statement of the paper, decided in our runs; `holds` None: not decided.

    `lacks` says what there are no records of, where these would decide it.
    """

    name: str  # of rules.json
    holds: bool | None
    found: str  # the numbers behind it
    p: float | None = None
    lacks: str = ""

    def __post_init__(self) -> None:
        if self.name not in rules()["claims"]:
            known = ", ".join(rules()["claims"])
            raise ValueError(f"{self.name!r} is no claim of rules.json. There are: {known}.")

    @property
    def statement(self) -> str:
        """The paper's, and whether its test was written down after the runs."""
        claim = rules()["claims"][self.name]
        return claim["statement"] + (" (Added after the runs.)" if "added" in claim else "")

    @property
    def verdict(self) -> str:
        if self.holds is None:
            missing = self.lacks or self.found == NO_RECORDS
            return NO_RECORDS if missing else "undecided"
        return "holds" if self.holds else "does not hold"

    @property
    def numbers(self) -> str:
        """What is known, and what is missing."""
        lacks = f"{self.lacks} missing" if self.lacks else ""
        return "; ".join(x for x in (self.found, lacks) if x and x != NO_RECORDS)


def undecided(name: str, samples: Mapping[str, Sequence[float]], few: str) -> Claim:
    """A claim about samples of which some are missing or, as `few` says, too small."""
    empty = [what for what, sample in samples.items() if not sample]
    if len(empty) == len(samples):
        return Claim(name, None, NO_RECORDS)
    return Claim(name, None, "" if empty else few, lacks=", ".join(empty))


@dataclass(frozen=True)
class Line:
    """One number or statement of the paper beside ours.

    `value` is an Agreement, or a verdict where nothing is to be computed: "not comparable" on other
    corpora, "no records". `reading` says which: as published, or as defined in the paper.
    """

    what: str
    paper: str
    ours: str
    value: Agreement | Verdict = "not reported"
    claim: Claim | None = None
    reading: str = ""
    note: str = ""


@dataclass(frozen=True)
class Judged:
    """A line with its verdicts in words."""

    line: Line
    value: str
    claim: str
    note: str

    @property
    def exact(self) -> bool:
        """Reproduced, as a count or formula is: equal."""
        value = self.line.value
        return self.value == "reproduced" and isinstance(value, Agreement) and not value.margin

    @property
    def coarse(self) -> bool:
        """Reproduced, and so would be no change at all."""
        value = self.line.value
        return self.value == "reproduced" and isinstance(value, Agreement) and value.coarse

    @property
    def elsewhere(self) -> bool:
        """Judged by a number that the paper has of another corpus, and says so."""
        return "(TinyStories)" in self.line.paper and isinstance(self.line.value, Agreement)

    @property
    def claim_said(self) -> str:
        """The claim's verdict; undecided where its own line has no records is "no records"."""
        nothing = self.claim == "undecided" and self.value == NO_RECORDS
        return NO_RECORDS if nothing else self.claim


def judge(lines: Sequence[Line]) -> list[Judged]:
    """Verdicts of the lines of one item; differences are corrected by Holm for their number."""
    corrected = iter(holm([x.p for line in lines if isinstance(x := line.value, Agreement)]))
    judged = []
    for line in lines:
        value, note = line.value, line.note
        if isinstance(value, Agreement):
            agreement, p = value, next(corrected)
            value = agreement.verdict(p)
            times = p / agreement.p if agreement.p else 1.0
            note = "; ".join(x for x in (note, _interval(agreement, value, times)) if x)
        claim = line.claim.verdict if line.claim else ""
        if line.claim:
            note = "; ".join(x for x in (note, line.claim.numbers) if x)
        judged.append(Judged(line, value, claim, note))
    return judged


def holm(p: Sequence[float]) -> list[float]:
    """Holm's correction of p-values for being one of many, in the order given; NaN counts as 1.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    p = [1.0 if math.isnan(x) else x for x in p]
    corrected, least = [0.0] * len(p), 0.0
    for rank, n in enumerate(sorted(range(len(p)), key=lambda n: p[n])):
        least = max(least, min(1.0, (len(p) - rank) * p[n]))
        corrected[n] = least
    return corrected


def _interval(agreement: Agreement, verdict: str, corrected: float) -> str:
    if agreement.difference == exactly(0.0):
        return ""  # equal: there is nothing to say
    value = agreement.difference.value if agreement.seen is None else agreement.seen
    ends = agreement.difference.interval(rules()["levels"]["reproduced"])
    # nothing is measured to a billionth: what is left of a difference there is rounding
    value, low, high = (0.0 if abs(x) < 1e-9 else x for x in (value, *ends))
    said = f"difference {value:+.3g} [{low:+.3g}, {high:+.3g}]"
    said += f", margin {agreement.margin:g}{LARGER if agreement.coarse else ''}"
    if verdict == "inconclusive":
        seeds = agreement.seeds_to_decide(corrected)
        said += f"; {seeds} seeds would decide" if seeds else "; no number of our seeds decides"
    return said
