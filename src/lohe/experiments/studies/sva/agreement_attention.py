"""Where the verb of a sentence attends: to its subject, or to the noun beside it (Sec. 4.1)."""

from collections.abc import Mapping, Sequence
from math import isnan
from statistics import fmean

from lohe.experiments.evidence import Evidence
from lohe.experiments.item import Item
from lohe.experiments.reported import published
from lohe.experiments.store.records import Record
from lohe.experiments.studies.sva.agreement_cohort import (
    COMPARED,
    FAILS_BELOW,
    NO_RECORDS,
    OSCILLATORS,
    SOFTMAX,
    as_printed,
    below,
    kind,
    line,
    none_yet,
    signed,
    spread,
    undecided,
)
from lohe.experiments.studies.sva.agreement_verbs import (
    SIDES,
    good,
    hard_accuracy,
    means,
    measured,
    measures,
)
from lohe.experiments.tables import Table, plus_minus
from lohe.experiments.verdicts import (
    Agreement,
    Claim,
    Line,
    exactly,
    margin,
    mean,
    of_sample,
    significant,
)

Records = Mapping[str, list[Record]]
TARGETS = ("to_subject", "to_distractor")


def table_3(evidence: Evidence) -> Table:
    """Table 3 (tab:attention): the verb's attention on correct and on wrong predictions."""
    found, theirs = measured(evidence), published("table3")
    rows = []
    for name, records in found.items():
        rows += [_row(name, side, records) for side in SIDES if records]
    for mechanism in (SOFTMAX, "oscillator"):
        for side in SIDES:
            cell = theirs["cells"][mechanism][side]
            shown = (plus_minus(*cell[target]) for target in TARGETS)
            name = f"{mechanism} (paper)"
            rows.append((name, side, str(theirs["runs"]), "", *shown, f"{cell['gap']:+.2f}"))
    notes = [
        "Hard validation sentences; means over seeds of the mean of each seed, ± over seeds.",
        "The five published runs are not seeds 0-4 of Table 2 (D19).",
        *_failed(found),
        *none_yet(evidence, "table3", rows),
    ]
    columns = ("attention", "split", "seeds", "sentences", "a_vs", "a_vd", "gap")
    return Table("Table 3. Attention of the verb", columns, rows, notes)


def _failed(found: Records) -> list[str]:
    """How many of the models that were looked at had failed."""
    hard = {name: [hard_accuracy(r) for r in records] for name, records in found.items() if records}
    said = [f"{below(x, FAILS_BELOW)}/{len(x)} {name}" for name, x in hard.items()]
    return [f"Failed among these: {'; '.join(said)}."] if said else []


def _row(name: str, side: str, records: Sequence[Record]) -> tuple[str, ...]:
    gaps = means(records, f"{side}.gap")
    sentences = sum(int(record.result[f"{side}.sentences"]) for record in records)
    shown = (spread(means(records, f"{side}.{target}")) for target in TARGETS)
    gap = f"{fmean(gaps):+.2f}" if gaps else ""
    return (name, side, str(len(gaps)), f"{sentences:,}", *shown, gap)


def lines_3(evidence: Evidence) -> list[Line]:
    """Every number of Table 3 and of its caption."""
    found = measured(evidence)
    lines = [count_line("hard sentences", "hard_sentences", found)]
    for name in COMPARED:
        lines += [one for side in SIDES for one in _cell_lines(name, side, found)]
        if name in OSCILLATORS:
            lines.append(_larger_line(name, found[name]))
    return [*lines, *_softmax_lines(found[SOFTMAX]), *_accuracy_lines(found)]


def count_line(what: str, key: str, found: Records) -> Line:
    """Sentences that were looked at: the published number, to the unit."""
    names = {"hard_sentences": [f"{side}.sentences" for side in SIDES]}
    columns = names.get(key, ["test.sentences"])
    seen = {sum(r.result[c] for c in columns) for records in found.values() for r in records}
    theirs = published("table3")[key]
    if not seen:
        return Line(what, f"{theirs:,}", "", NO_RECORDS)
    value = Agreement(exactly(max(seen, key=lambda n: abs(n - theirs)) - theirs), margin("exact"))
    return Line(what, f"{theirs:,}", ", ".join(f"{n:,.0f}" for n in sorted(seen)), value)


def _cell_lines(name: str, side: str, found: Records) -> list[Line]:
    """To subject, to distractor, and the gap between them."""
    mechanism, reading = kind(name)
    theirs = published("table3")
    cell, gaps = theirs["cells"][mechanism][side], theirs["gap"][mechanism][side]
    lines = []
    for target, symbol in zip(TARGETS, ("a_vs", "a_vd"), strict=True):
        sample = means(found[name], f"{side}.{target}")
        lines.append(
            line(
                f"{mechanism}, {side}, {symbol}",
                plus_minus(*cell[target]),
                spread(sample),
                mean(sample),
                as_printed(cell[target], theirs["runs"]),
                allowed="attention_weight",
                reading=reading,
            )
        )
    mine = mean(means(found[name], f"{side}.gap"))
    claim = None
    if mechanism == "oscillator":
        claim = _to_subject(name, found) if side == "correct" else _even_wrong(found[name])
    lines.append(
        line(
            f"{mechanism}, {side}, gap",
            f"{cell['gap']:+.2f}",
            signed(mine, unit=""),
            mine,
            of_sample(gaps),
            allowed="attention_weight",
            claim=claim,
            reading=reading,
            change=True,
        )
    )
    return lines


def _to_subject(name: str, found: Records) -> Claim:
    """Gap on correct predictions above 0, for this oscillator and for softmax."""
    gaps = {n: mean(means(found[n], "correct.gap")) for n in (name, SOFTMAX)}
    known = {n: gap for n, gap in gaps.items() if gap}
    if len(known) < len(gaps):
        return undecided("sva-attention")
    holds = all(gap.value > 0 and significant(gap.p) for gap in known.values())
    said = "; ".join(f"{kind(n)[0]} {g.value:+.3f}, p = {g.p:.2g}" for n, g in known.items())
    return Claim("sva-attention", holds, said, max(gap.p for gap in known.values()))


def _even_wrong(records: Sequence[Record]) -> Claim:
    """Positive in every seed, on wrong predictions."""
    gaps = means(records, "wrong.gap")
    if not gaps:
        return undecided("sva-attention-wrong")
    well = means(good(records), "wrong.gap")
    found = (
        f"positive in {sum(x > 0 for x in gaps)} of {len(gaps)} seeds, and in "
        f"{sum(x > 0 for x in well)} of the {len(well)} that did not fail; lowest {min(gaps):+.3f}"
    )
    return Claim("sva-attention-wrong", min(gaps) > 0, found)


def _larger_line(name: str, records: Sequence[Record]) -> Line:
    """The gap on wrong predictions less that on correct ones, seed by seed."""
    theirs = published("table3")["gap"]["oscillator"]
    printed = [a - b for a, b in zip(theirs["wrong"], theirs["correct"], strict=True)]
    both = [r for r in records if not isnan(r.result["wrong.gap"] - r.result["correct.gap"])]
    mine = mean([r.result["wrong.gap"] - r.result["correct.gap"] for r in both])
    claim = undecided("sva-attention-larger")
    if mine:
        found = f"{mine.value:+.3f}, t-test p = {mine.p:.2g}"
        claim = Claim("sva-attention-larger", mine.value > 0 and significant(mine.p), found, mine.p)
    return Line(
        "oscillator, gap on wrong less gap on correct predictions",
        f"{fmean(printed):+.2f}",
        signed(mine, unit=""),
        "not comparable" if mine else NO_RECORDS,
        claim,
        kind(name)[1],
        "the gaps are judged one by one",
    )


def _softmax_lines(records: Sequence[Record]) -> list[Line]:
    """The caption's two kinds of softmax runs: four good ones, and one that failed."""
    theirs = published("table3")
    pairs = zip(theirs["gap"]["softmax"]["wrong"], theirs["hard"]["softmax"], strict=True)
    four = [gap for gap, hard in pairs if hard >= FAILS_BELOW]
    well = mean(means(good(records), "wrong.gap"))
    failed = [r for r in records if hard_accuracy(r) < FAILS_BELOW]
    gaps = means(failed, "wrong.gap")
    return [
        line(
            "softmax, wrong, gap of seeds that did not fail",
            "+0.23",
            signed(well, unit=""),
            well,
            of_sample(four),
            allowed="attention_weight",
            change=True,
        ),
        Line(
            "softmax, wrong, gap of seeds that failed",
            "-0.08",
            spread(gaps),
            "not comparable" if gaps else NO_RECORDS,
            _collapse(gaps),
            note=_reversed(gaps),
        ),
    ]


def _collapse(gaps: Sequence[float]) -> Claim:
    """Failed softmax runs favour the distractor where they are wrong."""
    mine = mean(gaps)
    if mine is None:
        return undecided("sva-collapse")
    found = f"mean {mine.value:+.3f}, t-test p = {mine.p:.2g}"
    return Claim("sva-collapse", mine.value < 0 and significant(mine.p), found, mine.p)


def _reversed(gaps: Sequence[float]) -> str:
    said = "one run of theirs"
    if gaps:
        said += f"; negative in {sum(x < 0 for x in gaps)} of our {len(gaps)} that failed"
    return said


def _accuracy_lines(found: Records) -> list[Line]:
    """The runs that were looked at are about as good as the published five."""
    lines = []
    for name in OSCILLATORS:
        sample = [hard_accuracy(record) for record in good(found[name])]
        lines.append(
            line(
                "oscillator, hard % of the runs analysed",
                "about 97",
                spread(sample),
                mean(sample),
                of_sample(published("table3")["hard"]["oscillator"]),
                reading=kind(name)[1],
                note="none of the published five failed: ours without those that did",
            )
        )
    return lines


ITEMS: dict[str, Item] = {
    "table3": Item(
        title="Table 3. Attention of the verb on correct and wrong predictions",
        measures=measures,
        table=table_3,
        lines=lines_3,
    ),
}
