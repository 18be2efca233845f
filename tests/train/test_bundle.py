"""Bundles that `trellis run` makes are those of `flwr build`, to the byte."""

import hashlib
import json
import subprocess
from pathlib import Path

import pytest

from harness.federation import APPS
from harness.release import flower
from harness.workspace import Workspace, trellis_binary
from provision import CannotBeHad

COMMAND_LIMIT_S = 60.0
# The rules for what goes in, and the list of contents, are what they are since 1.28.
RELEASES = ["1.28", "1.42"]

pytestmark = [pytest.mark.quick, pytest.mark.trellis_only]

ODD_PROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "odd"
version = "0.0.1"
description = "quotes \\" and \\\\ and a tab\\t"
license = { text = "Apache-2.0" }
authors = [{ name = "A", email = "a@example.org" }, { name = "B" }]
dependencies = []
[tool.flwr.app]
publisher = "trellis"
[tool.flwr.app.components]
serverapp = "odd.server:app"
clientapp = "odd.client:app"
[tool.flwr.app.config]
tiny = 1e-7
huge = 1e22
plain = 0.5
nested.key = true
"quoted key" = -3
[tool.flwr.federations]
default = "local"
[tool.flwr.federations.local]
options.num-supernodes = 2
"""
ODD_FILES = {
    ".gitignore": "# left out\n*.json\n!keep.json\n/secret/\nnotes/*.md\n",
    "LICENSE": "as you like",
    "README.md": "# Odd\n",
    "a.json": "{}",
    "keep.json": "{}",
    "data.csv": "1,2\n",
    "secret/key.py": "",
    "notes/a.md": "",
    "notes/deep/b.md": "",
    "odd/__init__.py": "",
    "odd/client.py": "app = None\n",
    "odd/server.py": "app = None\n",
    "odd/test_client.py": "",
    "odd/__pycache__/client.py": "",
    "build/lib.py": "",
    "odd/ümlaut.py": "",
}


def odd_app(root: Path) -> Path:
    """An app with whatever could be treated in two ways."""
    app = root / "odd"
    for name, text in ODD_FILES.items():
        path = app / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (app / "pyproject.toml").write_text(ODD_PROJECT)
    (app / "link.py").symlink_to(app / "odd" / "client.py")
    return app


def our_hash(workspace: Workspace, app: Path) -> str:
    argv = [str(trellis_binary()), "run", str(app), "--app-server", "--dry-run", "-o", "json"]
    done = subprocess.run(
        argv, env=workspace.env(), capture_output=True, text=True, timeout=COMMAND_LIMIT_S, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["fab_hash"]


def their_hash(workspace: Workspace, app: Path, version: str) -> str:
    try:
        release = flower(version)
    except CannotBeHad as why:
        pytest.skip(str(why))
    place = workspace.root / f"built-{version}"
    place.mkdir()
    argv = [release.command("flwr"), "build", "--app", str(app)]
    done = subprocess.run(
        argv,
        env=workspace.env(release),
        cwd=place,
        capture_output=True,
        text=True,
        timeout=COMMAND_LIMIT_S,
        check=False,
    )
    bundles = list(place.glob("*.fab"))
    assert len(bundles) == 1, done.stdout + done.stderr
    return hashlib.sha256(bundles[0].read_bytes()).hexdigest()


@pytest.mark.parametrize("version", RELEASES)
@pytest.mark.parametrize("name", ["digits", "acts", "odd"])
def test_a_bundle_has_the_hash_that_flower_gives_it(workspace, name, version):
    app = odd_app(workspace.root) if name == "odd" else workspace.copy_app(APPS / name)

    assert our_hash(workspace, app) == their_hash(workspace, app, version)
