"""Waits for an observable event, with a limit and a message about what did not happen."""

import time
from collections.abc import Callable
from typing import TypeVar

CHECK_INTERVAL_S = 0.1

T = TypeVar("T")


class NotInTime(AssertionError):
    """The event did not happen within its limit."""


def wait_for(what: str, probe: Callable[[], T | None | bool], limit_s: float) -> T:
    """Calls `probe` until it returns something other than None or False, and returns that."""
    deadline = time.monotonic() + limit_s
    while True:
        seen = probe()
        if seen is not None and seen is not False:
            return seen
        if time.monotonic() > deadline:
            raise NotInTime(f"waited {limit_s:g} s for {what}")
        time.sleep(CHECK_INTERVAL_S)
