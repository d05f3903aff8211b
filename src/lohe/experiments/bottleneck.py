"""What rank the attention matrices have, and how flat they are: Figures 9 and 10, Appendix E."""

from lohe.experiments.item import Item

ITEMS: dict[str, Item] = {}
