"""How long jobs report themselves: plain calls, so that any bar, log or nothing can listen."""

from collections.abc import Callable

Progress = Callable[
    [str, int, int | None], None
]  # what is being done; how far; of how many, if known


def silent(what: str, done: int, of: int | None) -> None:
    """Listens to nothing."""
