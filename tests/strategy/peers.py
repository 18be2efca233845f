"""Who answers cases: our example, and Flower's own classes, each in a process that lives through a session."""

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.release import Flower
from harness.workspace import REPOSITORY

OFFICIAL = Path(__file__).resolve().parent / "official.py"


def example() -> Path:
    target = Path(os.environ.get("CARGO_TARGET_DIR", REPOSITORY / "target"))
    return Path(os.environ.get("TRELLIS_STRATEGY_CASE", target / "debug" / "examples" / "case"))


class Peer:
    """A process that answers each line with a line."""

    def __init__(self, argv: list[str], env: dict[str, str], log: Path):
        with log.open("ab") as errors:
            self._child = subprocess.Popen(
                argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, env=env, text=True
            )
        self._log = log

    def ask(self, question: dict[str, Any]) -> dict[str, Any]:
        self._child.stdin.write(json.dumps(question) + "\n")
        self._child.stdin.flush()
        if line := self._child.stdout.readline():
            return json.loads(line)
        raise AssertionError(f"{self._child.args} ended with {self._child.wait()}:\n{self._log.read_text()}")

    def close(self) -> None:
        self._child.stdin.close()
        self._child.wait()
        self._child.stdout.close()


@dataclass(frozen=True)
class Ours:
    peer: Peer

    def answer(self, case: dict[str, Any]) -> dict[str, Any]:
        return self.peer.ask(case)


@dataclass(frozen=True)
class Official:
    release: Flower
    peer: Peer

    def answer(self, case: dict[str, Any], wide: bool = False, given: list | None = None) -> dict[str, Any]:
        """`wide`: floats are computed as float64. `given`: with which model each round begins, instead of its own."""
        return self.peer.ask({"case": case, "wide": wide, "given": given})
