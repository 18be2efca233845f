"""Prometheus as Debian packages it, unpacked into the test cache: nothing is installed on the machine.

Knows how to get, start and ask it; what it should say is decided by the tests.
"""

import json
import os
import shutil
import subprocess
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

from harness.ports import free_address
from harness.process import Process
from harness.waiting import wait_for
from harness.workspace import Workspace
from provision import CannotBeHad, cache_dir, locked

PACKAGE = "prometheus"
APT_LIMIT_S = 300
READY_LIMIT_S = 30.0
ASK_LIMIT_S = 10.0


def prometheus_bin() -> Path:
    """The directory with `prometheus` and `promtool`, filled now if need be."""
    place = cache_dir() / "debian" / PACKAGE
    with locked(cache_dir() / "debian.lock"):
        if not (place / "usr" / "bin" / "promtool").exists():
            _unpack(place)
    return place / "usr" / "bin"


def _unpack(place: Path) -> None:
    for tool in ("apt-get", "dpkg-deb"):
        if shutil.which(tool) is None:
            raise CannotBeHad(f"{tool} is not there: this is no Debian")
    with tempfile.TemporaryDirectory() as scratch:
        package = _download(Path(scratch))
        unpacked = Path(scratch) / "unpacked"
        _run(["dpkg-deb", "--extract", str(package), str(unpacked)], Path(scratch))
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(place, ignore_errors=True)
        shutil.move(unpacked, place)


def _download(directory: Path) -> Path:
    """With the package lists of the machine if it has any, else with lists of our own."""
    download = ["download", PACKAGE]
    try:
        _run(["apt-get", "--quiet", *download], directory)
    except CannotBeHad:
        lists, cache = directory / "lists", directory / "cache"
        (lists / "partial").mkdir(parents=True)
        (cache / "archives" / "partial").mkdir(parents=True)
        private = ["apt-get", "--quiet", "-o", f"Dir::State::lists={lists}", "-o", f"Dir::Cache={cache}"]
        _run([*private, "update"], directory)
        _run([*private, *download], directory)
    found = list(directory.glob(f"{PACKAGE}_*.deb"))
    if len(found) != 1:
        raise CannotBeHad(f"apt-get left {len(found)} packages")
    return found[0]


def _run(argv: list[str], directory: Path) -> None:
    try:
        done = subprocess.run(
            argv, cwd=directory, capture_output=True, text=True, timeout=APT_LIMIT_S, check=False, env=_plain_env()
        )
    except subprocess.TimeoutExpired as late:
        raise CannotBeHad(f"{argv[0]} did not finish within {APT_LIMIT_S} s") from late
    if done.returncode != 0:
        told = done.stderr.strip().splitlines()
        raise CannotBeHad(f"{argv[0]} {argv[-1]}: {told[-1] if told else done.returncode}")


def _plain_env() -> dict[str, str]:
    return os.environ | {"LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}


class Prometheus:
    """A Prometheus at work on a configuration."""

    def __init__(self, workspace: Workspace, config: Path):
        self._address = free_address()
        argv = [str(prometheus_bin() / "prometheus"), f"--config.file={config}"]
        argv += [f"--storage.tsdb.path={workspace.root / 'prometheus'}", f"--web.listen-address={self._address}"]
        self.process: Process = workspace.start("prometheus", argv)
        wait_for("Prometheus to be ready", self._is_ready, READY_LIMIT_S)

    def _is_ready(self) -> bool:
        assert self.process.alive, self.process.output()
        try:
            with urllib.request.urlopen(f"http://{self._address}/-/ready", timeout=ASK_LIMIT_S) as answer:
                return answer.status == 200
        except OSError:
            return False

    def ask(self, what: str, **parameters: object) -> object:
        """Its HTTP API: `query`, `query_range`, `targets`, `alerts`."""
        encoded = urllib.parse.urlencode(parameters)
        try:
            with urllib.request.urlopen(f"http://{self._address}/api/v1/{what}?{encoded}", timeout=ASK_LIMIT_S) as got:
                return json.load(got)["data"]
        except urllib.error.HTTPError as refused:
            raise AssertionError(f"{what} {parameters}: {refused.read().decode()}") from refused

    def value(self, expression: str) -> float | None:
        """The one value of an expression now; None where there is none."""
        found = self.ask("query", query=expression)["result"]
        assert len(found) <= 1, f"{expression} has {len(found)} values"
        return float(found[0]["value"][1]) if found else None

    def values(self, expression: str, start: float, end: float) -> list[float]:
        """All values of an expression in a span of time, second by second."""
        found = self.ask("query_range", query=expression, start=start, end=end, step="1s")["result"]
        return [float(value) for series in found for _, value in series["values"]]
