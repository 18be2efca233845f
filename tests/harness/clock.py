"""Simulates another time of day with Debian's libfaketime, so that tests need not wait for hours or days."""

from dataclasses import dataclass

from harness.debian import unpacked
from harness.release import Flower
from harness.workspace import Workspace


@dataclass
class Clock(Workspace):
    """A workspace whose processes see a clock that is `ahead_s` ahead. The speed of time is unchanged."""

    ahead_s: int = 0

    def env(self, release: Flower | None = None, home: str = "", **extra: str) -> dict[str, str]:
        if self.ahead_s == 0:
            return super().env(release, home, **extra)
        library = unpacked("libfaketime").library("faketime/libfaketimeMT.so.1")
        shifted = {"LD_PRELOAD": library, "FAKETIME": f"+{self.ahead_s}s", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
        return super().env(release, home, **shifted, **extra)
