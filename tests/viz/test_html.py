"""HTML primitives: text is text, and a picture travels inside."""

import base64

from lohe.viz import html

EVIL = '<script>alert("x")</script> & more'


def test_text_is_escaped_everywhere(tmp_path):
    (tmp_path / "a.png").write_bytes(b"png")
    picture = html.Picture(tmp_path / "a.png", EVIL)
    parts = [
        html.heading(EVIL),
        html.paragraph(EVIL),
        html.bullets([EVIL]),
        html.facts({EVIL: EVIL}),
        html.table(EVIL, [EVIL], [[EVIL]]),
        html.figure([picture], EVIL),
        html.heading("plain", EVIL),
        html.contents({EVIL: {EVIL: EVIL}}),
        html.marked([(EVIL, EVIL, EVIL)]),
        html.details(EVIL, []),
        html.table("plain", ["a", EVIL], [[EVIL, EVIL]], narrow="stack", links=[EVIL]),
    ]
    page = html.page(EVIL, parts)
    assert "<script" not in page
    assert page.count("&lt;script&gt;") == 13 + 1 + 3 + 4 + 1 + 5


def test_a_picture_is_carried_by_the_page(tmp_path):
    (tmp_path / "a.png").write_bytes(b"the picture")
    page = html.figure([html.Picture(tmp_path / "a.png", "what it shows")], "a caption")
    assert base64.b64encode(b"the picture").decode() in page
    assert 'alt="what it shows"' in page


def test_a_picture_scrolls_before_its_letters_are_too_small(tmp_path):
    for width, least in ((1000, 420), (2000, 840)):  # letters are of one size in all of them
        header = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + width.to_bytes(4)
        (tmp_path / "a.png").write_bytes(header)
        picture = html.Picture(tmp_path / "a.png", "")
        alone, both = html.figure([picture], ""), html.figure([picture, picture], "")
        assert f"min-width: {least}px" in alone
        assert 'wide" tabindex="0"' in alone
        assert ("few" in alone) == (width == 1000)  # a small one is not blown up
        assert "min-width" not in both


def test_backticks_are_code_and_verdicts_have_a_colour():
    assert html.paragraph("run `lohe demo`") == "<p>run <code>lohe demo</code></p>"
    assert "<span>--seeds</span> <span>0-49</span>" in html.paragraph("`lohe run --seeds 0-49`")
    assert "<span>" not in html.paragraph(f"`/a-{'long-' * 10}path`")
    assert '<td class="good">consistent</td>' in html.table("t", ["a"], [["consistent"]])
    assert '<td class="bad">differs</td>' in html.table("t", ["a"], [["differs"]])
    assert "<td>1.0</td>" in html.table("t", ["a"], [["1.0"]])


def test_a_table_repeats_no_heading_and_breaks_no_number():
    rows = [["95.78 ± 6.82"]]
    assert "<h3>" not in html.table("Table 2. Accuracy", ["a"], rows, below="Table 2. Accuracy, %")
    assert "<h3>Table 2. Accuracy</h3>" in html.table("Table 2. Accuracy", ["a"], rows, below="")
    assert "95.78\xa0±\xa06.82" in html.table("t", ["a"], rows)
    assert "of <code>named</code></th>" in html.table("t", ["of `named`"], rows)
    stacked = html.table("t", ["a", "of `named`"], [["", "1"]], narrow="stack")
    assert 'data-name="of named"' in stacked


def test_links_lead_to_headings():
    assert html.heading("Table 2", "table2") == '<h2 id="table2">Table 2</h2>'
    assert html.heading("small", level=3) == "<h3>small</h3>"
    assert '<a href="#table2">Table 2</a>' in html.contents({"Tables": {"table2": "Table 2"}})
    linked = html.table("t", ["item", "n"], [["table2", "1"], ["all", "2"]], links=["table2"])
    assert '<td><a href="#table2">table2</a></td>' in linked
    assert "<td>all</td>" in linked


def test_a_stacked_table_names_its_cells():
    shown = html.table("t", ["line", "paper"], [["a", "1"]], narrow="stack")
    assert '<td data-name="paper">1</td>' in shown
    assert "data-name" not in html.table("t", ["line", "paper"], [["a", "1"]])


def test_a_list_may_begin_with_verdicts():
    assert html.marked([("holds", ": `p` = 1", "")]) == (
        '<ul><li><span class="good">holds</span>: <code>p</code> = 1</li></ul>'
    )
    assert html.marked([("maybe", "", "table2")]) == (
        '<ul><li>maybe <a href="#table2">table2</a></li></ul>'
    )
