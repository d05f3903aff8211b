"""Time that ends: on a machine that is lent, nothing is begun that may not be finished."""

import time
from collections.abc import Callable

from lohe.experiments.runner import Pack


class Deadline:
    """So many minutes from now; None: never. `guess` says what a pack may take, None: unknown.

    Guesses are corrected by how long packs have taken here. What nobody knows is begun as long as
    there is time: it can be continued.
    """

    def __init__(self, minutes: float | None, guess: Callable[[Pack], float | None]):
        self.until = None if minutes is None else time.monotonic() + 60 * minutes
        self.minutes, self.guess, self.late = minutes, guess, 0
        self._began, self._busy, self._expected = 0.0, 0.0, 0.0

    @property
    def over(self) -> bool:
        return self.until is not None and time.monotonic() >= self.until

    def allows(self, pack: Pack) -> bool:
        """Whether the pack, begun now, may end in time; those that may not are counted."""
        self._began = time.monotonic()
        pace = self._busy / self._expected if self._expected else 1.0
        expected = pace * (self.guess(pack) or 0.0)
        late = self.over or (self.until is not None and self._began + expected > self.until)
        self.late += late
        return not late

    def finished(self, pack: Pack) -> None:
        """The pack that was last allowed has been trained."""
        if expected := self.guess(pack):
            self._expected += expected
            self._busy += time.monotonic() - self._began
