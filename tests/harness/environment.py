"""Python packages for checks, each in its own environment in the test cache."""

import hashlib
import subprocess
import sys
import venv
from pathlib import Path

from provision import CannotBeHad, cache_dir, locked

STAMP = ".trellis-stamp"
PIP_TIMEOUT_S = 300


def environment(name: str, *packages: str) -> Path:
    """The directory of programs of an environment with these packages; created if necessary."""
    directory = cache_dir() / name
    stamp = hashlib.sha256("\n".join(packages).encode()).hexdigest()
    ready = directory / STAMP
    with locked(cache_dir() / f"{name}.lock"):
        if not ready.is_file() or ready.read_text() != stamp:
            _build(directory, packages)
            ready.write_text(stamp)
    return directory / "bin"


def _build(directory: Path, packages: tuple[str, ...]) -> None:
    venv.EnvBuilder(clear=True, with_pip=True, symlinks=True).create(directory)
    command = [str(directory / "bin" / "python"), "-m", "pip", "install", "--quiet", *packages]
    try:
        done = subprocess.run(command, stdout=sys.stderr, timeout=PIP_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as late:
        raise CannotBeHad(f"pip did not finish within {PIP_TIMEOUT_S} s") from late
    if done.returncode != 0:
        raise CannotBeHad(f"pip ended with {done.returncode}; its messages are above")
