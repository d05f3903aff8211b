"""One sentence, continued by oscillators: Figure 5."""

from lohe.experiments.item import Item

ITEMS: dict[str, Item] = {}
