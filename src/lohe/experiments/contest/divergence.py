"""A run that diverged: the protocol's definition, one for all stages."""

import math

from lohe.experiments.store.records import Record


def has_diverged(record: Record, split: str = "") -> bool:
    """Whether a loss or a score was no finite number, in any epoch or at the end; with a split, a
    score on that one.

    The selected epoch may lie before that, with finite scores of its own.
    """
    numbers = [x for name, x in record.result.items() if name.startswith(split)]
    numbers += [x for line in record.curve for x in line.values()]
    return not all(math.isfinite(x) for x in numbers)
