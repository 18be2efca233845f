"""Certificates by `trellis pki`: an authority, what it issues, and its replacement."""

import subprocess
from pathlib import Path

from harness.credentials import TlsFiles
from harness.workspace import Workspace, trellis_binary

COMMAND_LIMIT_S = 30.0


class Authority:
    """A CA directory, made now."""

    def __init__(self, workspace: Workspace, name: str = "ca"):
        self._workspace = workspace
        self._dir = workspace.root / name
        self._pki("init")

    def issue(self, out: Path, *endpoints: str, renew: bool = False) -> TlsFiles:
        """The files of a SuperLink, new ones, or with `renew` only what is due."""
        words = [word for endpoint in endpoints for word in ("--endpoint", endpoint)]
        self._pki("issue", "--out", str(out), *words, *(["--renew"] if renew else []))
        return TlsFiles(out / "ca.crt", out / "server.pem", out / "server.key")

    def trust(self, out: Path) -> Path:
        """The bundle for clients, as it is now."""
        self._pki("trust", "--out", str(out))
        return out

    def rotate(self, step: str) -> None:
        """`begin`, `switch` or `finish`."""
        self._pki("rotate", f"--{step}")

    def _pki(self, command: str, *words: str) -> None:
        argv = [str(trellis_binary()), "pki", command, "--dir", str(self._dir), *words]
        done = subprocess.run(
            argv, env=self._workspace.env(), capture_output=True, text=True, timeout=COMMAND_LIMIT_S, check=False
        )
        assert done.returncode == 0, f"trellis pki {command}: {done.stdout}{done.stderr}"
