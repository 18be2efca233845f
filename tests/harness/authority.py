"""Certificates made by `trellis pki`: an authority, what it issues, and its rotation."""

import subprocess
from pathlib import Path

from harness.credentials import TlsFiles
from harness.workspace import Workspace, trellis_binary

COMMAND_LIMIT_S = 30.0


class Authority:
    """A new CA directory."""

    def __init__(self, workspace: Workspace, name: str = "ca"):
        self._workspace = workspace
        self._dir = workspace.root / name
        self._pki("init")

    def issue(self, out: Path, *endpoints: str, renew: bool = False) -> TlsFiles:
        """Issues new files for a SuperLink; with `renew` only those that are due."""
        words = [word for endpoint in endpoints for word in ("--endpoint", endpoint)]
        self._pki("issue", "--out", str(out), *words, *(["--renew"] if renew else []))
        return TlsFiles(out / "ca.crt", out / "server.pem", out / "server.key")

    def trust(self, out: Path) -> Path:
        """Writes the current trust bundle for clients."""
        self._pki("trust", "--out", str(out))
        return out

    def rotate(self, step: str) -> None:
        """Runs a step: `begin`, `switch` or `finish`."""
        self._pki("rotate", f"--{step}")

    def _pki(self, command: str, *words: str) -> None:
        argv = [str(trellis_binary()), "pki", command, "--dir", str(self._dir), *words]
        done = subprocess.run(
            argv, env=self._workspace.env(), capture_output=True, text=True, timeout=COMMAND_LIMIT_S, check=False
        )
        assert done.returncode == 0, f"trellis pki {command}: {done.stdout}{done.stderr}"
