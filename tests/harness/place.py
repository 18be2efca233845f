"""A simulated other machine: its own home and files, and optionally its own network. Its logs and the end of its
processes belong to the parent workspace.
"""

from dataclasses import dataclass
from pathlib import Path

from harness.namespace import Namespace
from harness.process import Process
from harness.workspace import Workspace


@dataclass
class Place(Workspace):
    """A workspace within a workspace."""

    namespace: Namespace | None = None

    @classmethod
    def within(cls, workspace: Workspace, name: str, namespace: Namespace | None = None) -> "Place":
        (workspace.root / name).mkdir(exist_ok=True)
        return cls(workspace.root / name, workspace.mark, workspace.processes, namespace)

    @property
    def logs(self) -> Path:
        return self.root.parent / "logs"

    def start(self, name: str, argv: list[str], env: dict[str, str] | None = None, cwd: Path | None = None) -> Process:
        inside = argv if self.namespace is None else self.namespace.command(argv)
        return super().start(f"{self.root.name}-{name}", inside, env, cwd)
