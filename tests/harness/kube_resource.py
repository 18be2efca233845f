"""`FederationRun`s of a test, and their status."""

from collections.abc import Callable
from dataclasses import dataclass

from harness.kube import Cluster
from harness.waiting import NotInTime, wait_for


@dataclass(frozen=True)
class FederationRun:
    """A run of the federation `fed`, in the default namespace."""

    cluster: Cluster
    name: str

    def apply(self, app: dict, **spec: object) -> "FederationRun":
        resource = {
            "apiVersion": "flwr.exalsius.ai/v1",
            "kind": "FederationRun",
            "metadata": {"name": self.name, "namespace": "default"},
            "spec": {"federation": "fed", "app": app, **spec},
        }
        self.cluster.apply(resource)
        return self

    def status(self) -> dict:
        return self.cluster.get("federationrun", self.name).get("status", {})

    def wait(self, what: str, holds: Callable[[dict], bool], limit_s: float) -> dict:
        """Returns the status when the condition holds."""

        def look() -> dict | None:
            status = self.status()
            return status if holds(status) else None

        try:
            return wait_for(f"FederationRun {self.name}: {what}", look, limit_s)
        except NotInTime as late:
            raise NotInTime(f"{late}\n{self.status()}\n{self.cluster.diagnostics()}") from None

    def wait_complete(self, limit_s: float) -> dict:
        return self.wait("its end", lambda status: status.get("state") == "Succeeded", limit_s)

    def delete(self) -> None:
        """Returns when the resource is gone: its run is over then."""
        self.cluster.kubectl("delete", "federationrun", self.name)
