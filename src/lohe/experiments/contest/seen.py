"""What had been scored on the test articles of WikiText-2 by other runs than the contest's."""

from typing import Any

from lohe import models
from lohe.experiments.evidence import Evidence
from lohe.train import brief

SIZES = ("d_osc", "d_qk")


def scored_elsewhere(evidence: Evidence) -> list[str]:
    """Mechanisms with a score on test, a line each, with their sizes and how they were trained."""
    found: dict[tuple[str, str], set[int]] = {}
    for record in evidence.all():
        task = record.recipe.get("task", {})
        tested = any(name.startswith("test") for name in record.result)
        if task.get("type") == "WikiText2" and tested:
            mechanism = rebuilt(record.recipe["model"]["attention"])
            name = brief(mechanism, without=SIZES)
            sizes = {getattr(mechanism, size) for size in SIZES if hasattr(mechanism, size)}
            found.setdefault((name, task["protocol"]), set()).update(sizes)
    return [
        f"{name}{_at(sizes)}, trained by the {protocol} protocol"
        for (name, protocol), sizes in sorted(found.items())
    ]


def rebuilt(recipe: Any) -> Any:
    """The mechanism that a recipe has as plain data."""
    if isinstance(recipe, float) and recipe.is_integer():
        return int(recipe)  # 2.0 and 2 are one sharpness
    if not isinstance(recipe, dict):
        return recipe
    kind = getattr(models, recipe["type"])
    return kind(**{name: rebuilt(x) for name, x in recipe.items() if name != "type"})


def _at(sizes: set[int]) -> str:
    return f" at {', '.join(map(str, sorted(sizes)))}" if sizes else ""
