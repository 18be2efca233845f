"""Fixtures of the suite of the catalogue."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.workspace import Workspace, trellis_binary

EXPORT_LIMIT_S = 30.0


@pytest.fixture
def exported(workspace: Workspace) -> Callable[[str], Path]:
    """An app of the catalogue as a directory, by its name."""

    def export(name: str) -> Path:
        directory = workspace.root / "exported" / name
        directory.parent.mkdir(exist_ok=True)
        argv = [str(trellis_binary()), "app", "export", name, str(directory)]
        subprocess.run(argv, check=True, capture_output=True, timeout=EXPORT_LIMIT_S)
        return directory

    return export
