"""How long a server may be away, and when a refused call is repeated. Reads a clock that it is given; waits for nobody."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Optional

from .errors import Refused, TrellisError, Unreachable

CONNECT_S = 10.0
ANSWER_S = 30.0
# The server says that it is still there every 15 s.
SILENCE_S = 60.0
# The server of `trellis up` is started again when it dies.
ABSENCE_S = 60.0
RETRIES_S = (0.25, 0.5, 1.0, 2.0)
# Between looks at a run or a federation where no event tells of a change.
LOOK_S = 1.0
ASK_AGAIN_S = 0.2


class Absence:
    """Forgives a server that is away for a while."""

    limit_s = ABSENCE_S

    def __init__(self, limit_s: Optional[float] = None, clock: Callable[[], float] = time.monotonic) -> None:
        self.limit_s = limit_s or self.limit_s
        self._clock = clock
        self._since: Optional[float] = None

    def over(self) -> None:
        """The server answered."""
        self._since = None

    def lasts_too_long(self) -> bool:
        """Whether it has lasted longer than the limit; it begins with the first call."""
        if self._since is None:
            self._since = self._clock()
        return self._clock() - self._since > self.limit_s

    def excuse(self, error: TrellisError) -> None:
        """Raises the error unless it may pass and the server has not been away for too long."""
        may_pass = isinstance(error, Unreachable) or (isinstance(error, Refused) and error.may_pass)
        if not may_pass or self.lasts_too_long():
            raise error


class Deadline:
    """The time at which a wait ends; none: never."""

    def __init__(self, limit_s: Optional[float], clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._end = None if limit_s is None else clock() + limit_s

    @property
    def passed(self) -> bool:
        return self._end is not None and self._clock() >= self._end

    def within(self, most_s: float) -> float:
        """The time that is left, and no more than `most_s`."""
        return most_s if self._end is None else max(0.0, min(most_s, self._end - self._clock()))
