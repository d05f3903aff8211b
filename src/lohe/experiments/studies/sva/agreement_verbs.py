"""What trained agreement models do at the verb: attention, logit, error, measured and recorded."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from lohe.experiments.evidence import Evidence
from lohe.experiments.measures import Bench, Measure, Taken, on_seeds
from lohe.experiments.setting import Setting
from lohe.experiments.store.records import Record
from lohe.experiments.studies.sva.agreement_cohort import COMPARED, FAILS_BELOW
from lohe.models import attention_weights
from lohe.tasks import Split, sva
from lohe.train import Run

SEEDS = 50  # the published 5
SUBJECT, DISTRACTOR = 2, 5  # places among the nine tokens; <BOS> is 0
KEPT = 0.1  # gap from which on attention counts as kept on the subject
CLOSE = 0.5  # |logit| below which a prediction is a close call
# one form for both numbers: fish and deer
INVARIANT = frozenset(sva.SINGULAR_NOUNS) & frozenset(sva.PLURAL_NOUNS)
SIDES = ("correct", "wrong")


@dataclass(frozen=True)
class VerbAttention:
    """Attention of the verb to subject and distractor, head mean, and what errors are like.

    On the hard validation sentences, by whether the prediction was right; and on all test sentences
    with a distractor, as histograms over [0, 1]. All of these are nine tokens long: no padding.
    """

    run: Run
    bins: int = 100

    def take(self, bench: Bench) -> Taken:
        data, model = bench.data(self.run), bench.model(self.run)
        assert data.test is not None
        hard = look(model, data.valid, ["hard"], bench.device)
        test = look(model, data.test, ["easy", "hard"], bench.device)
        wrong = [data.names[k] for k in hard.subject[~hard.right].tolist()]
        result = _side("correct", hard, hard.right) | _side("wrong", hard, ~hard.right)
        result |= _errors(hard, wrong) | {"test.sentences": len(test.logit)}
        result |= _moments("test.to_subject", test.to_subject)
        result |= _moments("test.to_distractor", test.to_distractor)
        curve = [
            {"test.to_subject": self._histogram(test.to_subject)},
            {"test.to_distractor": self._histogram(test.to_distractor)},
            {"wrong.subjects": {word: wrong.count(word) for word in sorted(set(wrong))}},
        ]
        return Taken(result, curve)

    def _histogram(self, weights: Float[Tensor, " sentences"]) -> list[int]:
        # a rounded weight may be a little more than 1
        return torch.histc(weights.clamp(0, 1), self.bins, 0, 1).int().tolist()


@dataclass(frozen=True, eq=False)
class Verbs:
    """One entry a sentence: logit, whether right, the subject's id, attention of the verb."""

    logit: Float[Tensor, " sentences"]
    right: Bool[Tensor, " sentences"]
    subject: Tensor
    to_subject: Float[Tensor, " sentences"]
    to_distractor: Float[Tensor, " sentences"]

    @property
    def gap(self) -> Float[Tensor, " sentences"]:
        return self.to_subject - self.to_distractor


def look(model: nn.Module, split: Split, categories: Iterable[str], device: torch.device) -> Verbs:
    """The sentences of these categories, all at once, through the model."""
    wanted = torch.tensor([sva.CATEGORIES.index(name) for name in categories])
    part = split.take(torch.isin(split.targets["category"].long(), wanted).nonzero()[:, 0])
    label, part = part.targets["label"], part.to(device)
    with torch.no_grad():
        logit = model(**part.inputs).double().cpu()
        last = attention_weights(model, **part.inputs)[-1].mean(dim=1)
    verb = last[torch.arange(len(part)), part.inputs["position"]].double().cpu()
    subject = part.inputs["tokens"][:, SUBJECT].cpu()
    return Verbs(logit, (logit > 0) == (label == 1), subject, verb[:, SUBJECT], verb[:, DISTRACTOR])


def _side(name: str, verbs: Verbs, chosen: Bool[Tensor, " sentences"]) -> dict[str, float]:
    """Means over the sentences that were predicted right, or wrong; NaN where there are none."""
    of = {
        "to_subject": verbs.to_subject,
        "to_distractor": verbs.to_distractor,
        "gap": verbs.gap,
        "logit": verbs.logit.abs(),
    }
    means = {f"{name}.{what}": x[chosen].mean().item() for what, x in of.items()}
    return {f"{name}.sentences": int(chosen.sum()), **means}


def _errors(verbs: Verbs, subjects: list[str]) -> dict[str, float]:
    """Counts among the wrong predictions."""
    close, gap = verbs.logit.abs()[~verbs.right] < CLOSE, verbs.gap[~verbs.right]
    return {
        "wrong.invariant": sum(word in INVARIANT for word in subjects),
        "wrong.close": int(close.sum()),
        "wrong.kept": int((gap >= KEPT).sum()),
        "wrong.kept_close": int((close & (gap >= KEPT)).sum()),
        "wrong.reversed": int((gap < 0).sum()),
    }


def _moments(name: str, x: Float[Tensor, " sentences"]) -> dict[str, float]:
    return {name: x.mean().item(), f"{name}_std": x.std().item()}


def measures(setting: Setting) -> list[Measure]:
    """The three mechanisms, every seed."""
    seeds = setting.seeds(SEEDS, smoke=2)
    return [m for one in _each(setting).values() for m in on_seeds(one, seeds)]


def measured(evidence: Evidence) -> dict[str, list[Record]]:
    """What was found of each mechanism, in order of seed."""
    return {
        name: [r for r in evidence.measured_seeds(one) if r.seed < SEEDS]
        for name, one in _each(evidence.setting).items()
    }


def _each(setting: Setting) -> dict[str, VerbAttention]:
    return {name: VerbAttention(setting.agreement(m)) for name, m in COMPARED.items()}


def hard_accuracy(record: Record) -> float:
    """Share of hard validation sentences predicted right, in percent."""
    right, wrong = (record.result[f"{side}.sentences"] for side in SIDES)
    return 100 * right / (right + wrong)


def good(records: Iterable[Record]) -> list[Record]:
    """The seeds that did not fail."""
    return [record for record in records if hard_accuracy(record) >= FAILS_BELOW]


def means(records: Iterable[Record], name: str) -> list[float]:
    """The mean of each seed; seeds without such a sentence have none."""
    values = [record.result[name] for record in records]
    return [x for x in values if not math.isnan(x)]


def pooled(records: Sequence[Record], side: str, what: str) -> float:
    """Mean over all correct or wrong predictions of all seeds together; NaN without any."""
    weighed = [(r.result[f"{side}.sentences"], r.result[f"{side}.{what}"]) for r in records]
    total = sum(n for n, _ in weighed)
    return sum(n * x for n, x in weighed if n) / total if total else math.nan


def count(records: Iterable[Record], name: str) -> int:
    """A count, over all seeds."""
    return sum(int(record.result[name]) for record in records)
