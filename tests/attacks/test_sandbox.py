"""Apps that try to leave their sandbox: warm and per message, of the oldest and the newest Flower, as root and as a user."""

import json
import os
import shutil
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from conftest import make_federation
from harness.federation import Federation
from harness.identity import ORDINARY_USER, ROOT, ROOT_WITH_APP_USERS, USER_ID, IdentityWorkspace
from harness.own_supernode import PER_MESSAGE, WARM, OwnNode
from provision import CannotBeHad

pytestmark = pytest.mark.trellis_only

OLDEST, NEWEST = "1.25", "1.42"
IDENTITIES = (ROOT, ROOT_WITH_APP_USERS, ORDINARY_USER)
# A variable of the node and the SuperLink that is no app's business, and one that the operator names.
SECRET, NAMED = "INTRUDERS_SECRET", "INTRUDERS_SETTING"
QUICK = {(ROOT, OLDEST, PER_MESSAGE), (ORDINARY_USER, NEWEST, WARM)}


@dataclass
class Scene:
    """A federation of one node in which a run has ended, and the files and ports that the next run is after."""

    federation: Federation
    identity: str
    earlier_run: int
    listener: socket.socket

    @property
    def root(self) -> Path:
        return self.federation.workspace.root

    @property
    def node(self):
        return self.federation.nodes[0]

    @property
    def port(self) -> int:
        return self.listener.getsockname()[1]

    def run(self, client: str = "honest", server: str = "honest") -> dict[str, dict[str, str]]:
        """What came of the attempts of both apps."""
        return outcomes(self.federation, submit(self.federation, client, server))

    def refused(self, client: list[str], server: list[str]) -> None:
        """Both apps try, and all of it is refused."""
        found = self.run(" ".join(client), " ".join(server))
        assert {word: said.partition(" ")[0] for word, said in found["client"].items()} == dict.fromkeys(client, "refused")
        assert {word: said.partition(" ")[0] for word, said in found["server"].items()} == dict.fromkeys(server, "refused")


def submit(federation: Federation, client: str, server: str) -> int:
    return federation.cli.submit(client_attempts=client, server_attempts=server)


def outcomes(federation: Federation, run_id: int) -> dict[str, dict[str, str]]:
    state = federation.wait_finished(run_id)
    assert state.status == "finished:completed", state
    return json.loads((federation.superlink.state_dir / "apps" / str(run_id) / "work" / "outcomes.json").read_text())


def cases() -> Iterator[object]:
    for identity in IDENTITIES:
        for version in (OLDEST, NEWEST):
            for lifecycle in (WARM, PER_MESSAGE):
                marks = [pytest.mark.quick] if (identity, version, lifecycle) in QUICK else []
                yield pytest.param((identity, version, lifecycle), id=f"{identity}-{version}-{lifecycle}", marks=marks)


@pytest.fixture(scope="module", params=list(cases()))
def scene(request: pytest.FixtureRequest) -> Iterator[Scene]:
    identity, version, lifecycle = request.param
    try:
        workspace = IdentityWorkspace.make(identity)
    except CannotBeHad as why:
        pytest.skip(str(why))
    try:
        for name in ("data", "elsewhere"):
            directory = workspace.root / name
            directory.mkdir()
            (directory / "file").write_text("content")
            if identity == ORDINARY_USER:
                os.chown(directory, USER_ID, USER_ID)
                os.chown(directory / "file", USER_ID, USER_ID)
        os.environ |= {SECRET: "secret", NAMED: "setting"}
        flags = ("--sandbox", "required", "--app-data", str(workspace.root / "data"))
        named = ("--app-env", f"{NAMED},MARK_OF_TRELLIS_TEST")
        node = OwnNode(python=version, lifecycle=lifecycle, flags=(*flags, *named, "--app-network", "none"))
        wanted = {"app": "intruder", "nodes": 1, "fleet": (node,), "cli": version, "runtime": version}
        federation = make_federation(workspace, request.config, **wanted, link_flags=(*flags, *named)).start()
        earlier = submit(federation, "honest", "honest")
        assert outcomes(federation, earlier) == {"client": {"honest": "done"}, "server": {"honest": "done"}}
        with socket.create_server(("127.0.0.1", 0)) as listener:
            yield Scene(federation, identity, earlier, listener)
    finally:
        del os.environ[SECRET], os.environ[NAMED]
        workspace.close()
        shutil.rmtree(workspace.root, ignore_errors=True)


def test_keys_databases_and_objects_cannot_be_read(scene):
    node, link = scene.node.state_dir, scene.federation.superlink.state_dir
    assert (node / "node.key").exists() and (link / "state.db").exists()
    files = [f"read:{node}/node.key", f"list:{node}", f"list:{node}/objects", f"read:{link}/state.db", f"list:{link}"]
    files += [f"empty:{node}/node.key", f"empty:{link}/state.db", f"remove:{node}/node.key"]
    scene.refused(files, files)
    assert (node / "node.key").stat().st_size > 0


def test_files_of_other_runs_cannot_be_read(scene):
    node, link = scene.node.state_dir, scene.federation.superlink.state_dir
    earlier = f"{link}/apps/{scene.earlier_run}/work"
    assert Path(earlier, "outcomes.json").exists()
    files = [f"list:{node}/apps", f"list:{node}/scratch", f"list:{earlier}", f"read:{earlier}/outcomes.json"]
    scene.refused(files, files)


def test_nothing_outside_can_be_written(scene):
    files = [f"write:{scene.root}/elsewhere/new", f"write:{scene.root}/elsewhere/file", f"write:{scene.root}/data/new"]
    files += [f"empty:{scene.root}/elsewhere/file", f"remove:{scene.root}/elsewhere/file", f"write:{scene.root}/new"]
    files += ["write:/tmp/intruder", f"read:{scene.root}/elsewhere/file"]
    scene.refused(files, files)
    assert (scene.root / "elsewhere" / "file").read_text() == "content"


def test_data_that_the_operator_names_can_be_read(scene):
    found = scene.run(f"read:{scene.root}/data/file", f"read:{scene.root}/data/file")
    assert [list(found[app].values()) for app in ("client", "server")] == [["done"], ["done"]]


def test_variables_are_those_that_are_listed(scene):
    script = f"variable:{SECRET} variable:{NAMED} variable:PATH variable:TRELLIS_SANDBOX_POLICY"
    found = scene.run(script, script)
    for app in ("client", "server"):
        assert [said.partition(" ")[0] for said in found[app].values()] == ["refused", "done", "done", "refused"], found


def test_other_processes_cannot_be_touched(scene):
    for pid in (scene.node.process.pid, scene.federation.superlink.process.pid):
        acts = [f"read:/proc/{pid}/environ", f"read:/proc/{pid}/fd/1", f"read:/proc/{pid}/mem", f"trace:{pid}"]
        if signals_are_restricted(scene):
            acts.append(f"signal:{pid}")
        scene.refused(acts, acts)


def test_the_socket_of_the_node_does_not_answer_apps(scene):
    socket_path = scene.node.state_dir / "node.sock"
    assert socket_path.is_socket()
    scene.refused([f"ask:{socket_path}"], [f"ask:{socket_path}"])


def signals_are_restricted(scene: Scene) -> bool:
    return not any("signals" in limit for limit in scene.node.status().told["sandbox"]["limits"])


def test_nobody_gets_more_rights(scene):
    script = "user status:CapEff status:CapPrm status:NoNewPrivs status:Seccomp unshare"
    found = scene.run(script, script)
    for app in ("client", "server"):
        user, *rest = found[app].values()
        assert rest == ["done 0000000000000000", "done 0000000000000000", "done 1", "done 2", "refused PermissionError"]
        number = int(user.split()[1])
        if scene.identity == ORDINARY_USER:
            assert number == USER_ID
        else:
            assert (number == 0) == (scene.identity == ROOT), found


def test_a_client_app_without_network_reaches_nobody_and_a_server_app_does(scene):
    acts = [f"connect:{scene.port}", f"datagram:{scene.port}"]
    found = scene.run(" ".join(acts), " ".join(acts))
    assert list(found["client"].values()) == ["refused PermissionError"] * 2
    assert list(found["server"].values()) == ["done"] * 2


def test_the_level_is_told(scene):
    told = scene.node.status().told["sandbox"]
    assert (told["mode"], told["level"], told["network"]) == ("required", "full", "none")
    assert told["separate_user"] == (scene.identity == ROOT_WITH_APP_USERS)
    assert scene.node.metrics()['trellis_node_sandbox{level="full"}'] == 1


def test_honest_apps_work_and_leave_nothing_on_the_node(scene):
    assert scene.run() == {"client": {"honest": "done"}, "server": {"honest": "done"}}
    scene.node.process.stop()
    scratch = scene.node.state_dir / "scratch"
    try:
        assert list(scratch.glob("worker-*")) == []
    finally:
        scene.node.start().wait_connected()
    assert list(scratch.glob("run-*")) == []
