"""Operation counts and oscillator budgets: Tables 7, 10 and 11."""

from lohe.experiments.item import Item

ITEMS: dict[str, Item] = {}
