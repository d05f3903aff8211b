"""Records of keyword runs that were never trained: any accuracies, or the published ones."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import invented

from lohe.experiments.evidence import Evidence
from lohe.experiments.measures import measure_recipe
from lohe.experiments.reported import published
from lohe.experiments.setting import COMPACT, PAPERS, Setting
from lohe.experiments.store.records import Record
from lohe.experiments.studies.kws.keyword_cells import MECHANISMS, POSITIONS, READINGS
from lohe.experiments.studies.kws.keyword_permutation import FramePermutation
from lohe.experiments.studies.sva import agreement
from lohe.experiments.verdicts import Agreement, Line, judge
from lohe.train import Run

PAPER, COMPACTLY = Setting("full", PAPERS), Setting("full", COMPACT)


def record(recipe: dict, seed: int, last: float | None = None, **result: float) -> Record:
    curve = [] if last is None else [{"loss": 2.0, "accuracy": 0.0}, {"accuracy": last}]
    return invented.record(recipe, seed, result, curve)


def of_run(run: Run, accuracies: Iterable[float], *, test: float = 0.0, last: float = 0.0):
    """A record for each accuracy: on test it is `test` higher, in the last epoch `last` higher."""
    return [
        record(run.recipe(), seed, x + last, **{"valid.accuracy": x, "test.accuracy": x + test})
        for seed, x in enumerate(accuracies)
    ]


def published_grid(setting: Setting, **shift: float) -> list[Record]:
    """The published grid as if it were ours, both readings of the oscillator alike."""
    found = []
    for words in setting.corpora.keywords:
        for name, m in MECHANISMS.items():
            paper = published("figure3")["per_seed"][name.partition(",")[0]]
            for where in POSITIONS:
                run = setting.keyword_spotting(words, m, where)
                found += of_run(run, paper[where], **shift)
    return found


def published_frozen(setting: Setting) -> list[Record]:
    """Table 1's last row as if it were ours."""
    return [
        one
        for words in setting.corpora.keywords
        for m in READINGS.values()
        for one in of_run(
            setting.keyword_spotting(words, replace(m, freeze_values=True)),
            published("table1")["per_seed"]["frozen W_V"],
        )
    ]


def published_agreement(setting: Setting) -> list[Record]:
    """Figure 3's right panel as if it were ours."""
    found = []
    for name in MECHANISMS:
        paper = published("table2")["per_seed"][name.partition(",")[0]]
        recipe = setting.agreement(agreement.MECHANISMS[name]).recipe()
        for seed in range(50):
            kinds = {f"valid.{kind}": paper[kind][seed] for kind in ("overall", "simple", "hard")}
            found.append(record(recipe, seed, **kinds))
    return found


def published_permutations(setting: Setting) -> list[Record]:
    """The published probe as if it were ours."""
    found = []
    for words in setting.corpora.keywords:
        for name, m in MECHANISMS.items():
            paper = published("claim-kws-permutation")["per_seed"][name.partition(",")[0]]
            for where in POSITIONS:
                measure = FramePermutation(setting.keyword_spotting(words, m, where))
                pairs = zip(paper[where]["intact"], paper[where]["permuted"], strict=True)
                for seed, (a, b) in enumerate(pairs):
                    values = {"valid.intact": a, "valid.permuted": b, "valid.loss": a - b}
                    found.append(record(measure_recipe(measure), seed, **values))
    return found


def evidence(setting: Setting, *groups: Sequence[Record]) -> Evidence:
    return Evidence([one for group in groups for one in group], setting)


def difference(line: Line) -> float:
    """Our value minus the printed one."""
    assert isinstance(line.value, Agreement)
    return line.value.difference.value


def verdicts(lines: Sequence[Line]) -> dict[str, tuple[str, str]]:
    """Both verdicts of every line, by its name and reading; each line has its own."""
    found = {f"{j.line.what} ({j.line.reading})": (j.value, j.claim) for j in judge(lines)}
    assert len(found) == len(lines)
    return found
