"""An installed official Flower release: its commands and their arguments. `changes.json` lists in which release a
transport or a file changed, `launch.json` the arguments of each release. crates/base/flower writes both.
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
    """One release, for example 1.42."""

    version: str
    bin: Path

    @property
    def minor(self) -> int:
        return int(self.version.partition(".")[2])

    def since(self, change: str) -> bool:
        """Whether the release includes a change of the table."""
        return self.minor >= CHANGES[change]

    def command(self, name: str) -> str:
        return str(self.bin / name)

    def arguments(self, name: str, **values: object) -> list[str]:
        """The arguments in the table, with values for the placeholders."""
        return [word.format_map(values) for word in LAUNCH[str(self.minor)][name].split()]

    @property
    def cli_transport(self) -> str:
        return HTTP if self.since("control_by_http") else GRPC

    @property
    def fleet_transport(self) -> str:
        return HTTP if self.since("fleet_by_http") else GRPC

    @property
    def runtime_transport(self) -> str:
        """The transport between the SuperLink and ServerApps or SuperExecs."""
        return HTTP if self.since("apps_by_http") else GRPC

    @property
    def cli_reads_home(self) -> bool:
        """Whether `flwr` reads the SuperLink's address from FLWR_HOME instead of the app's pyproject.toml."""
        return self.since("cli_reads_home")

    @property
    def cli_shows_federations(self) -> bool:
        """Whether `federation show` exists; later releases have it in `federation list`."""
        return not self.since("cli_reads_home")

    @property
    def node_wants_certificate(self) -> bool:
        """Whether a SuperNode needs a certificate for its ClientApps if the SuperLink has TLS."""
        return self.since("control_by_http")

    @property
    def superlink_has_one_port(self) -> bool:
        """Whether the official SuperLink serves apps at `--host` and `--port`, without a separate address."""
        return self.since("apps_by_http")

    @property
    def superlink_installs_packages(self) -> bool:
        """Whether it must be told not to install an app's dependencies."""
        return self.since("installs_dependencies")


_known: dict[str, Flower | CannotBeHad] = {}


def flower(version: str = DEFAULT) -> Flower:
    """The release, installed if necessary. A failed installation is not repeated."""
    if version not in _known:
        try:
            _known[version] = Flower(version, provision(version) / "bin")
        except CannotBeHad as why:
            _known[version] = CannotBeHad(f"official Flower {version} cannot be had here: {why}")
    found = _known[version]
    if isinstance(found, CannotBeHad):
        raise found
    return found
