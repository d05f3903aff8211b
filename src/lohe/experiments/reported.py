"""What the paper's authors published: per seed where they did, never mixed with our runs."""

import json
from functools import cache
from importlib import resources
from typing import Any


@cache
def published(item: str) -> dict[str, Any]:
    """The published numbers behind an item, e.g. published("table2")."""
    file = resources.files("lohe.experiments") / "published" / f"{item}.json"
    return json.loads(file.read_text(encoding="utf-8"))
