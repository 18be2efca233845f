"""Finds the programs of one official Flower release on this machine, or installs them, and makes a link to where they are.

Arguments: the release (1.39.0), the link, the directory for what is installed here, and perhaps the interpreter that the
document names. It is tried in this order: that interpreter, `flwr` on PATH, a virtual environment in the directory. Runs to
its end before each start of a part; many at once wait for the one that installs. What is told goes to the part's log.
"""

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

PROGRAMS = ("flower-superlink", "flower-supernode", "flower-superexec")
LOOK_LIMIT_S = 60
INSTALL_LIMIT_S = 900
TOLD_LINES = 5
# Written last: an environment without it was left half made, and is made again.
STAMP = ".complete"
ASK = "import importlib.metadata as m, sysconfig; print(m.version('flwr'), sysconfig.get_path('scripts'), sep='\\n')"
# Neither telemetry nor a look for updates, just to learn a version.
QUIET = {**os.environ, "FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}


class CannotBeHad(Exception):
    """Why there are no such programs here, and what to do."""


def main(version, link, shared, python=""):
    try:
        programs = of_interpreter(version, python) or on_path(version) or installed(version, Path(shared), python)
    except CannotBeHad as why:
        sys.exit(f"Flower {version} cannot be had: {why}")
    fresh = Path(f"{link}.{os.getpid()}")
    fresh.symlink_to(programs, target_is_directory=True)
    fresh.replace(link)
    print(f"Flower {version} is in {programs}", flush=True)


def of_interpreter(version, python):
    """Beside the interpreter that the document names."""
    if not python:
        return None
    try:
        told = subprocess.run([python, "-c", ASK], env=QUIET, capture_output=True, text=True, timeout=LOOK_LIMIT_S)
    except (OSError, subprocess.TimeoutExpired) as why:
        raise CannotBeHad(f"the document's python cannot be asked: {why}. Correct `python`, or leave it out") from None
    if told.returncode != 0:
        print(f"{python} has no flwr; looking elsewhere", flush=True)
        return None
    found, scripts = told.stdout.splitlines()[:2]
    if found != version:
        print(f"{python} has flwr {found}; looking elsewhere", flush=True)
        return None
    return complete(Path(scripts))


def on_path(version):
    flwr = shutil.which("flwr")
    if flwr is None:
        return None
    try:
        told = subprocess.run([flwr, "--version"], env=QUIET, capture_output=True, text=True, timeout=LOOK_LIMIT_S)
    except (OSError, subprocess.TimeoutExpired):
        return None
    is_it = told.returncode == 0 and version in told.stdout.split()
    return complete(Path(flwr).resolve().parent) if is_it else None


def complete(programs):
    return programs if all((programs / name).exists() for name in PROGRAMS) else None


def installed(version, shared, python):
    """In an environment of our own, made once."""
    place = shared / "flower" / version
    place.parent.mkdir(parents=True, exist_ok=True)
    with open(f"{place}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (place / STAMP).exists():
            install(version, place, python or sys.executable)
    return place / "bin"


def install(version, place, python):
    print(f"installing flwr {version} into {place}; this takes a minute", flush=True)
    shutil.rmtree(place, ignore_errors=True)
    venv = "install the system's package for virtual environments (on Debian and Ubuntu: apt install python3-venv)"
    run([python, "-m", "venv", str(place)], venv)
    index = (
        "connect this machine to a package index, or set PIP_INDEX_URL to a mirror, "
        f"or name an interpreter in the document (`python`) that has flwr {version}"
    )
    pip = [str(place / "bin" / "python"), "-m", "pip", "install", "--disable-pip-version-check", "--quiet"]
    run([*pip, f"flwr=={version}"], index)
    if complete(place / "bin") is None:
        raise CannotBeHad(f"the package in {place} has not the programs {', '.join(PROGRAMS)}")
    (place / STAMP).touch()


def run(command, advice):
    """Runs it, or says what it said and what to do."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_LIMIT_S)
    except subprocess.TimeoutExpired:
        raise CannotBeHad(f"`{' '.join(command)}` did not end within {INSTALL_LIMIT_S} s; {advice}") from None
    except OSError as why:
        raise CannotBeHad(f"`{command[0]}` cannot be run: {why}") from None
    if done.returncode != 0:
        said = "\n".join((done.stdout + done.stderr).strip().splitlines()[-TOLD_LINES:])
        raise CannotBeHad(f"`{' '.join(command)}` ended with {done.returncode}; {advice}. It said:\n{said}")


if __name__ == "__main__":
    main(*sys.argv[1:])
