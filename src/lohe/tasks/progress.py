"""How long jobs report themselves: plain calls, so that any bar, log or nothing can listen."""

from collections import Counter
from collections.abc import Callable

Progress = Callable[
    [str, int, int | None], None
]  # what is being done; how far; of how many, if known


def silent(what: str, done: int, of: int | None) -> None:
    """Listens to nothing."""


def adding(progress: Progress) -> Progress:
    """The same listener for work in pieces, which tell how much more, not how far.

    >>> heard = adding(lambda *report: print(*report))
    >>> heard("importing", 3, None), heard("importing", 4, None)
    importing 3 None
    importing 7 None
    (None, None)
    """
    so_far = Counter[str]()

    def add(what: str, more: int, of: int | None) -> None:
        so_far[what] += more
        progress(what, so_far[what], of)

    return add
