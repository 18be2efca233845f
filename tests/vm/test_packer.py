"""The Packer templates: what Packer itself says of them, and that the script in them is one."""

import shutil
import subprocess

import pytest

from harness.workspace import REPOSITORY

TEMPLATES = REPOSITORY / "deploy" / "packer"
LIMIT_S = 60


def test_packer_understands_the_templates():
    if shutil.which("packer") is None:
        pytest.skip("packer is not there: its templates are not checked")

    done = _run("packer", "validate", "-syntax-only", ".")

    assert done.returncode == 0, done.stdout + done.stderr


def test_the_script_is_one_of_the_shell():
    done = _run("sh", "-n", "install.sh")

    assert done.returncode == 0, done.stderr


def _run(*argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(argv, cwd=TEMPLATES, capture_output=True, text=True, timeout=LIMIT_S, check=False)
