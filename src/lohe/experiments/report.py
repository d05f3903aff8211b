"""What came out, in numbers and in words: everything here follows from the judged lines."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lohe.experiments.estimates import duration
from lohe.experiments.evidence import Evidence
from lohe.experiments.item import Item
from lohe.experiments.measures import Measure
from lohe.experiments.reported import published
from lohe.experiments.store.records import Record
from lohe.experiments.tables import NOT_REPORTED, Table
from lohe.experiments.verdicts import NO_RECORDS, Claim, Judged, judge, rules
from lohe.train import Run

VALUES = ("reproduced", "differs", "inconclusive", "not comparable", "no records")
CLAIMS = ("holds", "does not hold", "undecided", "no records")
TREND = "(trend)"
ZERO = "·"  # a zero that is not to be looked at
NOT_JUDGED = "not judged"  # at smoke scale nothing has been learned
LEGEND = (
    "reproduced: the 90 % interval of our value minus the printed one is inside the margin; "
    "differs: it is outside, surely so; inconclusive: neither, with so many seeds.",
    "not comparable: the paper prints a number, of other data or of another kind than ours; no "
    "records: not run yet.",
)
UNCOMPARED = (
    f"are in no column but the first, called {NOT_REPORTED[0]}: {NOT_REPORTED[1]}; a claim may be "
    "decided all the same"
)

# The paper's five headlines, and the claims of rules.json that decide them
HEADLINES = {
    "Keyword spotting with matched positions": ("kws-parity",),
    "Training failures on subject-verb agreement": ("sva-failures",),
    "Perplexity against oscillator dimension": ("lm-trend", "lm-power-law", "lm-held-out"),
    "Inference with a finite settling time": ("lm-finite-horizon",),
    "Couplings off by 50 %": ("robust-kws", "robust-lm-mismatch"),
}
DEVICES = {"GPU": "cuda", "CPU": "cpu"}  # by how a record's device begins
GPU_AIM_H = 2.0  # of one H200, for everything
# What the records cannot tell of themselves
SHARED = (
    "Keyword spotting and most of TinyStories, as they are in results/, were trained by several "
    "processes at once on one GPU, which took less than the sum above (LOG.md says how long)."
)
MEASURED = ", measured"
# The same stories by two names: halves had the checksum of the whole until 2026-11-16
SAME_DATA = {
    "f3f13615d8bf6eb9dba496169505815221cce5fe9b3f91d37294b4911db10a38": (
        "c66f9b1a0733f54f960a862c8c5020c1065e953fc313420c385534b96d7883a2"
    )
}
TASKS = {
    "SVA": "subject-verb agreement",
    "WikiText2": "WikiText-2",
    "TinyStories": "TinyStories",
    "KeywordSpotting": "keyword spotting",
    "KeywordFeatures": "keyword spotting",
}


@dataclass(frozen=True)
class Finding:
    """A claim as one line decides it: the words of rules.json, the verdict, the numbers."""

    claim: str
    statement: str
    verdict: str
    line: str
    reading: str
    numbers: str
    item: str

    @property
    def trend(self) -> bool:
        """Of a corpus that shows a trend only, as its name says."""
        return TREND in self.line

    @property
    def added(self) -> bool:
        """Whether its claim was written down after the runs."""
        return "added" in rules()["claims"][self.claim]

    @property
    def said(self) -> str:
        """The rest of the sentence that begins with the verdict."""
        about = "".join(f", {part}" for part in (self.reading, self.line) if part)
        return f"{about}: {self.numbers.rstrip('.')}." if self.numbers else f"{about}."


@dataclass(frozen=True)
class Section:
    """An item and what became of its lines."""

    name: str
    item: Item
    judged: list[Judged]

    @property
    def findings(self) -> list[Finding]:
        """What its lines say about claims."""
        return [_finding(self.name, j, j.line.claim) for j in self.judged if j.line.claim]


@dataclass(frozen=True)
class Headline:
    """A headline of the paper and every finding about it."""

    title: str
    findings: list[Finding]


def sections(items: Mapping[str, Item], evidence: Evidence) -> list[Section]:
    """Every item with its judged lines; at smoke scale they are made, and not judged."""
    found = [Section(name, item, judge(item.lines(evidence))) for name, item in items.items()]
    if evidence.setting.scale != "smoke":
        return found
    return [replace(s, judged=[_not_judged(j) for j in s.judged]) for s in found]


def overall(found: Sequence[Section]) -> str:
    """All items in two sentences."""
    lines = Counter(j.value for s in found for j in s.judged)
    said = Counter(f.verdict for s in found for f in s.findings)
    counted = []
    for what, count in {"lines": lines, "claims": said}.items():
        parts = ", ".join(f"{word} {n}" for word, n in count.most_common())
        counted.append(f"{count.total()} {what}{': ' if parts else ''}{parts}.")
    return " ".join([*counted, *_apart(found, "on TinyStories, a trend", lambda f: f.trend)])


def _apart(found: Sequence[Section], what: str, which: Callable[[Finding], bool]) -> list[str]:
    """How some of the claims were decided, for those who would leave them out."""
    said = Counter(f.verdict for s in found for f in s.findings if which(f))
    decided = [f"{word} {said[word]}" for word in CLAIMS[:3] if said[word]]
    return [f"Of these {what}: {', '.join(decided)}."] if decided else []


def values(found: Sequence[Section]) -> Table:
    """How many printed values of each item we reproduce."""
    rows = [_counted(s.name, len(s.judged), VALUES, (j.value for j in s.judged)) for s in found]
    judged = [j.value for s in found for j in s.judged]
    rows.append(_counted("all", len(judged), VALUES, judged))
    notes = ["A line is a number or statement of the paper in one of its readings."]
    if other := len(judged) - sum(word in VALUES for word in judged):
        notes.append(f"{other} lines {NOT_JUDGED if NOT_JUDGED in judged else UNCOMPARED}.")
    notes += [] if NOT_JUDGED in judged else LEGEND
    exact = sum(j.exact for s in found for j in s.judged)
    coarse = sum(j.coarse for s in found for j in s.judged)
    if exact or coarse:
        notes.append(
            f"Of the {judged.count('reproduced')} reproduced, {exact} are counts and formulas, "
            f"which are equal, and {coarse} changes or gaps which the paper has smaller than the "
            "margin: no change at all would agree, too."
        )
    if elsewhere := Counter(j.value for s in found for j in s.judged if j.elsewhere):
        parts = ", ".join(f"{word} {n}" for word, n in elsewhere.most_common())
        notes.append(
            f"{elsewhere.total()} lines judge changes on WikiText-2 by those that the paper has of "
            f"TinyStories: {parts}."
        )
    return Table("Values: ours beside the printed ones", ("item", "lines", *VALUES), rows, notes)


def claims(found: Sequence[Section]) -> Table:
    """How many claims of each item hold in our runs, by the paper's own tests."""
    verdicts = {s.name: [f.verdict for f in s.findings] for s in found}
    rows = [_counted(name, len(said), CLAIMS, said) for name, said in verdicts.items() if said]
    every = [verdict for said in verdicts.values() for verdict in said]
    rows.append(_counted("all", len(every), CLAIMS, every))
    notes = ["Each claim is tested as rules.json says, in each reading of the paper."]
    notes += _apart(found, "on TinyStories, a trend", lambda f: f.trend)
    notes += _apart(found, "by claims added after the runs", lambda f: f.added)
    return Table("Claims: do they hold in our runs?", ("item", "claims", *CLAIMS), rows, notes)


def findings(found: Sequence[Section], names: Sequence[str]) -> list[Finding]:
    """What our runs say about these claims, in this order; each result once."""
    said: dict[tuple[str, ...], Finding] = {}
    for name in names:
        for f in (f for s in found for f in s.findings if f.claim == name):
            said.setdefault((f.claim, f.reading, f.line, f.verdict, f.numbers), f)
    return list(said.values())


def by_statement(said: Sequence[Finding]) -> dict[str, list[Finding]]:
    """Findings under the statements that they decide."""
    groups: dict[str, list[Finding]] = {}
    for finding in said:
        groups.setdefault(finding.statement, []).append(finding)
    return groups


def headlines(found: Sequence[Section]) -> list[Headline]:
    """The paper's headlines as our records decide them; of some items, those that they reach."""
    said = {title: findings(found, names) for title, names in HEADLINES.items()}
    return [Headline(title, about) for title, about in said.items() if about]


def times(found: Sequence[Section], evidence: Evidence) -> Table:
    """Time of the recorded runs beside what the authors' took, one after the other."""
    rows: list[tuple[str, ...]] = []
    runs: dict[Run, Record] = {}
    measures: dict[Measure, Record] = {}
    for s in found:
        here = _recorded(s.item.runs(evidence.setting), evidence)
        taken = _measured(s.item.measures(evidence.setting), evidence)
        if here or taken:
            rows.append(_time_row(s.name, here, taken))
        runs |= here
        measures |= taken
    rows.append(_time_row("all, each once", runs, measures))
    authors = published("authors_time")
    each = ", ".join(
        f"{_range(*(60 * m for m in minutes))} ({task})"
        for task, minutes in authors["minutes"].items()
    )
    whole = _authors_time(authors["runs"])
    notes = [
        "Ours: wall time of the processes; that of a pack is shared among its seeds. Where several "
        "processes share a device each counts in full, so that a sum bounds the time on the device "
        "from above.",
        _in_all([*runs.values(), *measures.values()]),
        "Runs trained again for their weights alone have no record: they are not in.",
        *_further(runs, evidence),
        f"The authors': as many runs one after the other on Apple computers, at {each} a run. "
        f"Their own {sum(authors['runs'].values())} runs: about {_range(*whole)}.",
    ]
    tasks = {type(run.task).__name__ for run in runs}
    if "KeywordFeatures" in tasks and not evidence.setting.corpora.published:
        notes.append(SHARED)
    if "TinyStories" in tasks and not evidence.setting.corpora.published:
        notes.append("Our TinyStories is small, so its runs are not the same work as theirs.")
    spent = (f"{what} {device}" for what in ("training", "measuring") for device in DEVICES)
    columns = ("item", "runs", *spent, "authors")
    return Table("Training and measuring", columns, rows, notes)


def used(found: Sequence[Section], evidence: Evidence) -> list[Record]:
    """Every record that the items look at, once, whatever its seed."""
    items, setting = [s.item for s in found], evidence.setting
    runs = _every_seed((run for item in items for run in item.runs(setting)), evidence)
    taken = _measured((m for item in items for m in item.measures(setting)), evidence)
    return [*runs.values(), *taken.values()]


def sources(found: Sequence[Section], evidence: Evidence) -> Table:
    """Which data, devices and versions the records come from."""
    groups: dict[tuple[str, ...], list[Record]] = {}
    for record in used(found, evidence):
        where = record.environment
        about = (
            _described(record),
            str(where.get("device", "?")),
            f"{record.code_version}, {where.get('torch', '?')}, {where.get('python', '?')}",
            record.data_checksum[:12] or "none",
        )
        groups.setdefault(about, []).append(record)
    rows = []
    for (what, device, versions, checksum), records in sorted(groups.items()):
        days = sorted({str(r.environment.get("when", "?")) for r in records})
        when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
        rows.append((what, str(len(records)), device, versions, when, checksum))
    columns = ("data", "records", "device", "lohe, torch, Python", "when", "sha256 of the data")
    return Table("Records", columns, rows, mixed(used(found, evidence)))


def mixed(records: Iterable[Record]) -> list[str]:
    """What is said where one task has records of several data: recipes do not tell them apart."""
    found: dict[str, tuple[str, set[str]]] = {}
    for record in records:
        if run := _run(record):
            what = _described(record).removesuffix(MEASURED)
            _, checksums = found.setdefault(json.dumps(run["task"]), (what, set()))
            checksums.add(SAME_DATA.get(record.data_checksum, record.data_checksum))
    return [
        f"{what} has {len(checksums)} checksums of its data "
        f"({', '.join(c[:12] for c in sorted(checksums))}): these records are of "
        "different data, and are shown as one. Keep those of each in a store of its own."
        for what, checksums in found.values()
        if len(checksums) > 1
    ]


def margins() -> Table:
    """The margins of rules.json."""
    rows = [
        (name, f"{m['value']:g}", m["unit"], m["why"]) for name, m in rules()["margins"].items()
    ]
    return Table("Margins", ("margin", "value", "unit", "why"), rows)


def _not_judged(judged: Judged) -> Judged:
    return replace(judged, value=NOT_JUDGED, claim=NOT_JUDGED if judged.claim else "", note="")


def _counted(name: str, total: int, words: Sequence[str], said: Iterable[str]) -> tuple[str, ...]:
    count = Counter(said)
    return (name, str(total), *(str(count[word] or ZERO) for word in words))


def _finding(item: str, judged: Judged, claim: Claim) -> Finding:
    line, verdict = judged.line, judged.claim_said
    hidden = verdict == NOT_JUDGED or (verdict == NO_RECORDS and not claim.lacks)
    numbers = "" if hidden else claim.numbers
    return Finding(claim.name, claim.statement, verdict, line.what, line.reading, numbers, item)


def _recorded(runs: Iterable[Run], evidence: Evidence) -> dict[Run, Record]:
    """Those of the runs that have a record."""
    return {run: record for run in runs if (record := evidence.recorded(run))}


def _every_seed(runs: Iterable[Run], evidence: Evidence) -> dict[Run, Record]:
    """Every record of the runs' recipes, also of seeds that are not among them."""
    recipes = dict.fromkeys(replace(run, seed=0) for run in runs)
    return {replace(x, seed=r.seed): r for x in recipes for r in evidence.records(x)}


def _further(runs: Mapping[Run, Record], evidence: Evidence) -> list[str]:
    """What is said where there are more seeds than the items ask for."""
    more = len(_every_seed(runs, evidence)) - len(runs)
    return [f"Records of further seeds, which tables may use: {more}; not in."] if more else []


def _measured(measures: Iterable[Measure], evidence: Evidence) -> dict[Measure, Record]:
    """Those of the measures that were taken."""
    return {m: record for m in measures if (record := evidence.measured(m))}


def _time_row(
    name: str, runs: Mapping[Run, Record], measures: Mapping[Measure, Record]
) -> tuple[str, ...]:
    count = Counter(TASKS.get(type(run.task).__name__) for run in runs if run.limit is None)
    low, high = _authors_time({task: n for task, n in count.items() if task})
    spent = (
        _seconds(records.values(), device) for records in (runs, measures) for device in DEVICES
    )
    shown = (duration(seconds) if seconds else "" for seconds in spent)
    return (name, str(len(runs)), *shown, _range(low, high) if high else "")


def _seconds(records: Iterable[Record], device: str) -> float:
    """Wall time on one kind of device."""
    here = (r for r in records if str(r.environment.get("device", "")).startswith(DEVICES[device]))
    return sum(r.wall_seconds for r in here)


def _in_all(records: Sequence[Record]) -> str:
    """The sum for each kind of device, and what was aimed at."""
    gpu, cpu = (_seconds(records, device) / 3600 for device in DEVICES)
    return f"In all {gpu:.1f} GPU hours (we had hoped for {GPU_AIM_H:g}) and {cpu:.1f} CPU hours."


def _authors_time(runs: Mapping[str, int]) -> tuple[float, float]:
    """Seconds that so many runs of each task take one after the other, at least and at most."""
    minutes = published("authors_time")["minutes"]
    low, high = (sum(60 * n * minutes[task][end] for task, n in runs.items()) for end in (0, 1))
    return low, high


def _range(low: float, high: float) -> str:
    """5-9 h, in the unit of the longer one.

    >>> _range(300, 1800), _range(3 * 3600, 3.7 * 3600), _range(300, 300)
    ('5-30 min', '3-3.7 h', '5 min')
    """
    scale, unit = (3600, "h") if high >= 5400 else (60, "min")
    shown = [f"{x / scale:.0f}" if x >= 10 * scale else f"{x / scale:.2g}" for x in (low, high)]
    return f"{'-'.join(dict.fromkeys(shown))} {unit}"


def _described(record: Record) -> str:
    """Task and its choices: what the data is."""
    run = _run(record)
    if not run:
        return "mathematics"
    task = dict(run["task"])
    name = task.pop("type")
    words = task.pop("words", None)
    kept = [f"{len(words)} words"] if words else []
    kept += [str(task[k]) for k in ("release", "version", "name") if k in task]
    about = f" ({', '.join(kept)})" if kept else ""
    return f"{TASKS.get(name, name)}{about}{'' if run is record.recipe else MEASURED}"


def _run(record: Record) -> dict[str, Any] | None:
    """The recipe of the run that it is of, or that was measured; None for mathematics."""
    return record.recipe if "task" in record.recipe else record.recipe.get("run")
