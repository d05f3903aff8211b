"""Figure 2 and Proposition 5."""

from lohe.experiments.item import Item

ITEMS: dict[str, Item] = {}
