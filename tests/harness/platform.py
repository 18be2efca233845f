"""A control plane with its own home, as `trellis up` creates it, and its processes."""

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

from harness.process import command_line, marked_pids, pid_exists
from harness.waiting import wait_for
from harness.workspace import Workspace, trellis_binary

COMMAND_LIMIT_S = 120.0


@dataclass(frozen=True)
class Platform:
    """All its processes carry the mark of the workspace and end with it."""

    workspace: Workspace

    @property
    def home(self) -> Path:
        return self.workspace.root / "home"

    def env(self, **extra: str) -> dict[str, str]:
        return self.workspace.env(TRELLIS_HOME=str(self.home), **extra)

    def argv(self, *words: str) -> list[str]:
        return [str(trellis_binary()), *words]

    def run(self, *words: str, code: int = 0, limit_s: float = COMMAND_LIMIT_S) -> str:
        """Runs `trellis WORDS`; returns the output, raises if the exit code differs."""
        done = subprocess.run(
            self.argv(*words),
            env=self.env(),
            cwd=self.workspace.root,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=limit_s,
            check=False,
        )
        said = f"trellis {' '.join(words)} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert done.returncode == code, said
        return done.stdout

    def json(self, *words: str) -> dict | list:
        return json.loads(self.run(*words, "-o", "json"))

    def answer(self, *words: str) -> dict | list | None:
        """Like `json`; None while the server is unavailable."""
        try:
            return self.json(*words)
        except AssertionError:
            return None

    def processes(self, command: str) -> list[int]:
        """The processes that run `trellis COMMAND`."""
        found = []
        for pid in marked_pids(self.workspace.mark):
            words = command_line(pid).split()
            if pid_exists(pid) and len(words) > 1 and words[1] == command:
                found.append(pid)
        return sorted(found)

    def wait_ready(self, federation: str, limit_s: float = COMMAND_LIMIT_S) -> dict:
        def look() -> dict | None:
            detail = self.answer("status", federation)
            return detail if detail and detail["summary"]["state"] == "ready" else None

        return wait_for(f"federation {federation} to be ready", look, limit_s)
