"""Finds or installs the programs of one official Flower release, and creates a link to their directory.

Arguments: the release (1.39.0), the link, the directory for installations, and optionally the interpreter that the document
names. Tries in this order: that interpreter, `flwr` on PATH, a virtual environment in the directory. Runs to its end before
each start of a part; concurrent runs wait for the one that installs. The output goes to the log of the part.
"""

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

PROGRAMS = ("flower-superlink", "flower-supernode", "flower-superexec")
PROBE_TIMEOUT_S = 60
INSTALL_TIMEOUT_S = 900
MAX_OUTPUT_LINES = 5
# Written last: an environment without it is incomplete, and is created again.
STAMP = ".complete"
VERSION_SCRIPT = "import importlib.metadata as m, sysconfig; print(m.version('flwr'), sysconfig.get_path('scripts'), sep='\\n')"
# Querying the version must not send telemetry or check for updates.
QUIET = {**os.environ, "FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}


class NotAvailable(Exception):
    """Why the programs are not available, and what to do."""


def main(version, link, shared, python=""):
    try:
        programs = of_interpreter(version, python) or on_path(version) or installed(version, Path(shared), python)
    except NotAvailable as why:
        sys.exit(f"Flower {version} is not available: {why}")
    fresh = Path(f"{link}.{os.getpid()}")
    fresh.symlink_to(programs, target_is_directory=True)
    fresh.replace(link)
    print(f"Flower {version} is in {programs}", flush=True)


def of_interpreter(version, python):
    """The programs of the interpreter that the document names."""
    if not python:
        return None
    try:
        result = subprocess.run([python, "-c", VERSION_SCRIPT], env=QUIET, capture_output=True, text=True, timeout=PROBE_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired) as why:
        raise NotAvailable(f"cannot run the document's python: {why}. Correct `python`, or leave it out") from None
    if result.returncode != 0:
        print(f"{python} has no flwr; searching elsewhere", flush=True)
        return None
    found, scripts = result.stdout.splitlines()[:2]
    if found != version:
        print(f"{python} has flwr {found}; searching elsewhere", flush=True)
        return None
    return complete(Path(scripts))


def on_path(version):
    flwr = shutil.which("flwr")
    if flwr is None:
        return None
    try:
        result = subprocess.run([flwr, "--version"], env=QUIET, capture_output=True, text=True, timeout=PROBE_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired):
        return None
    is_it = result.returncode == 0 and version in result.stdout.split()
    return complete(Path(flwr).resolve().parent) if is_it else None


def complete(programs):
    return programs if all((programs / name).exists() for name in PROGRAMS) else None


def installed(version, shared, python):
    """The programs of a virtual environment in the home, created once."""
    environment = shared / "flower" / version
    environment.parent.mkdir(parents=True, exist_ok=True)
    with open(f"{environment}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (environment / STAMP).exists():
            install(version, environment, python or sys.executable)
    return environment / "bin"


def install(version, environment, python):
    print(f"installing flwr {version} into {environment}; this takes a minute", flush=True)
    shutil.rmtree(environment, ignore_errors=True)
    venv = "install the system's package for virtual environments (on Debian and Ubuntu: apt install python3-venv)"
    run([python, "-m", "venv", str(environment)], venv)
    index = (
        "connect this machine to a package index, or set PIP_INDEX_URL to a mirror, "
        f"or name an interpreter in the document (`python`) that has flwr {version}"
    )
    pip = [str(environment / "bin" / "python"), "-m", "pip", "install", "--disable-pip-version-check", "--quiet"]
    run([*pip, f"flwr=={version}"], index)
    if complete(environment / "bin") is None:
        raise NotAvailable(f"the package in {environment} does not contain the programs {', '.join(PROGRAMS)}")
    (environment / STAMP).touch()


def run(command, advice):
    """Runs a command. If it fails, raises its output and the advice."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise NotAvailable(f"`{' '.join(command)}` timed out after {INSTALL_TIMEOUT_S} s; {advice}") from None
    except OSError as why:
        raise NotAvailable(f"cannot run `{command[0]}`: {why}") from None
    if done.returncode != 0:
        output = "\n".join((done.stdout + done.stderr).strip().splitlines()[-MAX_OUTPUT_LINES:])
        raise NotAvailable(f"`{' '.join(command)}` exited with code {done.returncode}; {advice}. Its output:\n{output}")


if __name__ == "__main__":
    main(*sys.argv[1:])
