"""One file for all seeds of a recipe: JSON, with a line of its own for each seed.

{"lohe":"records","recipe":{...},"records":[
{"schema":1,"seed":0,...},
{"schema":1,"seed":1,...}
]}
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lohe.experiments.store import exact, files, records
from lohe.experiments.store.files import Damaged
from lohe.experiments.store.records import Record

# The order in a line: what one looks for first, the long curve last.
ORDER = (
    "schema",
    "seed",
    "result",
    "wall_seconds",
    "code_version",
    "data_checksum",
    "environment",
    "notes",
    "curve",
)
RESTORE = (
    "Restore it from version control or a backup, or move it out of this folder to start over."
)
FOREIGN = "Move it elsewhere if it is not a file of records."
UPDATE = "Update lohe to read it."


@dataclass(frozen=True)
class RecordFile:
    """Records by seed, and each one's line as it stands: old lines are kept to the letter."""

    recipe: dict[str, Any]
    records: dict[int, Record]
    rows: dict[int, dict[str, Any]]

    def merged(self, new: list[Record]) -> "RecordFile":
        """With the `new` records, which take the place of those with the same seed."""
        return RecordFile(
            self.recipe,
            self.records | {record.seed: record for record in new},
            self.rows | {record.seed: _row(record) for record in new},
        )


def read(path: Path) -> RecordFile:
    """The file at `path`, every record upgraded to the current schema; or Damaged."""
    raw = _object(path)
    if raw.get("lohe") != "records" or raw.keys() != {"lohe", "recipe", "records"}:
        raise Damaged(path, "JSON, but not a file of records", FOREIGN)
    recipe, rows = raw["recipe"], raw["records"]
    if not isinstance(recipe, dict) or not isinstance(rows, list):
        raise Damaged(path, "a file of records without a recipe or records", RESTORE)
    _check_name(path, recipe)
    found: dict[int, Record] = {}
    kept: dict[int, dict[str, Any]] = {}
    for row in rows:
        record = _record(path, recipe, row)
        if record.seed in found:
            raise Damaged(path, f"seed {record.seed} appears twice", RESTORE)
        found[record.seed] = record
        kept[record.seed] = row
    return RecordFile(recipe, found, kept)


def write(path: Path, content: RecordFile) -> None:
    head = f'{{"lohe":"records","recipe":{exact.dumps(content.recipe)},"records":[\n'
    lines = ",\n".join(exact.dumps(content.rows[seed]) for seed in sorted(content.rows))
    files.write(path, f"{head}{lines}\n]}}\n".encode())


def _object(path: Path) -> dict[str, Any]:
    try:
        data = path.read_bytes()
    except OSError as reason:
        raise Damaged(path, f"cannot be read ({reason.strerror})", FOREIGN) from reason
    try:
        raw = exact.loads(data)
    except ValueError as reason:
        what = f"{len(data)} bytes that are not JSON, as if cut short or edited ({reason})"
        raise Damaged(path, what, RESTORE) from reason
    if not isinstance(raw, dict):
        raise Damaged(path, "JSON, but not a file of records", FOREIGN)
    return raw


def _check_name(path: Path, recipe: dict[str, Any]) -> None:
    try:
        key = records.key(recipe)
    except ValueError as reason:
        raise Damaged(path, f"not a recipe: {reason}", RESTORE) from reason
    if not path.stem.endswith(f"-{key}"):
        what = f"its recipe has the key {key}, which its name does not end in"
        raise Damaged(path, what, f"Name it NAME-{key}.json if the recipe inside is right.")


def _record(path: Path, recipe: dict[str, Any], row: Any) -> Record:
    if not isinstance(row, dict) or "recipe" in row:
        raise Damaged(path, "an entry that is not a record", RESTORE)
    try:
        return records.from_plain({**row, "recipe": recipe})
    except records.NewerSchema as reason:
        raise Damaged(path, str(reason), UPDATE) from reason
    except ValueError as reason:
        raise Damaged(path, str(reason), RESTORE) from reason


def _row(record: Record) -> dict[str, Any]:
    fields = records.to_plain(record)
    return {name: fields[name] for name in ORDER}
