"""The user of a federation's processes: root, root with a separate user for each app, or an ordinary user.

The interpreters of the test cache may be in a directory that only root can access. Other users access them in a mount
namespace that replaces this directory by one with only the interpreters.
"""

import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from harness.process import Process
from harness.release import flower
from harness.workspace import Workspace
from provision import CannotBeHad, cache_dir

ROOT, ROOT_WITH_APP_USERS, ORDINARY_USER = "root", "root-with-app-users", "ordinary-user"
USER_ID = 54321
# Processes that run as the identity; all others run as the user of the test.
PARTS = ("superlink", "supernode")

# Arguments: closed directory, its alternative mount point, paths that stay visible, --, command
OPENED = """
set -e
closed="$1" aside="$2"
shift 2
mount --rbind "$closed" "$aside"
mount -t tmpfs -o mode=755 tmpfs "$closed"
while [ "$1" != -- ]; do
    mkdir -p "$1"
    mount --bind "$aside${1#"$closed"}" "$1"
    shift
done
shift
exec "$@"
"""


@dataclass
class IdentityWorkspace(Workspace):
    """A workspace whose SuperLink and SuperNodes run as the given identity."""

    identity: str = ROOT

    @property
    def states(self) -> Path:
        """Below a directory that the identity owns, whose data its apps may access."""
        return self.root

    @classmethod
    def make(cls, identity: str) -> "IdentityWorkspace":
        if os.getuid() != 0:
            raise CannotBeHad("only root can start programs as another user")
        # Not below the directory of pytest, which other users cannot access.
        root = Path(tempfile.mkdtemp(prefix="trellis-identity-"))
        root.chmod(0o755 if identity != ROOT else 0o700)
        if identity == ORDINARY_USER:
            os.chown(root, USER_ID, USER_ID)
        return cls(root, identity=identity)

    def start(self, name: str, argv: list[str], env: dict[str, str] | None = None, cwd: Path | None = None) -> Process:
        if self.identity == ROOT or not name.startswith(PARTS):
            return super().start(name, argv, env, cwd)
        if self.identity == ORDINARY_USER:
            ids = [f"--reuid={USER_ID}", f"--regid={USER_ID}", "--clear-groups"]
            argv = ["setpriv", *ids, *argv]
        return super().start(name, [*self._opened(), *argv], (env or self.env()) | {"HOME": str(self.root)}, cwd)

    def _opened(self) -> list[str]:
        visible = [cache_dir(), base_prefix()]
        closed = {directory for path in visible for directory in path.parents if not directory.stat().st_mode & 1}
        if not closed:
            return []
        (top,) = [directory for directory in closed if not closed & set(directory.parents)]
        aside = self.root / "aside"
        aside.mkdir(exist_ok=True)
        shown = [str(path) for path in visible if top in path.parents]
        return ["unshare", "--mount", "sh", "-c", OPENED, "sh", str(top), str(aside), *shown, "--"]


def base_prefix() -> Path:
    """Prefix of the interpreter from which the environments of the test cache were created."""
    argv = [flower().command("python"), "-c", "import sys; print(sys.base_prefix)"]
    return Path(subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60).stdout.strip()).resolve()
