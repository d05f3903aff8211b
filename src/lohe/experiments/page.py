"""The report as one page that carries its pictures, and the pictures beside it."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from lohe.experiments import provenance, report
from lohe.experiments.evidence import Evidence
from lohe.experiments.item import Item
from lohe.experiments.report import Finding, Section
from lohe.experiments.store import files
from lohe.experiments.tables import Table, brackets, unreported, verdict_rows
from lohe.experiments.verdicts import Agreement, rules
from lohe.version import __version__
from lohe.viz import html
from lohe.viz.html import Picture
from lohe.viz.style import drawing, save

TITLE = "Attention by synchronization: the paper's numbers beside ours"
ABOUT = (
    "Every table, figure and claim of *Attention by Synchronization in Coupled Oscillator Networks*"
    " (Pasqualetti and Guo, TMLR 2026) as lohe, an independent implementation, finds it. *As "
    "published* is what the authors' code does, with anchors that may leave the sphere; *as "
    "defined* is what the paper says, with anchors on it."
).replace("*", "")
GLOSSARY = (
    "KWS: keyword spotting. SVA: subject-verb agreement. PPL: perplexity. pp: percentage points. "
    "d_osc: dimensions of the space whose unit sphere an oscillator moves on. "
    "p: power in the readout, where larger is sharper."
)
KINDS = {"table": "Tables", "figure": "Figures"}  # by how an item's name begins; else:
STATEMENTS = "Statements in the text"
END = {
    "time": "Time",
    "rules": "How it was judged",
    "sources": "Where the records come from",
}


def write(folder: Path, items: Mapping[str, Item], evidence: Evidence) -> Path:
    """FOLDER/index.html with everything inside, and FOLDER/figures/*.png."""
    found = report.sections(items, evidence)
    pictures = {s.name: path for s in found if (path := draw(s, evidence, folder / "figures"))}
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "index.html"
    files.write(path, page(found, pictures, evidence).encode())
    return path


def draw(section: Section, evidence: Evidence, folder: Path) -> Path | None:
    """The item's figure as a file; None where it has none."""
    if section.item.figure is None:
        return None
    with drawing():
        return save(section.item.figure(evidence), folder / f"{section.name}.png")


def page(found: Sequence[Section], pictures: Mapping[str, Path], evidence: Evidence) -> str:
    """The page as one string."""
    names = [s.name for s in found]
    body = [html.paragraph(ABOUT), html.paragraph(GLOSSARY), html.facts(_circumstances(evidence))]
    body += [html.heading("Contents", "contents"), html.contents(_contents(found))]
    body += [html.heading("Summary", "summary"), html.paragraph(report.overall(found))]
    for table in (report.values(found), report.claims(found)):
        body += _table(table, links=names)
    if headlines := _headlines(found):
        body += [html.heading("Headlines", "headlines"), *headlines]
    for section in found:
        body += _section(section, pictures.get(section.name), evidence)
    body += [html.heading(END["time"], "time"), *_table(report.times(found, evidence), names)]
    body += [html.heading(END["rules"], "rules"), *_rules(found)]
    body += [html.heading(END["sources"], "sources"), *_sources(found, evidence)]
    return html.page(TITLE, body)


def _circumstances(evidence: Evidence) -> dict[str, str]:
    setting = evidence.setting
    return {
        "Made by": f"`lohe compare --html`, lohe {__version__}, {time.strftime('%Y-%m-%d')}",
        "Scale": setting.scale + (": nothing is judged" if setting.scale == "smoke" else ""),
        "Corpora": f"{setting.corpora.name}: see the end of the page",
    }


def _headlines(found: Sequence[Section]) -> list[str]:
    parts = []
    for headline in report.headlines(found):
        parts.append(html.heading(headline.title, level=3))
        parts += _findings(headline.findings, link=True)
    return parts


def _findings(said: Sequence[Finding], *, link: bool = False) -> list[str]:
    """Each statement, and below it what decides it."""
    parts = []
    for statement, findings in report.by_statement(said).items():
        lines = [(f.verdict, f.said, f.item if link else "") for f in findings]
        parts += [html.paragraph(statement), html.marked(lines)]
    return parts


def _contents(found: Sequence[Section]) -> dict[str, dict[str, str]]:
    groups: dict[str, dict[str, str]] = {}
    for s in found:
        kind = next((title for start, title in KINDS.items() if s.name.startswith(start)), None)
        groups.setdefault(kind or STATEMENTS, {})[s.name] = s.item.title
    outcome = {"summary": "Summary"}
    outcome |= {"headlines": "Headlines"} if report.headlines(found) else {}
    return {"Outcome": outcome, **groups, "About": END}


def _section(section: Section, picture: Path | None, evidence: Evidence) -> list[str]:
    item, judged = section.item, section.judged
    parts = [html.heading(item.title, section.name)]
    if picture:
        made = f"Made by `lohe show {section.name} --figure {picture.name}`."
        parts.append(html.figure([Picture(picture, item.title)], made))
    if item.table:
        parts += _table(item.table(evidence), below=item.title)
    if mixed := report.mixed(report.used([section], evidence)):
        parts.append(html.bullets(mixed, notes=True))
    if judged:
        columns, rows = verdict_rows(judged)
        parts.append(html.table("Verdicts", columns, rows, narrow="stack"))
        if legend := unreported(judged):
            parts.append(html.bullets(legend, notes=True))
        parts += _findings(section.findings)
        notes = [f"{what}: {j.note}." for (what, *_), j in zip(rows, judged, strict=True) if j.note]
        compared = sum(isinstance(j.line.value, Agreement) for j in judged)
        if notes:
            said = "The numbers behind the verdicts"
            if compared:
                said += f" (values compared and Holm-corrected together: {compared})"
            parts.append(html.details(said, [html.bullets(notes + brackets(notes), notes=True)]))
        if about := provenance.notes(item.measures(evidence.setting), evidence):
            parts.append(html.bullets(about, notes=True))
    else:
        parts.append(html.paragraph("Nothing of this is judged."))
    return parts


def _rules(found: Sequence[Section]) -> list[str]:
    given, margins = rules(), report.margins()
    return [
        html.paragraph(
            f"Rules and margins were committed on {given['committed']}, before the full runs but "
            f"for these: {given['seen_before']}"
        ),
        html.details("Changed since, by date", [html.bullets(given["changed"])]),
        html.facts({name.capitalize(): text for name, text in given["rules"].items()}),
        html.table(margins.title, margins.columns, margins.rows, narrow="stack", text=True),
        html.details("Every claim and its test", [_claims(found)]),
    ]


def _claims(found: Sequence[Section]) -> str:
    rows = []
    for name, claim in rules()["claims"].items():
        if words := dict.fromkeys(f.verdict for f in report.findings(found, [name])):
            rows.append((claim["statement"], claim["test"], ", ".join(words)))
    return html.table("Claims", ("claim", "test", "verdict"), rows, narrow="stack", text=True)


def _sources(found: Sequence[Section], evidence: Evidence) -> list[str]:
    corpora = evidence.setting.corpora
    theirs = "they are the paper's" if corpora.published else "they are not all the paper's"
    parts = [html.paragraph(f"The corpora are the set `{corpora.name}`; {theirs}.")]
    parts.append(html.bullets(corpora.differs))
    table = report.sources(found, evidence)
    parts.append(html.table(table.title, table.columns, table.rows, narrow="stack", text=True))
    return [*parts, html.bullets(table.notes, notes=True)] if table.notes else parts


def _table(table: Table, links: Sequence[str] = (), below: str = "") -> list[str]:
    shown = html.table(table.title, table.columns, table.rows, links=links, below=below)
    return [shown, html.bullets(table.notes, notes=True)] if table.notes else [shown]
