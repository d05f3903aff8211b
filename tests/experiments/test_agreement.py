"""Subject-verb agreement: the published seeds, taken for ours, give the paper's statements."""

from collections.abc import Iterable

from lohe.experiments import agreement
from lohe.experiments.evidence import Evidence
from lohe.experiments.records import Record
from lohe.experiments.reported import published
from lohe.experiments.setting import Setting
from lohe.train import Run

THEIRS = {"softmax": "softmax", "oscillator, as published": "oscillator"}


def record(run: Run, **result: float) -> Record:
    return Record(
        recipe=run.recipe(),
        seed=run.seed,
        code_version="0",
        data_checksum="0",
        environment={},
        result=result,
        wall_seconds=1.0,
        curve=[],
    )


def as_published(scale: str = "full") -> list[Record]:
    """The published values, as if they were our records."""
    values, setting = published("table2")["per_seed"], Setting(scale)
    return [
        record(
            setting.agreement(agreement.MECHANISMS[name], seed),
            **{"valid.overall": overall, "valid.hard": hard},
        )
        for name, theirs in THEIRS.items()
        for seed, (overall, hard) in enumerate(
            zip(values[theirs]["overall"], values[theirs]["hard"], strict=True)
        )
    ]


def evidence(records: Iterable[Record], scale: str = "full") -> Evidence:
    return Evidence(records, Setting(scale))


def rows(table) -> dict[str, list[str]]:
    return {name: rest for name, *rest in table.rows}


def test_the_papers_own_records_give_the_papers_table():
    table = agreement.table_2(evidence(reversed(as_published())))
    shown = rows(table)
    assert shown["softmax"] == ["91.04 ± 8.32", "90.77 ± 9.28", "95.49", "12/50", "13-38 %"]
    assert shown["softmax"] == shown["softmax (paper)"]
    assert shown["oscillator, as published"] == shown["oscillator (paper)"]
    said = " ".join(table.notes)
    assert said.count("is consistent with the published mean, difference +0.00 pp") == 2
    assert "3/50 and 12/50 failures, Fisher p = 0.023" in said
    assert "Mann-Whitney p = 0.00089" in said


def test_one_record_has_no_spread_and_no_claims():
    table = agreement.table_2(evidence(as_published()[:1]))
    overall, *_, failed, _ = rows(table)["softmax"]
    assert "±" not in overall
    assert failed == "0/1"
    assert len(table.notes) == 1


def test_records_come_in_the_order_of_their_seeds():
    groups = agreement.by_mechanism(evidence(reversed(as_published())))
    assert [record.seed for record in groups["softmax"]] == list(range(50))
    assert groups["oscillator, as defined"] == []


def test_a_table_counts_only_its_own_scale_and_recipes():
    smoke = as_published("smoke")
    assert set(rows(agreement.table_2(evidence(smoke)))) == {
        "softmax (paper)",
        "oscillator (paper)",
    }
    shown = agreement.table_2(evidence(smoke, "smoke"))
    assert rows(shown)["softmax"][3] == "12/50"
    assert "nothing has been learned" in shown.notes[-1]


def test_the_runs_are_our_cohort_and_at_smoke_scale_a_glance():
    assert len(agreement.runs(Setting())) == 5 * agreement.COHORT
    assert {run.epochs for run in agreement.runs(Setting("smoke"))} == {2}
