"""The page that the demo leaves: every table and picture, and how each came about."""

import os
import platform
import time
from dataclasses import dataclass

import numpy as np
import torch

from lohe import __version__
from lohe.bench.machine import processor
from lohe.experiments.tables import Table
from lohe.viz import html
from lohe.viz.html import Picture

PAPER = (
    "The mechanism is that of *Attention by Synchronization in Coupled Oscillator Networks* "
    "(Pasqualetti and Guo, TMLR 2026); lohe is an independent implementation."
).replace("*", "")


@dataclass(frozen=True)
class Part:
    """A section: a heading, some text, pictures with a caption, tables with their notes."""

    heading: str
    text: str
    pictures: list[Picture]
    caption: str
    tables: list[Table]


def page(parts: list[Part], summary: list[str], seconds: dict[str, float], command: str) -> str:
    """The report as one string."""
    body = [html.paragraph(PAPER), html.bullets(summary)]
    for part in parts:
        body += [html.heading(part.heading), html.paragraph(part.text)]
        if part.pictures:
            body.append(html.figure(part.pictures, f"{part.caption} Made by `{command}`."))
        for table in part.tables:
            body.append(html.table(table.title, table.columns, table.rows))
            body.append(html.bullets(table.notes, notes=True))
    body += [html.heading("Where and when"), html.facts(circumstances(seconds, command))]
    return html.page("Attention by synchronization: the demo of lohe", body)


def circumstances(seconds: dict[str, float], command: str) -> dict[str, str]:
    """Machine, versions, date and time taken."""
    took = ", ".join(f"{what} {s:.0f} s" for what, s in seconds.items())
    return {
        "Command": f"`{command}`",
        "Date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "Wall time": f"{sum(seconds.values()):.0f} s: {took}",
        "Machine": f"{processor()}, {os.cpu_count()} cores, {platform.system()}",
        "Versions": (
            f"lohe {__version__}, torch {torch.__version__}, numpy {np.__version__}, "
            f"Python {platform.python_version()}"
        ),
    }
