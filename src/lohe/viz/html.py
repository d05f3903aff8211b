"""One plain HTML page that carries everything it shows: text and pictures in, a string out."""

import base64
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Literal

STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --paper: #ffffff; --soft: #5a6572;
  --line: #d5dae0; --good: #00664b; --bad: #a03c00; --open: #6b5200; --link: #0060a0; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e7eb; --paper: #15181c; --soft: #a3adb8;
  --line: #3a424b; --good: #45c79b; --bad: #ff9a5c; --open: #e0bf5e; --link: #7cc0f0; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem 1rem 4rem; max-width: 64rem; background: var(--paper);
  color: var(--ink); font: 1rem/1.55 system-ui, sans-serif; overflow-wrap: break-word; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 1.5rem 0 .5rem; }
h2 { font-size: 1.25rem; margin: 2.5rem 0 .5rem; padding-top: .75rem;
  border-top: 1px solid var(--line); }
p, ul, dl { max-width: 46rem; }
a { color: var(--link); }
ul { padding-left: 1.2rem; }
li { margin: .25rem 0; }
p + ul { margin-top: -.75rem; }
h3 { font-size: 1rem; margin: 1.25rem 0 -.5rem; }
code { font: .9em ui-monospace, monospace; }
code span { white-space: nowrap; }
.scroll { overflow-x: auto; margin: 1rem 0; }
table { border-collapse: collapse; font-size: .92rem; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .75rem .3rem 0; border-bottom: 1px solid var(--line); text-align: right;
  white-space: nowrap; }
th:first-child, td:first-child { text-align: left; white-space: normal; min-width: 8rem; }
td a { white-space: nowrap; }
th { font-weight: 600; color: var(--soft); vertical-align: bottom; white-space: normal; }
.stacked td { white-space: normal; }
.stacked td.good, .stacked td.bad, .stacked td.open, .stacked td.none { white-space: nowrap; }
.good { color: var(--good); font-weight: 600; }
.bad { color: var(--bad); font-weight: 600; }
.open { color: var(--open); font-weight: 600; }
.none { color: var(--soft); }
.notes { font-size: .92rem; color: var(--soft); }
figure { margin: 1.25rem 0; }
.panels { display: grid; gap: .75rem;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 19rem), 1fr)); align-items: start; }
.panels img { width: 100%; height: auto; background: #fff; border-radius: .4rem; }
.few { max-width: 44rem; }
.wide { overflow-x: auto; }
figcaption { font-size: .92rem; color: var(--soft); margin-top: .5rem; max-width: 46rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .15rem 1rem; }
dt { color: var(--soft); }
dd { margin: 0; }
nav ul { list-style: none; padding: 0; margin: .25rem 0 1rem; max-width: none; columns: 20rem; }
nav li { margin: .1rem 0; break-inside: avoid; }
summary { cursor: pointer; color: var(--link); }
details { margin: .75rem 0; }
.text td, .text th { white-space: normal; text-align: left; vertical-align: top; }
@media (max-width: 44rem) {
  .scroll:not(.stacked) th:first-child, .scroll:not(.stacked) td:first-child { position: sticky;
    left: 0; background: var(--paper); max-width: 9rem; }
  td a { white-space: normal; }
  .stacked table, .stacked tbody, .stacked tr, .stacked td { display: block; }
  .stacked thead { position: absolute; left: -99rem; }
  .stacked tr { border-bottom: 1px solid var(--line); padding: .4rem 0; }
  .stacked td { border: 0; padding: 0 1rem 0 0; text-align: left; white-space: normal; }
  .stacked:not(.text) td { display: inline-block; }
  .stacked td:first-child, .stacked:not(.text) td:first-child { display: block; font-weight: 600; }
  .stacked td:empty { display: none; }
  .stacked td[data-name]::before { content: attr(data-name) ": "; color: var(--soft);
    font-weight: 400; }
}
@media (max-width: 30rem) { dl { grid-template-columns: 1fr; } dd { margin-bottom: .5rem; } }
"""
# words that get a colour
MARKS = {
    "consistent": "good",
    "agrees": "good",
    "reproduced": "good",
    "holds": "good",
    "differs": "bad",
    "does not hold": "bad",
    "inconclusive": "open",
    "undecided": "open",
    "not comparable": "none",
    "not reported": "none",
    "not judged": "none",
    "no records": "none",
}
WIDE, READABLE = 1400, 0.42  # pixels of a picture of many panels; how far any may be scaled down
LONGEST_WORD = 24  # characters that fit the narrowest phone with room to spare


@dataclass(frozen=True)
class Picture:
    """A PNG file, and what it shows for those who do not see it."""

    path: Path
    alt: str


def page(title: str, body: Sequence[str]) -> str:
    """The page around its parts. It refers to nothing outside of itself."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        f"<h1>{escape(title)}</h1>\n" + "\n".join(body) + "\n</body>\n</html>\n"
    )


def heading(text: str, name: str = "", *, level: int = 2) -> str:
    """A heading; with a name, links can point to it: #name."""
    target = f' id="{escape(name)}"' if name else ""
    return f"<h{level}{target}>{escape(text)}</h{level}>"


def contents(groups: Mapping[str, Mapping[str, str]]) -> str:
    """Links to headings by name, in groups: {"Tables": {"table2": "Table 2. Accuracy"}}."""
    lists = (
        f"<h3>{escape(title)}</h3>\n<ul>"
        + "".join(f"<li>{_link(name, text)}</li>" for name, text in links.items())
        + "</ul>"
        for title, links in groups.items()
    )
    return "<nav>" + "\n".join(lists) + "</nav>"


def paragraph(text: str) -> str:
    return f"<p>{_inline(text)}</p>"


def bullets(lines: Sequence[str], *, notes: bool = False) -> str:
    kind = ' class="notes"' if notes else ""
    return f"<ul{kind}>" + "".join(f"<li>{_inline(line)}</li>" for line in lines) + "</ul>"


def marked(lines: Sequence[tuple[str, str, str]]) -> str:
    """A list: a word, in its colour if it has one, a text, and the heading to look at, or none."""
    shown = []
    for word, text, name in lines:
        kind = MARKS.get(word)
        word = f'<span class="{kind}">{escape(word)}</span>' if kind else escape(word)
        shown.append(f"<li>{word}{_inline(text)}{f' {_link(name, name)}' if name else ''}</li>")
    return f"<ul>{''.join(shown)}</ul>"


def details(summary: str, parts: Sequence[str]) -> str:
    """Parts that are there when asked for."""
    return f"<details><summary>{_inline(summary)}</summary>\n" + "\n".join(parts) + "</details>"


def facts(named: Mapping[str, str]) -> str:
    pairs = (f"<dt>{escape(name)}</dt><dd>{_inline(text)}</dd>" for name, text in named.items())
    return "<dl>" + "".join(pairs) + "</dl>"


def table(
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    narrow: Literal["scroll", "stack"] = "scroll",
    text: bool = False,
    links: Collection[str] = (),
    below: str = "",
) -> str:
    """A table; where the screen is narrow it scrolls by itself, or its rows become short lists.

    `text`: cells are sentences, to be wrapped. `links`: first cells that name a heading. Its title
    is not repeated where the heading that it is `below` has said it.
    """
    head = "".join(f'<th scope="col">{_inline(column)}</th>' for column in columns)
    names = columns if narrow == "stack" else [""] * len(columns)
    body = "".join(f"<tr>{_row(row, names, links)}</tr>\n" for row in rows)
    kind = "scroll" + " stacked" * (narrow == "stack") + " text" * text
    said = "" if title in below else f"<h3>{escape(title)}</h3>\n"
    return (
        f'{said}<div class="{kind}" tabindex="0">'
        f'<table aria-label="{escape(title)}"><thead><tr>{head}</tr></thead>\n'
        f"<tbody>\n{body}</tbody></table></div>"
    )


def figure(pictures: Sequence[Picture], caption: str) -> str:
    """Pictures side by side where there is room, below one another where there is not.

    One by itself stays readable: where the screen is narrow it scrolls sideways.
    """
    alone = len(pictures) == 1
    width = _width(pictures[0].path) if alone else 0
    style = f' style="min-width: {round(READABLE * width)}px"' if alone else ""
    images = "".join(
        f'<img alt="{escape(picture.alt)}"{style} '
        f'src="data:image/png;base64,{_base64(picture.path)}">\n'
        for picture in pictures
    )
    size = " few" if len(pictures) < 3 and width <= WIDE else ""
    size += ' wide" tabindex="0' if alone else ""
    return (
        f'<figure><div class="panels{size}">\n{images}</div>\n'
        f"<figcaption>{_inline(caption)}</figcaption></figure>"
    )


def _width(path: Path) -> int:
    """Of a PNG, in pixels, as its header says."""
    return int.from_bytes(path.read_bytes()[16:20])


def _row(row: Sequence[str], names: Sequence[str], links: Collection[str]) -> str:
    linked = f"<td>{_link(row[0], row[0])}</td>" if row[0] in links else _cell(row[0], "")
    rest = (_cell(text, name) for text, name in zip(row[1:], names[1:], strict=True))
    return linked + "".join(rest)


def _cell(text: str, name: str) -> str:
    kind = f' class="{MARKS[text]}"' if text in MARKS else ""
    label = f' data-name="{escape(name.replace("`", ""))}"' if name else ""
    return f"<td{kind}{label}>{_inline(text)}</td>"


def _link(name: str, text: str) -> str:
    return f'<a href="#{escape(name)}">{escape(text)}</a>'


def _inline(text: str) -> str:
    """Plain text, in which `this` is code. A number stays with its error.

    >>> _inline("run `lohe demo --quick` & see")
    'run <code>lohe demo <span>--quick</span></code> &amp; see'
    """
    parts = escape(text).replace(" ± ", "\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}").split("`")
    return "".join(_code(part) if n % 2 else part for n, part in enumerate(parts))


def _code(text: str) -> str:
    """Options are not to be broken at their hyphens; a long path may be, lest it be cut off."""
    words = text.split(" ")
    kept = (f"<span>{w}</span>" if "-" in w and len(w) <= LONGEST_WORD else w for w in words)
    return f"<code>{' '.join(kept)}</code>"


def _base64(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode("ascii")
