"""The files of a test, and the environment of its processes."""

import os
import shutil
import subprocess
import tempfile
import uuid
from dataclasses import dataclass, field
from pathlib import Path

from harness.process import MARK, Process, kill_marked
from harness.release import Flower, flower

TESTS = Path(__file__).resolve().parent.parent
REPOSITORY = TESTS.parent
DIGITS = REPOSITORY / "crates" / "training" / "native" / "data"
# Variables of the caller that would affect Flower.
DROPPED = ("FLWR_", "TRELLIS_", "GRPC_", "XDG_DATA_HOME")


def trellis_binary() -> Path:
    """The binary under test: TRELLIS_BIN, or the release build of this repository."""
    default = Path(os.environ.get("CARGO_TARGET_DIR", REPOSITORY / "target")) / "release" / "trellis"
    return Path(os.environ.get("TRELLIS_BIN", default)).resolve()


def libraries(binary: Path) -> dict[str, Path]:
    """The libraries of a dynamic program by the path at which it expects them."""
    output = subprocess.run(["ldd", str(binary)], capture_output=True, text=True, check=False).stdout
    paths = [word for line in output.splitlines() for word in line.split() if word.startswith("/")]
    return {path: Path(path).resolve() for path in paths}


@dataclass
class Workspace:
    """A directory, a private FLWR_HOME, and all processes that were started in it."""

    root: Path
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)
    processes: list[Process] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.logs.mkdir(parents=True, exist_ok=True)
        self.states.mkdir(mode=0o700, parents=True, exist_ok=True)

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def states(self) -> Path:
        """The parent of state directories. It is not below `root`, where apps may write."""
        return self._beside / self.root.name

    @property
    def _beside(self) -> Path:
        return Path(tempfile.gettempdir()) / f"trellis-states-{self.mark[:12]}"

    def home(self, of: str = "") -> Path:
        """A FLWR_HOME: that of the SuperLink, or of another part, which would be on another machine."""
        return self.root / "-".join(filter(None, ["flwr-home", of]))

    @property
    def trellis_home(self) -> Path:
        """The home for models of in-process runs, and for the address of a local server."""
        return self.root / "trellis-home"

    def env(self, release: Flower | None = None, home: str = "", **extra: str) -> dict[str, str]:
        """The environment for a process of some release, which finds commands of that release by PATH."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(DROPPED)}
        kept |= {
            "PATH": f"{(release or flower()).bin}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
            "FLWR_HOME": str(self.home(home)),
            "TRELLIS_HOME": str(self.trellis_home),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "PYTHONUNBUFFERED": "1",
            "NO_COLOR": "1",
            # Wide, so that tables of the command line are not wrapped.
            "COLUMNS": "200",
            MARK: self.mark,
            # Apps of tests write their results to workspaces, also to one beside that of their SuperLink; some use our digits.
            "TRELLIS_APP_DATA": f"{self.root.parent}:rw,{DIGITS}",
        }
        return kept | extra

    def start(self, name: str, argv: list[str], env: dict[str, str] | None = None, cwd: Path | None = None) -> Process:
        process = Process(name, argv, self.logs / f"{name}.log", env or self.env(), cwd or self.root)
        self.processes.append(process)
        return process

    def copy_app(self, source: Path, name: str | None = None) -> Path:
        target = self.root / "apps" / (name or source.name)
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        return target

    def close(self) -> None:
        """Kills everything that was started here, including processes that outlived their parent."""
        kill_marked(self.mark)
        for process in self.processes:
            process.reap()
        shutil.rmtree(self._beside, ignore_errors=True)
