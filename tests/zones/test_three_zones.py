"""A federation over three clouds behind NAT, with WireGuard between them: it comes up, and outlives what happens to links,
certificates and sizes."""

import json
import ssl
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from cryptography import x509
from harness.platform import Platform
from harness.waiting import wait_for
from harness.workspace import Workspace
from harness.zones import CREDENTIALS, Cloud, Internet, Zone
from provision import CannotBeHad

COORDINATOR, NEAR, FAR = "madrid", "lyon", "oulu"
UP_LIMIT_S = 180.0
SCALE_LIMIT_S = 180.0
RUN_LIMIT_S = 600.0
CUT_S = 120.0
TUNNEL_PORT = 51820
TRUST_LIMIT_S = 120.0
ADVERTISED = "fl.example.org"
# About two minutes of training on two cores, and more than the cut where nodes wait.
LONG_ROUNDS = 400


@dataclass(frozen=True)
class ZonePlatform(Platform):
    """A control plane at the front end of a zone."""

    zone: Zone

    def argv(self, *words: str) -> list[str]:
        return self.zone.router.command(super().argv(*words))


class Scene:
    """Three zones, their clouds, and a control plane in the first."""

    def __init__(self, workspace: Workspace):
        self.workspace = workspace
        internet = Internet(workspace)
        self.zones = {name: Zone(internet, name, 11 + index) for index, name in enumerate((COORDINATOR, NEAR, FAR))}
        self.clouds = {name: Cloud(zone) for name, zone in self.zones.items()}
        self.platform = ZonePlatform(workspace, self.zones[COORDINATOR])
        self.auth = workspace.root / "one_auth"
        self.auth.write_text(CREDENTIALS)
        self.image = workspace.root / "appliance.qcow2"
        self.image.write_bytes(b"")

    def document(self, near: int, far: int, advertise: list[str]) -> Path:
        path = self.workspace.root / "federation.yaml"
        site = [self._site(name) for name in self.zones]
        pools = [{"name": name, "site": name, "count": count} for name, count in ((NEAR, near), (FAR, far))]
        coordinator = {"site": COORDINATOR, "endpoints": {"advertise": advertise}}
        spec = {"sites": site, "coordinator": coordinator, "pools": pools}
        document = {"apiVersion": "trellis.dev/v1", "kind": "Federation", "metadata": {"name": "far"}, "spec": spec}
        path.write_text(json.dumps(document))
        return path

    def _site(self, name: str) -> dict:
        zone, cloud = self.zones[name], self.clouds[name]
        images = {"superlink": str(self.image), "supernode": str(self.image)}
        one = {"endpoint": cloud.endpoint, "flow": cloud.flow, "network": "lan", "authFile": str(self.auth), "images": images}
        one["allowPlainHttp"] = True
        tunnel: dict = {"networks": [f"{zone.lan}.0/24"]}
        if name == COORDINATOR:
            tunnel["endpoint"] = f"{zone.public}:{TUNNEL_PORT}"
        return {"name": name, "opennebula": one, "link": {"wireguard": tunnel}}

    def apply(self, near: int, far: int, advertise: list[str]) -> None:
        self.platform.run("apply", "-f", str(self.document(near, far, advertise)), "--no-wait")

    def open_tunnel(self) -> None:
        """The administrator of the first zone lets others call its gateway."""
        cloud = self.clouds[COORDINATOR]
        gateway = wait_for("the gateway of the coordinator's site", lambda: cloud.vms("gateway") or None, UP_LIMIT_S)[0]
        self.zones[COORDINATOR].forward("udp", TUNNEL_PORT, gateway["ip"])

    def shards(self) -> dict[str, int]:
        nodes = self.platform.answer("nodes", "--federation", "far")
        return {node["name"]: node["shard"] for node in nodes["items"]} if nodes else {}

    def wait_nodes(self, count: int) -> dict[str, int]:
        def look() -> dict[str, int] | None:
            detail = self.platform.answer("status", "far")
            settled = detail and detail["summary"]["state"] == "ready"
            shards = self.shards()
            return shards if settled and len(shards) == count else None

        return wait_for(f"{count} nodes to be there", look, SCALE_LIMIT_S)

    def start_run(self, rounds: int) -> str:
        words = ("run", "native:mlp", "--federation", "far", "--detach", "--rounds", str(rounds))
        return wait_for("a run to be taken", lambda: self.platform.answer(*words), UP_LIMIT_S)["run_id"]

    def run_state(self, run: str) -> dict | None:
        return self.platform.answer("runs", run, "--federation", "far")

    def wait_completed(self, run: str) -> None:
        def ended() -> dict | None:
            state = self.run_state(run)
            return state if state and state["state"] == "finished" else None

        state = wait_for(f"run {run} to end", ended, RUN_LIMIT_S)
        assert state["outcome"] == "completed", state

    def machine(self, site: str, role: str) -> Path:
        """The file system of the VM of a role at a site."""
        return self.workspace.root / f"cloud-{site}" / f"vm-{self.clouds[site].vms(role)[0]['id']}" / "root"

    def rotate_authority(self) -> None:
        """As the administrator does it in the coordinator's machine: nodes have both authorities before the old one goes."""
        words = ("appliance", "rotate-ca", "--root", str(self.machine(COORDINATOR, "superlink")))
        self.platform.run(*words)
        for site in (NEAR, FAR):
            trust = self.machine(site, "supernode") / "var" / "lib" / "trellis" / "trust"
            wait_for(f"both authorities at {site}", lambda at=trust: authorities(at) == 2, TRUST_LIMIT_S)
        self.platform.run(*words, "--finish")
        for site in (NEAR, FAR):
            trust = self.machine(site, "supernode") / "var" / "lib" / "trellis" / "trust"
            wait_for(f"the new authority alone at {site}", lambda at=trust: authorities(at) == 1, TRUST_LIMIT_S)

    def served_names(self) -> list[str]:
        """What the coordinator's certificate covers."""
        address = (self.clouds[COORDINATOR].vms("superlink")[0]["ip"], 9092)
        pem = self.zones[COORDINATOR].router.inside(lambda: ssl.get_server_certificate(address, timeout=TRUST_LIMIT_S))
        names = x509.load_pem_x509_certificate(pem.encode()).extensions.get_extension_for_class(
            x509.SubjectAlternativeName
        )
        return names.value.get_values_for_type(x509.DNSName)


@pytest.fixture
def scene(workspace: Workspace) -> Scene:
    try:
        return Scene(workspace)
    except CannotBeHad as why:
        pytest.skip(str(why))


def authorities(trust: Path) -> int:
    """How many are trusted."""
    files = [trust] if trust.is_file() else list(trust.glob("*"))
    return max((file.read_text().count("BEGIN CERTIFICATE") for file in files), default=0)


def names_or_none(scene: Scene) -> list[str] | None:
    """`None` while nobody answers."""
    try:
        return scene.served_names()
    except OSError:
        return None


def disjoint(shards: dict[str, int]) -> bool:
    return len(set(shards.values())) == len(shards)


def test_three_zones(scene: Scene) -> None:
    scene.apply(1, 1, [])
    scene.open_tunnel()
    two = scene.wait_nodes(2)
    assert disjoint(two)

    scene.wait_completed(scene.start_run(3))

    run = scene.start_run(LONG_ROUNDS)
    scene.rotate_authority()
    scene.apply(1, 1, [ADVERTISED])
    wait_for("a certificate with the new name", lambda: ADVERTISED in (names_or_none(scene) or []), TRUST_LIMIT_S)
    scene.wait_completed(run)

    run = scene.start_run(LONG_ROUNDS)
    scene.zones[FAR].cut()
    # What is tested is this silence itself.
    time.sleep(CUT_S)
    scene.zones[FAR].mend()
    scene.wait_completed(run)

    scene.apply(3, 2, [ADVERTISED])
    five = scene.wait_nodes(5)
    assert disjoint(five) and two.items() <= five.items()
    scene.apply(2, 1, [ADVERTISED])
    three = scene.wait_nodes(3)
    assert disjoint(three) and three.items() <= five.items()
    scene.wait_completed(scene.start_run(3))
