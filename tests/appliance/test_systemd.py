"""A SuperLink's appliance in a machine with a real systemd.

Its units, how they are confined, who may reach them, and what is left of it after a restart.
"""

import json
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.machine import Machine
from harness.namespace import Namespace
from harness.waiting import NotInTime, wait_for
from harness.workspace import Workspace, trellis_binary
from provision import CannotBeHad

FLEET = 9092
MACHINE, NEAR = "10.95.1.2", "10.95.1.1"
ALLOWED, FOREIGN = "10.95.2.1", "10.95.3.1"
READY_LIMIT_S = 60.0
REACH_LIMIT_S = 3.0
# Of 10; systemd calls a unit up to 4.9 "OK", and one without any of it has 9.6.
MOST_EXPOSURE = 4.5
# The agent is told of the end of a program, and says it.
NOTICED_LIMIT_S = 10.0
CONTEXT = {
    "FL_ALLOWED_NETWORKS": "10.95.2.0/24",
    "FL_ROUTES": f"10.95.2.0/24 via {NEAR}, 10.95.3.0/24 via {NEAR}",
}


class Scene:
    """The machine, and a neighbour who can call from several networks."""

    def __init__(self, workspace: Workspace):
        network, self.neighbour = Namespace(workspace, "machine"), Namespace(workspace, "neighbour")
        wire = ("eth0", "type", "veth", "peer", "name", "eth0", "netns", str(self.neighbour.pid))
        network.run("ip", "link", "add", *wire)
        for end, address in ((network, MACHINE), (self.neighbour, NEAR)):
            end.run("ip", "address", "add", f"{address}/24", "dev", "eth0")
            end.run("ip", "link", "set", "eth0", "up")
        for address in (ALLOWED, FOREIGN):
            self.neighbour.run("ip", "address", "add", f"{address}/32", "dev", "lo")
        context = workspace.root / "one-context"
        context.mkdir()
        text = "".join(f'export {name}="{value}"\n' for name, value in CONTEXT.items())
        (context / "one_env").write_text(text)
        self.machine = Machine(workspace, "link", network, {"/run/one-context": context})
        shutil.copy2(trellis_binary(), self.machine.root / "usr/bin/trellis")
        argv = [str(trellis_binary()), "appliance", "install", "--root", str(self.machine.root), "--role", "superlink"]
        subprocess.run(argv, check=True)

    def status(self) -> dict | None:
        done = self.machine.tried("trellis", "appliance", "status", "-o", "json")
        return json.loads(done.stdout) if done.stdout.startswith("{") else None

    def is_ready(self) -> dict | None:
        status = self.status()
        return status if status and status["ready"] and not status["trouble"] else None

    def wait_ready(self) -> dict:
        try:
            return wait_for("the appliance to be ready", self.is_ready, READY_LIMIT_S)
        except NotInTime as late:
            journal = self.machine.tried("journalctl", "--no-pager", "--unit=trellis*", "--lines=30").stdout
            raise NotInTime(f"{late}: {self.status()}\n{journal}") from None

    def reaches(self, address: str) -> bool:
        def call() -> bool:
            try:
                socket.create_connection((MACHINE, FLEET), REACH_LIMIT_S, (address, 0)).close()
            except OSError:
                return False
            return True

        return self.neighbour.inside(call)

    def authority(self) -> str:
        return Path(self.machine.root, "var/lib/trellis/tls/own/ca.crt").read_text()


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    workspace, made = Workspace(tmp_path_factory.mktemp("systemd")), None
    try:
        made = Scene(workspace)
        made.machine.boot()
        made.wait_ready()
        yield made
    except CannotBeHad as why:
        pytest.skip(str(why))
    finally:
        if made is not None:
            made.machine.close()
        workspace.close()


def test_the_stages_of_a_boot_end_well(scene: Scene) -> None:
    for unit in ("trellis-agent", "trellis-superlink", "trellis-appliance"):
        wait_for(f"{unit} to be active", lambda unit=unit: _is_active(scene, unit), READY_LIMIT_S)
    scene.machine.run("trellis", "appliance", "configure")
    scene.machine.run("trellis", "appliance", "bootstrap", "--limit", "60")
    pid = scene.machine.run("systemctl", "show", "--property=MainPID", "trellis-superlink")
    scene.machine.run("trellis", "appliance", "bootstrap", "--limit", "60")
    assert scene.machine.run("systemctl", "show", "--property=MainPID", "trellis-superlink") == pid


def _is_active(scene: Scene, unit: str) -> bool:
    return scene.machine.tried("systemctl", "is-active", unit).stdout.strip() == "active"


def test_programs_are_confined(scene: Scene) -> None:
    told = scene.machine.run("systemd-analyze", "security", "--no-pager", "trellis-superlink.service")
    found = re.search(r"Overall exposure level for \S+: ([0-9.]+)", told)
    assert found and float(found[1]) <= MOST_EXPOSURE, told
    units = [f"/etc/systemd/system/trellis-{name}.service" for name in ("superlink", "agent", "appliance")]
    verified = scene.machine.tried("systemd-analyze", "verify", *units)
    assert verified.returncode == 0 and "trellis" not in verified.stderr, verified.stderr
    users = scene.machine.run("ps", "-o", "user:16=", "-C", "trellis")
    assert "trellis" in users.split()


def test_the_machine_has_the_routes_that_were_said(scene: Scene) -> None:
    """By "FL_ROUTES"."""
    routes = scene.machine.run("ip", "route", "show")
    for network in ("10.95.2.0/24", "10.95.3.0/24"):
        assert f"{network} via {NEAR}" in routes, routes


def test_only_networks_that_may_reach_the_fleet_port(scene: Scene) -> None:
    scene.machine.run("nft", "--check", "--file", "/etc/trellis/firewall.nft")
    reached = {address: scene.reaches(address) for address in (NEAR, ALLOWED, FOREIGN)}
    assert reached == {NEAR: True, ALLOWED: True, FOREIGN: False}
    # It is the rules that keep them out.
    scene.machine.run("nft", "delete", "table", "inet", "trellis")
    assert scene.reaches(FOREIGN)
    scene.machine.run("nft", "-f", "/etc/trellis/firewall.nft")
    assert not scene.reaches(FOREIGN)


def test_the_end_of_a_program_is_said(scene: Scene) -> None:
    before = scene.wait_ready()
    scene.machine.run("systemctl", "kill", "--kill-whom=main", "--signal=KILL", "trellis-superlink.service")
    wait_for("the agent to say it", lambda: not (scene.status() or before)["ready"], NOTICED_LIMIT_S)
    after = scene.wait_ready()
    assert after["instance"] != before["instance"]


def test_a_machine_that_is_started_again_is_the_same(scene: Scene) -> None:
    authority, before = scene.authority(), scene.wait_ready()
    scene.machine.halt()
    scene.machine.boot()
    after = scene.wait_ready()
    assert scene.authority() == authority
    assert after["endpoint"] == before["endpoint"] == f"{MACHINE}:{FLEET}"
    assert {address: scene.reaches(address) for address in (NEAR, FOREIGN)} == {NEAR: True, FOREIGN: False}
