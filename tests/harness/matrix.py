"""The combinations of releases in the interop matrix, and the record of their results.
Does not need Flower: the program that prints the table uses the same axes.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path

from provision import releases

# Not supported, and refused with a reason.
TOO_OLD = "1.22"
# Each of these is tested separately; those in between only on request.
RELEASES = tuple(version for version, release in releases().items() if not release.between and version != TOO_OLD)
BETWEEN = tuple(version for version, release in releases().items() if release.between)

# Each of these is combined with every other, in one run per pair with a node of every release.
NODES = ("1.25", "1.31", "1.36", "1.39", "1.40", "1.41", "1.42")
COMMAND_LINES = ("1.25", "1.30", "1.36", "1.37", "1.42")
RUNTIMES = ("1.25", "1.40", "1.41", "1.42")

# The links on which a release is tested separately.
SUPERNODE, COMMANDS, LAUNCHED, SUPEREXEC = "supernode", "commands", "launched", "superexec"
LINKS = (SUPERNODE, COMMANDS, LAUNCHED, SUPEREXEC)
PASS = "pass"


def meetings() -> list[tuple[str, str, str]]:
    """Node, command line and runtime of each run of the product."""
    return [(node, cli, runtime) for node in NODES for cli in COMMAND_LINES for runtime in RUNTIMES]


@dataclass
class Record:
    """The result: `pass`, or `refused: ` and the reason. Missing entries were not tested."""

    runs: dict[str, str] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)

    def met(self, node: str, cli: str, runtime: str, result: str) -> None:
        self.runs[_key(node, cli, runtime)] = result

    def tried(self, link: str, version: str, result: str) -> None:
        self.links[_key(link, version)] = result

    def meeting(self, node: str, cli: str, runtime: str) -> str | None:
        return self.runs.get(_key(node, cli, runtime))

    def link(self, link: str, version: str) -> str | None:
        return self.links.get(_key(link, version))

    def missing(self) -> list[str]:
        """The results that are missing for a complete table."""
        runs = [_key(*meeting) for meeting in meetings()]
        links = [_key(link, version) for link in LINKS for version in RELEASES]
        links.append(_key(SUPERNODE, TOO_OLD))
        return [key for key in runs if key not in self.runs] + [key for key in links if key not in self.links]

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"runs": self.runs, "links": self.links}, indent=1) + "\n")

    @classmethod
    def read(cls, path: Path) -> "Record":
        return cls(**json.loads(path.read_text()))


def _key(*parts: str) -> str:
    return " ".join(parts)
