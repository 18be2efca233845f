"""Fixtures of the suite for the Python package: a federation of this machine, a client of it, and scripts that use it."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.environment import environment
from harness.platform import Platform
from harness.workspace import REPOSITORY, Workspace, trellis_binary
from provision import CannotBeHad

SDK = REPOSITORY / "python" / "sdk"
SOURCE = SDK / "src"
sys.path.insert(0, str(SOURCE))

SCRIPT_LIMIT_S = 120.0
PACKAGES = (
    "ipykernel==7.4.0",
    "matplotlib==3.10.8",
    "mypy==2.4.1",
    "nbclient==0.11.0",
    "numpy==2.2.6",
    "pandas==2.3.3",
    "ruff==0.17.5",
)


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings of the caller would name another server, home or program."""
    for name in ("HOME", "SERVER", "SERVER_TOKEN", "SERVER_TOKEN_FILE", "SERVER_ROOT_CERTIFICATES", "FEDERATION"):
        monkeypatch.delenv(f"TRELLIS_{name}", raising=False)
    monkeypatch.setenv("TRELLIS_BIN", str(trellis_binary()))


@pytest.fixture(scope="session")
def programs() -> Path:
    """Those that judge the package, and a Python with what it can use."""
    try:
        return environment("sdk", *PACKAGES)
    except CannotBeHad as why:
        pytest.skip(f"{', '.join(PACKAGES)} cannot be had here: {why}")


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    """A server with the federation `local` of two nodes."""
    workspace = Workspace(tmp_path_factory.mktemp("sdk"))
    made = Platform(workspace)
    try:
        made.run("up", "--detach", "--nodes", "2")
        yield made
        made.run("down", "--all")
    finally:
        workspace.close()


@pytest.fixture
def client(platform: Platform):
    import trellis

    return trellis.connect(home=platform.home)


def with_package(workspace: Workspace, home: Path | None = None, **env: str) -> dict[str, str]:
    """The environment of a Python that has the package."""
    home = home or workspace.root / "home"
    return workspace.env(TRELLIS_HOME=str(home), TRELLIS_BIN=str(trellis_binary()), PYTHONPATH=str(SOURCE), **env)


@pytest.fixture
def script(workspace: Workspace) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs a program in Python with the package, in a home of its own."""

    def run(text: str, *, home: Path | None = None, python: str = sys.executable, code: int = 0, **env: str):
        done = subprocess.run(
            [python, "-c", text],
            env=with_package(workspace, home, **env),
            cwd=workspace.root,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SCRIPT_LIMIT_S,
            check=False,
        )
        assert done.returncode == code, f"{done.stdout}\n{done.stderr}"
        return done

    return run
