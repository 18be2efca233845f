"""Prometheus from Debian packages, unpacked into the test cache: nothing is installed on the machine.
"""

import json
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

from harness.debian import unpacked
from harness.ports import free_address
from harness.process import Process
from harness.waiting import wait_for
from harness.workspace import Workspace

READY_LIMIT_S = 30.0
ASK_LIMIT_S = 10.0


def prometheus_bin() -> Path:
    """The directory with `prometheus` and `promtool`, filled if necessary."""
    return unpacked("prometheus").root / "usr" / "bin"


class Prometheus:
    """A running Prometheus with a configuration."""

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
        """Queries its HTTP API: `query`, `query_range`, `targets`, `alerts`."""
        encoded = urllib.parse.urlencode(parameters)
        try:
            with urllib.request.urlopen(f"http://{self._address}/api/v1/{what}?{encoded}", timeout=ASK_LIMIT_S) as got:
                return json.load(got)["data"]
        except urllib.error.HTTPError as refused:
            raise AssertionError(f"{what} {parameters}: {refused.read().decode()}") from refused

    def value(self, expression: str) -> float | None:
        """The current value of an expression; None if there is none."""
        found = self.ask("query", query=expression)["result"]
        assert len(found) <= 1, f"{expression} has {len(found)} values"
        return float(found[0]["value"][1]) if found else None

    def values(self, expression: str, start: float, end: float) -> list[float]:
        """The values of an expression in a period, in steps of one second."""
        found = self.ask("query_range", query=expression, start=start, end=end, step="1s")["result"]
        return [float(value) for series in found for _, value in series["values"]]
