"""Keyword spotting: Section 4.1's first task."""

from lohe.experiments.item import Item

ITEMS: dict[str, Item] = {}
