#!/usr/bin/env python3
"""Make the cached virtual environment with the official Flower 1.25.0, and print its path.

Needs only the python3 that runs it (3.10 or newer) and a package index. Knows nothing of the tests that use it.

A stamp file is written last and names the requirements it stands for, so an interrupted or outdated environment is
rebuilt instead of trusted. A lock lets several `make` commands run at once. With a valid stamp this takes milliseconds.

Exit codes: 0 ready, 75 the packages cannot be had here (callers count that as a skip), 1 anything else.
"""

import contextlib
import fcntl
import hashlib
import os
import subprocess
import sys
import venv
from pathlib import Path

OFFICIAL_VERSION = "1.25.0"
CANNOT_BE_HAD = 75
REQUIREMENTS = Path(__file__).resolve().parent / "requirements.txt"
STAMP = ".trellis-ready"
PIP_TIMEOUT_S = 900


class CannotBeHad(Exception):
    """The official packages could not be installed on this machine."""


def cache_dir() -> Path:
    """Where everything the tests keep between invocations lives."""
    return Path(os.environ.get("TRELLIS_TEST_CACHE") or Path.home() / ".cache" / "trellis-test")


def environment_dir() -> Path:
    return cache_dir() / "flwr-1.25"


def wanted_stamp() -> str:
    return hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()


def is_ready(directory: Path) -> bool:
    stamp = directory / STAMP
    return (
        stamp.is_file()
        and stamp.read_text().strip() == wanted_stamp()
        and all((directory / "bin" / name).exists() for name in ("python", "flwr"))
    )


@contextlib.contextmanager
def locked(path: Path):
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def build(directory: Path) -> None:
    what = f"official Flower {OFFICIAL_VERSION} into {directory}"
    print(f"provision: installing {what} (once, about a minute)", file=sys.stderr)
    if sys.version_info < (3, 10):
        raise CannotBeHad(f"Flower {OFFICIAL_VERSION} needs Python 3.10 or newer, this is {sys.version.split()[0]}")
    venv.EnvBuilder(clear=True, with_pip=True, symlinks=True).create(directory)
    command = [str(directory / "bin" / "python"), "-m", "pip", "install", "--quiet", "-r", str(REQUIREMENTS)]
    try:
        done = subprocess.run(command, stdout=sys.stderr, timeout=PIP_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as late:
        raise CannotBeHad(f"pip did not finish within {PIP_TIMEOUT_S} s") from late
    if done.returncode != 0:
        raise CannotBeHad(f"pip ended with {done.returncode}; its messages are above")
    (directory / STAMP).write_text(wanted_stamp() + "\n")


def provision() -> Path:
    """The ready environment's directory, built now if need be."""
    directory = environment_dir()
    if is_ready(directory):
        return directory
    with locked(cache_dir() / "flwr-1.25.lock"):
        if not is_ready(directory):
            build(directory)
    return directory


def main() -> int:
    try:
        print(provision())
    except CannotBeHad as why:
        print(f"provision: official Flower {OFFICIAL_VERSION} cannot be had here: {why}", file=sys.stderr)
        return CANNOT_BE_HAD
    return 0


if __name__ == "__main__":
    sys.exit(main())
