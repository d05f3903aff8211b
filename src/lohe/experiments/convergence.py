"""Do the oscillators settle in time? Table 6 and Figure 7."""

from lohe.experiments.item import Item

ITEMS: dict[str, Item] = {}
