"""npm packages in the test cache, installed once per lock file, and the browser that tests drive.
A stamp file is written last and contains the lock's hash, so an incomplete or outdated installation is repeated.
"""

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from provision import CannotBeHad, cache_dir, locked

NPM_LIMIT_S = 600
STAMP = ".trellis-stamp"
# The manifest, the lock file and the npm configuration.
FILES = ("package.json", "package-lock.json", ".npmrc")
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def packages(folder: Path) -> Path:
    """A directory whose `node_modules` matches the lock file of the folder."""
    for program in ("node", "npm"):
        if not shutil.which(program):
            raise CannotBeHad(f"{program} is not installed")
    contents = b"\0".join((folder / name).read_bytes() for name in FILES)
    stamp = hashlib.sha256(contents).hexdigest()
    place = cache_dir() / f"npm-{folder.name}"
    with locked(cache_dir() / f"npm-{folder.name}.lock"):
        if not _is_ready(place, stamp):
            _install(folder, place)
            (place / STAMP).write_text(stamp)
    return place


def _is_ready(place: Path, stamp: str) -> bool:
    return (place / STAMP).is_file() and (place / STAMP).read_text() == stamp


def _install(folder: Path, place: Path) -> None:
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    for name in FILES:
        shutil.copy(folder / name, place / name)
    try:
        command = ["npm", "ci", "--ignore-scripts", "--no-progress"]
        done = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=NPM_LIMIT_S, check=False)
    except subprocess.TimeoutExpired as late:
        raise CannotBeHad(f"npm did not finish within {NPM_LIMIT_S} s") from late
    if done.returncode != 0:
        raise CannotBeHad(f"npm ci exited with {done.returncode}: {done.stderr[-500:]}")


def browser() -> str:
    """The program of Chromium: TRELLIS_TEST_CHROMIUM, or the installed one."""
    named = os.environ.get("TRELLIS_TEST_CHROMIUM")
    found = named or next(filter(None, map(shutil.which, BROWSERS)), None)
    if not found:
        raise CannotBeHad("no Chromium is installed (Debian: apt-get install chromium), and TRELLIS_TEST_CHROMIUM is not set")
    return found
