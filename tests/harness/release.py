"""An installed official Flower release: where its commands are, and the arguments that they take.

In which release a transport or a file changed stands in `changes.json`, the arguments of each release in `launch.json`. Both are
written by crates/base/flower.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from provision import DEFAULT_VERSION, CannotBeHad, provision

DEFAULT = DEFAULT_VERSION
GRPC, HTTP = "grpc", "http"
CHANGES = json.loads((Path(__file__).parent / "changes.json").read_text())
LAUNCH = json.loads((Path(__file__).parent / "launch.json").read_text())


@dataclass(frozen=True)
class Flower:
    """One release, e.g. 1.42."""

    version: str
    bin: Path

    @property
    def minor(self) -> int:
        return int(self.version.partition(".")[2])

    def since(self, change: str) -> bool:
        """Whether the release has a change of the table."""
        return self.minor >= CHANGES[change]

    def command(self, name: str) -> str:
        return str(self.bin / name)

    def arguments(self, name: str, **values: object) -> list[str]:
        """Arguments of the table, with values for its placeholders."""
        return [word.format_map(values) for word in LAUNCH[str(self.minor)][name].split()]

    @property
    def cli_transport(self) -> str:
        return HTTP if self.since("control_by_http") else GRPC

    @property
    def fleet_transport(self) -> str:
        return HTTP if self.since("fleet_by_http") else GRPC

    @property
    def runtime_transport(self) -> str:
        """Between ServerApps or their launcher and the SuperLink."""
        return HTTP if self.since("apps_by_http") else GRPC

    @property
    def cli_reads_home(self) -> bool:
        """Whether `flwr` looks for the SuperLink's address in FLWR_HOME, not in the app's pyproject.toml."""
        return self.since("cli_reads_home")

    @property
    def cli_shows_federations(self) -> bool:
        """Whether there is a `federation show`; later it is a form of `federation list`."""
        return not self.since("cli_reads_home")

    @property
    def node_wants_certificate(self) -> bool:
        """Whether a SuperNode of a SuperLink with TLS has to serve its own ClientApps with TLS, too."""
        return self.since("control_by_http")

    @property
    def superlink_has_one_port(self) -> bool:
        """Whether the official SuperLink serves apps at `--host` and `--port`, not at an address of their own."""
        return self.since("apps_by_http")

    @property
    def superlink_installs_packages(self) -> bool:
        """Whether it has to be told not to fetch an app's dependencies from a package index."""
        return self.since("installs_dependencies")


_known: dict[str, Flower | CannotBeHad] = {}


def flower(version: str = DEFAULT) -> Flower:
    """The release, installed now if need be. One that cannot be had is not tried again."""
    if version not in _known:
        try:
            _known[version] = Flower(version, provision(version) / "bin")
        except CannotBeHad as why:
            _known[version] = CannotBeHad(f"official Flower {version} cannot be had here: {why}")
    found = _known[version]
    if isinstance(found, CannotBeHad):
        raise found
    return found
