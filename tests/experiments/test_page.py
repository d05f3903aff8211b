"""One page with everything inside."""

import base64
import re
from html.parser import HTMLParser

import pytest

import fakes
from lohe.experiments import page
from lohe.experiments.evidence import Evidence
from lohe.experiments.setting import Setting
from lohe.experiments.verdicts import rules

VOID = {"meta", "img", "br"}


class Structure(HTMLParser):
    """Tags that are open, headings that can be linked to, links, and addresses."""

    def __init__(self):
        super().__init__()
        self.open: list[str] = []
        self.names: list[str] = []
        self.links: list[str] = []
        self.addresses: list[str] = []

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        if tag not in VOID:
            self.open.append(tag)
        self.names += [given["id"]] if "id" in given else []
        self.links += [given["href"]] if "href" in given else []
        self.addresses += [given["src"]] if "src" in given else []

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page") / "deep" / "er"
    records = [fakes.record(run) for run in fakes.two_mechanisms(Setting())]
    evidence = Evidence(records, Setting())
    path = page.write(folder, fakes.items(fakes.two_mechanisms), evidence)
    assert path == folder / "index.html"
    structure = Structure()
    structure.feed(path.read_text(encoding="utf-8"))
    return folder, path.read_text(encoding="utf-8"), structure


def test_it_is_whole_and_every_link_leads_somewhere(written):
    *_, structure = written
    assert structure.open == []
    assert len(set(structure.names)) == len(structure.names)
    assert {link.removeprefix("#") for link in structure.links} <= set(structure.names)
    assert {"table2", "figure6", "claim-budget", "rules", "sources"} <= set(structure.names)


def test_it_refers_to_nothing_outside(written):
    _, text, structure = written
    assert all(address.startswith("data:image/png;base64,") for address in structure.addresses)
    assert not re.search(r"https?://|<script|<link|@import|url\(", text)


def test_figures_are_inside_and_beside(written):
    folder, text, structure = written
    files = sorted((folder / "figures").iterdir())
    assert [file.name for file in files] == ["figure6.png", "table2.png"]
    for file in files:
        assert base64.b64encode(file.read_bytes()).decode() in text
    assert len(structure.addresses) == 2


def test_everything_is_said(written):
    _, text, _ = written
    for said in (
        "Table 2. Something &amp; more",
        "<td>95.78\xa0±\xa06.82</td>",
        '<td class="good" data-name="value">reproduced</td>',
        '<td class="bad" data-name="value">differs</td>',
        '<td class="open" data-name="value">inconclusive</td>',
        '<span class="bad">does not hold</span>, as defined, failures: 60/200 against 58/200',
        "<p>Training fails in fewer seeds with the oscillator than with softmax.</p>",
        "why &lt;b&gt;not&lt;/b&gt;",
        "(values compared and Holm-corrected together: 3)",
        "Brackets behind it, or behind pp: its 90 % interval.",
        "KWS: keyword spotting.",
        "before the full runs",
        "27,096 chunks",
        "the largest standard deviation over seeds in the published grid",
        "Fisher&#x27;s exact test on seeds",
    ):
        assert said in text, said


def test_changes_of_the_rules_are_listed_by_date_and_whole(written):
    entries = rules()["changed"]
    assert all(entry.startswith("2026-") and entry.endswith(".") for entry in entries)
    assert written[1].count("<li>2026-") == len(entries)


def test_without_records_there_is_a_page_too(tmp_path):
    nothing = Evidence([], Setting())
    path = page.write(tmp_path, fakes.items(fakes.two_mechanisms), nothing)
    assert "no records" in path.read_text(encoding="utf-8")


def test_the_same_records_give_the_same_page(written, tmp_path):
    _, text, _ = written
    records = [fakes.record(run) for run in fakes.two_mechanisms(Setting())]
    evidence = Evidence(records, Setting())
    again = page.write(tmp_path, fakes.items(fakes.two_mechanisms), evidence)
    assert again.read_text(encoding="utf-8") == text
