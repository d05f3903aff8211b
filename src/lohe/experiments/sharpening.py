"""The readout exponent: Table 5."""

from lohe.experiments.item import Item

ITEMS: dict[str, Item] = {}
