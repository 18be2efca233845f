"""Debian packages unpacked into the test cache: nothing is installed on the machine.
"""

import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from provision import CannotBeHad, cache_dir, locked

APT_LIMIT_S = 300
STAMP = ".trellis-stamp"


@dataclass(frozen=True)
class Unpacked:
    """The files of some packages in a directory that replaces `/`."""

    root: Path

    def program(self, path: str) -> str:
        return str(self.root / path)

    def library(self, name: str) -> str:
        """A file in the library directory of this architecture."""
        found = list(self.root.glob(f"usr/lib/*/{name}"))
        if len(found) != 1:
            raise CannotBeHad(f"the packages have {len(found)} files named {name}")
        return str(found[0])

    @property
    def env(self) -> dict[str, str]:
        """The environment for programs of these packages to find their libraries."""
        places = sorted({str(path.parent) for path in self.root.glob("usr/lib/*/*.so*")})
        return os.environ | {"LD_LIBRARY_PATH": os.pathsep.join(places)}


def unpacked(*packages: str) -> Unpacked:
    """Unpacks these packages, downloading them if necessary; the directory has the name of the first one."""
    place, stamp = cache_dir() / "debian" / packages[0], " ".join(packages)
    with locked(cache_dir() / f"debian-{packages[0]}.lock"):
        if not (place / STAMP).is_file() or (place / STAMP).read_text() != stamp:
            _unpack(place, packages)
            (place / STAMP).write_text(stamp)
    return Unpacked(place)


def _unpack(place: Path, packages: tuple[str, ...]) -> None:
    for tool in ("apt-get", "dpkg-deb"):
        if shutil.which(tool) is None:
            raise CannotBeHad(f"{tool} is missing: this is not Debian")
    with tempfile.TemporaryDirectory() as scratch:
        directory, draft = Path(scratch), Path(scratch) / "unpacked"
        for package in _download(directory, packages):
            _run(["dpkg-deb", "--extract", str(package), str(draft)], directory)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(place, ignore_errors=True)
        shutil.move(draft, place)


def _download(directory: Path, packages: tuple[str, ...]) -> list[Path]:
    """Uses the package lists of the machine if there are any, otherwise downloads its own."""
    try:
        _run(["apt-get", "--quiet", "download", *packages], directory)
    except CannotBeHad:
        lists, cache = directory / "lists", directory / "cache"
        (lists / "partial").mkdir(parents=True)
        (cache / "archives" / "partial").mkdir(parents=True)
        private = ["apt-get", "--quiet", "-o", f"Dir::State::lists={lists}", "-o", f"Dir::Cache={cache}"]
        _run([*private, "update"], directory)
        _run([*private, "download", *packages], directory)
    found = sorted(directory.glob("*.deb"))
    if len(found) != len(packages):
        raise CannotBeHad(f"apt-get downloaded {len(found)} packages instead of {len(packages)}")
    return found


def _run(argv: list[str], directory: Path) -> None:
    env = os.environ | {"LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}
    try:
        done = subprocess.run(
            argv, cwd=directory, capture_output=True, text=True, timeout=APT_LIMIT_S, check=False, env=env
        )
    except subprocess.TimeoutExpired as late:
        raise CannotBeHad(f"{argv[0]} did not finish within {APT_LIMIT_S} s") from late
    if done.returncode != 0:
        output = done.stderr.strip().splitlines()
        raise CannotBeHad(f"{argv[0]} {argv[-1]}: {output[-1] if output else done.returncode}")
