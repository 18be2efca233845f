"""The package is as it was generated, typed and clean; its version is that of the program."""

import os
import subprocess
import sys
import tomllib

import pytest
from book.commands import blocks
from harness.workspace import REPOSITORY
from sdk.conftest import SDK, SOURCE

pytestmark = [pytest.mark.quick, pytest.mark.trellis_only]

# mypy reads the standard library once.
LIMIT_S = 300.0


@pytest.mark.parametrize("words", [["mypy", "--no-incremental"], ["ruff", "check", "--no-cache"], ["ruff", "format", "--check", "--no-cache"]])
def test_the_package_is_typed_and_clean(programs, words):
    argv = [str(programs / words[0]), *words[1:]]
    done = subprocess.run(argv, cwd=SDK, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


def test_examples_are_typed(programs, tmp_path):
    """What a reader of docs/python.md copies passes their own strict check; functions of examples have no annotations."""
    examples = tmp_path / "examples.py"
    examples.write_text("\n".join(blocks(REPOSITORY / "docs" / "python.md", "python")))
    argv = [str(programs / "mypy"), "--no-incremental", "--allow-untyped-defs", "--allow-untyped-calls", str(examples)]
    env = {**os.environ, "MYPYPATH": str(SOURCE)}
    done = subprocess.run(argv, cwd=SDK, env=env, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


def test_what_is_generated_is_as_it_is_kept():
    argv = [sys.executable, str(SDK / "generate.py"), "--check"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"


def test_the_version_is_that_of_the_program():
    import trellis

    cargo = tomllib.loads((REPOSITORY / "Cargo.toml").read_text())
    project = tomllib.loads((SDK / "pyproject.toml").read_text())["project"]
    assert trellis.__version__ == project["version"] == cargo["workspace"]["package"]["version"]


def test_every_call_of_the_api_has_a_method():
    """By its path: a route without one is forgotten, or listed here with a reason."""
    import json

    # The document describes the others.
    without = {"/openapi.json"}
    source = (SOURCE / "trellis" / "aio" / "_client.py").read_text() + (SOURCE / "trellis" / "aio" / "_run.py").read_text()
    paths = json.loads((REPOSITORY / "docs" / "api" / "openapi.json").read_text())["paths"]
    for path in set(paths) - without:
        words = [word for word in path.split("/") if word and not word.startswith("{")]
        missing = [word for word in words if f'"{word}"' not in source and f"/{word}" not in source]
        assert not missing, f"{path}: nothing in the client says {missing}"
