"""Does a larger score give a larger weight? The readout is monotone in z·r, not in the score."""

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import fmean

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from lohe.experiments.evidence import Evidence
from lohe.experiments.item import Item
from lohe.experiments.measures import Bench, Measure, Taken
from lohe.experiments.setting import READINGS, Setting
from lohe.experiments.store.records import Record
from lohe.experiments.studies.lm import perplexity
from lohe.experiments.studies.lm.perplexity import CORPORA
from lohe.experiments.studies.robust.observed import Seen, observe, real_tokens
from lohe.experiments.studies.robust.physics import spaced
from lohe.experiments.studies.sva import agreement
from lohe.experiments.tables import Table
from lohe.experiments.verdicts import Claim, Line
from lohe.ops import reference
from lohe.theory import weight_response
from lohe.train import Run

NAME = "claim-monotonicity"
AS_PUBLISHED, AS_DEFINED = READINGS
SEEDS = 5  # of agreement; one model of every other task
EXAMPLES, FEW = 500, 8  # of the validation split; few at smoke scale
BATCH = 50
NOISE = 1e-12  # of a derivative in float64, relative to the largest of its row
PAIRS, ROWS = ("lowered", "pairs"), ("elsewhere", "rows")  # a share, and of what


@dataclass(frozen=True)
class Monotonicity:
    """What raising a coupling does to its own weight, and whose weight is the largest.

    On up to `examples` of the validation split, evenly spaced, of those without padding; rows with
    two keys or more, all layers and heads, float64.
    """

    run: Run
    examples: int

    def take(self, bench: Bench) -> Taken:
        model, valid = bench.model(self.run).double(), bench.data(self.run).valid
        whole = valid.take(real_tokens(valid).all(dim=1).nonzero()[:, 0])
        if not len(whole):
            raise ValueError("Every example of the validation split is padded: none to look at.")
        split = spaced(whole, self.examples).to(bench.device)
        found = torch.zeros(4, dtype=torch.long)
        for start in range(0, len(split), BATCH):
            inputs = split.take(slice(start, start + BATCH)).inputs
            doubles = {n: x.double() if x.is_floating_point() else x for n, x in inputs.items()}
            found += sum(map(_counts, observe(model, **doubles)[1]), torch.zeros_like(found))
        pairs, lowered, rows, elsewhere = found.tolist()
        return Taken({"pairs": pairs, "lowered": lowered, "rows": rows, "elsewhere": elsewhere})


def _counts(layer: Seen) -> Tensor:
    """Pairs, those whose weight falls; rows, those whose largest weight is not at the largest w."""
    allowed = layer.couplings > 0
    several = allowed.sum(dim=-1) > 1
    response = weight_response(layer.drive, layer.anchors, allowed)
    noise = NOISE * response.abs().amax(dim=-1, keepdim=True)
    pairs = allowed & several[..., None]
    weights = _weights(layer, allowed)
    moved = weights.argmax(dim=-1) != layer.couplings.argmax(dim=-1)
    counted = (pairs, pairs & (response < -noise), several, several & moved)
    return torch.stack([x.sum() for x in counted]).cpu()


def _weights(
    layer: Seen, allowed: Bool[Tensor, "batch heads i j"]
) -> Float[Tensor, "batch heads i j"]:
    similarity = reference.similarity(layer.oscillators, layer.anchors, None)
    return reference.attention(similarity, sharpness=1, allowed=allowed)


@dataclass(frozen=True)
class Cohort:
    """Models of one task in one reading; all of them are part of the package."""

    task: str
    reading: str

    def runs(self, setting: Setting) -> list[Run]:
        if self.task == "sva":
            mechanism = agreement.READINGS[self.reading]
            return [setting.agreement(mechanism, seed) for seed in setting.seeds(SEEDS)]
        mechanism = READINGS[self.reading]
        if self.task == "kws":
            return [setting.keyword_spotting(_words(setting), mechanism)]
        build = {"wikitext2": setting.wikitext2, "tinystories": setting.tinystories}
        return [build[self.task](mechanism)]

    def name(self, setting: Setting) -> str:
        """For people."""
        if self.task in CORPORA:
            return perplexity.name(setting, self.task)
        return f"KWS ({_words(setting)})" if self.task == "kws" else "SVA"

    def measures(self, setting: Setting) -> list[Monotonicity]:
        examples = FEW if setting.scale == "smoke" else EXAMPLES
        return [Monotonicity(run, examples) for run in self.runs(setting)]

    def taken(self, evidence: Evidence) -> list[Record]:
        found = map(evidence.measured, self.measures(evidence.setting))
        return [record for record in found if record is not None]


COHORTS = (
    Cohort("sva", AS_PUBLISHED),
    Cohort("sva", AS_DEFINED),
    *(Cohort(task, AS_PUBLISHED) for task in ("kws", *CORPORA)),
)


def _words(setting: Setting) -> str:
    """The last set of keywords."""
    return list(setting.corpora.keywords)[-1]


def measures(setting: Setting) -> list[Measure]:
    return [measure for cohort in COHORTS for measure in cohort.measures(setting)]


def table(evidence: Evidence) -> Table:
    """Shares of pairs and of rows, in percent, mean and range over models."""
    rows = []
    for cohort in COHORTS:
        if records := cohort.taken(evidence):
            shares = (_said(_shares(records, *of)) for of in (PAIRS, ROWS))
            name = f"{cohort.name(evidence.setting)}, {cohort.reading}"
            rows.append((name, str(len(records)), *shares))
    notes = [
        "lowered: pairs whose weight falls if their coupling is raised by a little, in percent; "
        "elsewhere: rows whose largest weight is not at the largest coupling. Mean, and range over "
        f"models; up to {EXAMPLES} examples without padding, all layers and heads.",
        "Of the models of the package: keywords and language as published only.",
        "z_i·r_j itself always rises; all other weights may rise more (theory.weight_response).",
    ]
    if not rows:
        notes.append(evidence.setting.none_yet(NAME))
    columns = ("task", "models", "lowered %", "elsewhere %")
    return Table("Does a larger score give a larger weight?", columns, rows, notes)


def _shares(records: list[Record], part: str, of: str) -> list[float]:
    return [100 * r.result[part] / r.result[of] for r in records]


def _said(shares: list[float]) -> str:
    if len(shares) == 1:
        return f"{shares[0]:.1f}"
    return f"{fmean(shares):.1f} ({min(shares):.1f}-{max(shares):.1f})"


def lines(evidence: Evidence) -> list[Line]:
    """One for each task and reading."""
    return list(_lines(evidence))


def _lines(evidence: Evidence) -> Iterator[Line]:
    for cohort in COHORTS:
        name = cohort.name(evidence.setting)
        what = f"{name}, pairs whose weight falls as their coupling rises"
        records = cohort.taken(evidence)
        if not records:
            claim = Claim("readout-monotone", None, "no records")
            yield Line(what, "none", "no records", "no records", claim, cohort.reading)
            continue
        lowered, elsewhere = (_shares(records, *of) for of in (PAIRS, ROWS))
        found = f"{_said(lowered)} % of the pairs"
        found += f"; the largest weight is elsewhere in {_said(elsewhere)} % of the rows"
        claim = Claim("readout-monotone", max(lowered) == 0, found)
        ours = f"{fmean(lowered):.1f} %"
        yield Line(what, "none", ours, "not reported", claim, cohort.reading)


ITEMS: dict[str, Item] = {
    NAME: Item(title="Scores and weights", measures=measures, table=table, lines=lines)
}
