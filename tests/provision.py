#!/usr/bin/env python3
"""Creates the cached virtual environments with official Flower releases, and prints their paths.

`provision.py [--usual | VERSION...]`, for example `provision.py 1.25 1.42`; the default is 1.25. versions.ini lists the
releases and their requirements; `--usual` are all but those marked `between`. Requires only python3 (3.10 or newer) and
a package index. Knows nothing of the tests. A stamp file is written last and contains the requirements, so an
incomplete or outdated environment is rebuilt. A lock allows several `make` commands at once. With valid stamps this
takes milliseconds. Exit codes: 0 ready, 75 the packages of some version are not available (callers count that as a
skip), 1 any other failure.
"""

import configparser
import contextlib
import fcntl
import hashlib
import os
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path

DEFAULT_VERSION = "1.25"
CANNOT_BE_HAD = 75
VERSIONS = Path(__file__).resolve().parent / "versions.ini"
STAMP = ".trellis-stamp"
PIP_TIMEOUT_S = 900


class CannotBeHad(Exception):
    """The official packages could not be installed on this machine."""


@dataclass(frozen=True)
class Release:
    """An official release, and the additional packages of its environment."""

    version: str
    flwr: str
    requirements: tuple[str, ...]
    # Packages whose version differs from the requirement in Flower's metadata.
    relaxed: tuple[str, ...]
    # Whether it is a release in between, which is tested on request only.
    between: bool

    @property
    def stamp(self) -> str:
        text = "\n".join([self.flwr, *self.requirements, "relaxed:", *self.relaxed])
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def directory(self) -> Path:
        return cache_dir() / f"flwr-{self.version}"

    @property
    def is_ready(self) -> bool:
        stamp = self.directory / STAMP
        return (
            stamp.is_file()
            and stamp.read_text().strip() == self.stamp
            and all((self.directory / "bin" / name).exists() for name in ("python", "flwr"))
        )


def cache_dir() -> Path:
    """The directory of everything that tests keep between invocations."""
    return Path(os.environ.get("TRELLIS_TEST_CACHE") or Path.home() / ".cache" / "trellis-test")


def releases() -> dict[str, Release]:
    """All known releases by minor version, oldest first."""
    parser = configparser.ConfigParser(interpolation=None)
    parser.read_string(VERSIONS.read_text())
    return {version: _release(version, parser[version]) for version in parser.sections()}


def _release(version: str, settings: configparser.SectionProxy) -> Release:
    def lines(key: str) -> tuple[str, ...]:
        return tuple(line.strip() for line in settings.get(key, "").splitlines() if line.strip())

    packages = lines("requirements") + lines("tools")
    return Release(version, settings["flwr"], packages, lines("relaxed"), settings.getboolean("between", False))


@contextlib.contextmanager
def locked(path: Path):
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def build(release: Release) -> None:
    print(
        f"provision: installing official Flower {release.flwr} into {release.directory} (once, about a minute)",
        file=sys.stderr,
    )
    if sys.version_info < (3, 10):
        raise CannotBeHad(f"Flower {release.flwr} needs Python 3.10 or newer, this is {sys.version.split()[0]}")
    venv.EnvBuilder(clear=True, with_pip=True, symlinks=True).create(release.directory)
    flwr = f"flwr=={release.flwr}"
    if release.relaxed:
        pip_install(release, "--no-deps", flwr)
        pip_install(release, *own_requirements(release), *release.requirements)
    else:
        pip_install(release, flwr, *release.requirements)
    (release.directory / STAMP).write_text(release.stamp + "\n")


def pip_install(release: Release, *arguments: str) -> None:
    command = [str(release.directory / "bin" / "python"), "-m", "pip", "install", "--quiet", *arguments]
    try:
        done = subprocess.run(command, stdout=sys.stderr, timeout=PIP_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as late:
        raise CannotBeHad(f"pip did not finish within {PIP_TIMEOUT_S} s") from late
    if done.returncode != 0:
        raise CannotBeHad(f"pip exited with {done.returncode}; its messages are above")


def own_requirements(release: Release) -> list[str]:
    """The requirements in the metadata of the installed Flower, without those of relaxed packages."""
    ask = "import importlib.metadata as m; print(*m.requires('flwr'), sep='\\n')"
    python = str(release.directory / "bin" / "python")
    requirements = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=True).stdout.splitlines()
    # Extras are optional and ignored.
    wanted = [requirement for requirement in requirements if "extra ==" not in requirement]
    return [next((name for name in release.relaxed if _names(wish, name)), wish) for wish in wanted]


def _names(requirement: str, package: str) -> bool:
    return requirement.startswith(package) and not requirement[len(package) :][:1].isalnum()


def provision(version: str = DEFAULT_VERSION) -> Path:
    """The directory of the environment, which is created if necessary."""
    release = releases()[version]
    if release.is_ready:
        return release.directory
    with locked(cache_dir() / f"flwr-{version}.lock"):
        if not release.is_ready:
            build(release)
    return release.directory


def main(arguments: list[str]) -> int:
    known = releases()
    usual = [version for version, release in known.items() if not release.between]
    versions = usual if arguments == ["--usual"] else arguments or [DEFAULT_VERSION]
    if unknown := [version for version in versions if version not in known]:
        error = f"{VERSIONS.name} does not have {', '.join(unknown)}; it has {', '.join(known)}"
        print(f"provision: {error}", file=sys.stderr)
        return 1
    result = 0
    for version in versions:
        try:
            print(provision(version), flush=True)
        except CannotBeHad as why:
            print(f"provision: official Flower {version} is not available here: {why}", file=sys.stderr)
            result = CANNOT_BE_HAD
    return result


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
