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
    ]
    page = html.page(EVIL, parts)
    assert "<script" not in page
    assert page.count("&lt;script&gt;") == 13


def test_a_picture_is_carried_by_the_page(tmp_path):
    (tmp_path / "a.png").write_bytes(b"the picture")
    page = html.figure([html.Picture(tmp_path / "a.png", "what it shows")], "a caption")
    assert base64.b64encode(b"the picture").decode() in page
    assert 'alt="what it shows"' in page


def test_backticks_are_code_and_verdicts_have_a_colour():
    assert html.paragraph("run `lohe demo`") == "<p>run <code>lohe demo</code></p>"
    assert "<span>--seeds</span> <span>0-49</span>" in html.paragraph("`lohe run --seeds 0-49`")
    assert "<span>" not in html.paragraph(f"`/a-{'long-' * 10}path`")
    assert '<td class="good">consistent</td>' in html.table("t", ["a"], [["consistent"]])
    assert '<td class="bad">differs</td>' in html.table("t", ["a"], [["differs"]])
    assert "<td>1.0</td>" in html.table("t", ["a"], [["1.0"]])
