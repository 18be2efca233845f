"""Commands of `trellis` that call a SuperLink."""

import json
import subprocess
from dataclasses import dataclass

from harness.superlink import Superlink
from harness.workspace import Workspace, trellis_binary

COMMAND_LIMIT_S = 30.0


@dataclass(frozen=True)
class TrellisCli:
    """Calls one SuperLink; trusts the CA of its certificate if it has one."""

    workspace: Workspace
    superlink: Superlink

    def run(self, *words: str, stdin: str = "") -> str:
        """Runs `trellis WORDS`; returns the output, raises on failure."""
        tls = self.superlink.options.tls
        security = ["--insecure"] if tls is None else ["--root-certificates", str(tls.ca)]
        argv = [str(trellis_binary()), *words, "--superlink", self.superlink.http_address, *security]
        done = subprocess.run(
            argv,
            input=stdin,
            env=self.workspace.env(),
            cwd=self.workspace.root,
            capture_output=True,
            text=True,
            timeout=COMMAND_LIMIT_S,
            check=False,
        )
        assert done.returncode == 0, f"{' '.join(argv)} ended with {done.returncode}\n{done.stderr}"
        return done.stdout

    def json(self, *words: str) -> dict:
        return json.loads(self.run(*words, "-o", "json"))
