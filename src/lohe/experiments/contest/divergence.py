"""A run that diverged: the protocol's definition, one for all stages."""

import math

from lohe.experiments.store.records import Record


def has_diverged(record: Record) -> bool:
    """Whether a loss or a score was no finite number, in any epoch or at the end.

    The selected epoch may lie before that, with finite scores of its own.
    """
    numbers = [*record.result.values(), *(x for line in record.curve for x in line.values())]
    return not all(math.isfinite(x) for x in numbers)
