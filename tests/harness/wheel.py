"""The wheel of the Python package, built from a program."""

import shutil
import subprocess
import sys
from pathlib import Path

from harness.workspace import REPOSITORY

BUILD_LIMIT_S = 600.0


def build(out: Path, program: Path) -> Path:
    builder = REPOSITORY / "python" / "sdk" / "build_wheel.py"
    argv = [sys.executable, str(builder), "--program", str(program), "--out", str(out)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=BUILD_LIMIT_S, check=False)
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip())


def stripped(program: Path, directory: Path) -> Path:
    """The program without what a debugger needs, which is most of a debug build."""
    if shutil.which("strip") is None:
        return program
    copy = directory / "trellis"
    subprocess.run(["strip", "-o", str(copy), str(program)], check=True, timeout=BUILD_LIMIT_S)
    return copy
