"""A machine whose clock can be set, by Debian's libfaketime: what takes hours or days need not be waited for."""

from dataclasses import dataclass

from harness.debian import unpacked
from harness.release import Flower
from harness.workspace import Workspace


@dataclass
class Clock(Workspace):
    """A workspace whose processes see the time of day `ahead_s` later. How fast time passes is left alone."""

    ahead_s: int = 0

    def env(self, release: Flower | None = None, home: str = "", **extra: str) -> dict[str, str]:
        if self.ahead_s == 0:
            return super().env(release, home, **extra)
        library = unpacked("libfaketime").library("faketime/libfaketimeMT.so.1")
        shifted = {"LD_PRELOAD": library, "FAKETIME": f"+{self.ahead_s}s", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
        return super().env(release, home, **shifted, **extra)
