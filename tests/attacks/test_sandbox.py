"""Apps that try to leave their sandbox: warm and per message, oldest and newest Flower, as root and as a user."""

import json
import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from conftest import make_federation
from harness.federation import Federation
from harness.identity import ORDINARY_USER, ROOT, ROOT_WITH_APP_USERS, USER_ID, IdentityWorkspace
from harness.own_supernode import PER_MESSAGE, WARM, OwnNode, OwnSupernode
from provision import CannotBeHad

pytestmark = pytest.mark.trellis_only

OLDEST, NEWEST = "1.25", "1.42"
IDENTITIES = (ROOT, ROOT_WITH_APP_USERS, ORDINARY_USER)
# A variable of the node and the SuperLink that apps must not get, and one that the operator names.
SECRET, NAMED = "INTRUDERS_SECRET", "INTRUDERS_SETTING"
QUICK = {(ROOT, OLDEST, PER_MESSAGE), (ORDINARY_USER, NEWEST, WARM)}


@dataclass
class Scene:
    """A federation of one node with a finished run, and the files and ports that the next run attacks."""

    federation: Federation
    identity: str
    earlier_run: int
    port: int
    # Outcome of each attempt, by app.
    outcomes: dict[str, dict[str, str]] = field(default_factory=dict)

    @property
    def root(self) -> Path:
        return self.federation.workspace.root

    @property
    def node(self) -> OwnSupernode:
        return self.federation.nodes[0]

    @property
    def link_state(self) -> Path:
        return self.federation.superlink.state_dir

    @property
    def processes(self) -> list[int]:
        return [self.node.process.pid, self.federation.superlink.process.pid]

    @property
    def attempts(self) -> list[str]:
        files = [*secrets(self), *of_other_runs(self), *outside(self)]
        return [*files, *processes(self), *RIGHTS, *others(self)]

    def play(self) -> "Scene":
        """Runs all attempts in both apps, in one run."""
        script = " ".join(self.attempts)
        self.outcomes = outcomes(self.federation, submit(self.federation, script, script))
        return self

    def said(self, *words: str) -> dict[str, list[str]]:
        return {app: [told[word] for word in words] for app, told in self.outcomes.items()}

    def refused(self, words: list[str]) -> None:
        """Asserts that all these attempts were refused in both apps."""
        for app, told in self.outcomes.items():
            assert [word for word in words if not told[word].startswith("refused")] == [], app


def secrets(scene: Scene) -> list[str]:
    node, link = scene.node.state_dir, scene.link_state
    files = [f"{node}/node.key", f"{link}/state.db"]
    directories = [f"{node}", f"{node}/objects", f"{link}", f"{link}/objects"]
    acts = ("read", "empty", "remove")
    return [f"{act}:{file}" for act in acts for file in files] + [f"list:{directory}" for directory in directories]


def of_other_runs(scene: Scene) -> list[str]:
    work = f"{scene.link_state}/apps/{scene.earlier_run}/work"
    node = scene.node.state_dir
    return [f"list:{node}/apps", f"list:{node}/scratch", f"list:{work}", f"read:{work}/outcomes.json"]


def outside(scene: Scene) -> list[str]:
    elsewhere, data = f"{scene.root}/elsewhere", f"{scene.root}/data"
    acts = [f"{act}:{elsewhere}/file" for act in ("read", "write", "empty", "remove")]
    return [*acts, f"write:{elsewhere}/new", f"write:{data}/new", f"write:{scene.root}/new", "write:/tmp/intruder"]


def processes(scene: Scene) -> list[str]:
    acts = ("read:/proc/{}/environ", "read:/proc/{}/fd/1", "memory:{}", "trace:{}", "signal:{}")
    return [act.format(pid) for act in acts for pid in scene.processes]


RIGHTS = ("user", "status:CapEff", "status:CapPrm", "status:NoNewPrivs", "status:Seccomp", "unshare")
VARIABLES = (f"variable:{SECRET}", f"variable:{NAMED}", "variable:PATH", "variable:TRELLIS_SANDBOX_POLICY")


def network(scene: Scene) -> list[str]:
    return [f"connect:{scene.port}", f"datagram:{scene.port}"]


def others(scene: Scene) -> list[str]:
    socket_path = scene.node.state_dir / "node.sock"
    return [*VARIABLES, *network(scene), f"read:{scene.root}/data/file", f"ask:{socket_path}"]


def submit(federation: Federation, client: str, server: str) -> int:
    return federation.cli.submit(client_attempts=client, server_attempts=server)


def outcomes(federation: Federation, run_id: int) -> dict[str, dict[str, str]]:
    state = federation.wait_finished(run_id)
    assert state.status == "finished:completed", state
    # Without a sandbox a ServerApp works where its SuperLink does.
    work = federation.superlink.state_dir / "apps" / str(run_id) / "work"
    return json.loads(((work if work.exists() else federation.workspace.root) / "outcomes.json").read_text())


def cases() -> Iterator[object]:
    for identity in IDENTITIES:
        for version in (OLDEST, NEWEST):
            for lifecycle in (WARM, PER_MESSAGE):
                marks = [pytest.mark.quick] if (identity, version, lifecycle) in QUICK else []
                yield pytest.param((identity, version, lifecycle), id=f"{identity}-{version}-{lifecycle}", marks=marks)


@pytest.fixture(scope="module", params=list(cases()))
def scene(request: pytest.FixtureRequest) -> Iterator[Scene]:
    with staged(request.config, *request.param, mode="required") as scene:
        yield scene.play()


@contextmanager
def staged(config: pytest.Config, identity: str, version: str, lifecycle: str, mode: str) -> Iterator[Scene]:
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
        flags = ("--sandbox", mode, "--app-data", str(workspace.root / "data"), "--app-env", NAMED)
        node = OwnNode(python=version, lifecycle=lifecycle, flags=(*flags, "--app-network", "none"))
        wanted = {"app": "intruder", "nodes": 1, "fleet": (node,), "cli": version, "runtime": version}
        federation = make_federation(workspace, config, **wanted, link_flags=flags).start()
        earlier = submit(federation, "honest", "honest")
        assert outcomes(federation, earlier) == {"client": {"honest": "done"}, "server": {"honest": "done"}}
        with socket.create_server(("127.0.0.1", 0)) as listener:
            yield Scene(federation, identity, earlier, listener.getsockname()[1])
    finally:
        # Another scene may be open, and may have taken them away.
        for name in (SECRET, NAMED):
            os.environ.pop(name, None)
        workspace.close()
        shutil.rmtree(workspace.root, ignore_errors=True)


def test_keys_databases_and_objects_are_closed(scene):
    scene.refused(secrets(scene))
    for file in (scene.node.state_dir / "node.key", scene.link_state / "state.db"):
        assert file.stat().st_size > 0


def test_files_of_other_runs_are_closed(scene):
    assert (scene.link_state / "apps" / str(scene.earlier_run) / "work" / "outcomes.json").exists()
    scene.refused(of_other_runs(scene))


def test_nothing_outside_is_read_or_written(scene):
    scene.refused(outside(scene))
    assert (scene.root / "elsewhere" / "file").read_text() == "content"
    assert os.listdir(scene.root / "data") == ["file"]


def test_data_that_the_operator_names_is_read(scene):
    assert scene.said(f"read:{scene.root}/data/file") == {"client": ["done"], "server": ["done"]}


def test_variables_are_those_that_are_listed(scene):
    for said in scene.said(*VARIABLES).values():
        assert said == ["refused PermissionError", "done", "done", "refused PermissionError"]


def test_other_processes_are_closed(scene):
    limits = scene.node.status().content["sandbox"]["limits"]
    signals_are_restricted = not any("signals" in limit for limit in limits)
    scene.refused([act for act in processes(scene) if signals_are_restricted or not act.startswith("signal")])


def test_the_socket_of_the_node_does_not_answer_apps(scene):
    assert (scene.node.state_dir / "node.sock").is_socket()
    scene.refused([f"ask:{scene.node.state_dir}/node.sock"])


def test_nobody_gets_more_rights(scene):
    for user, *rest in scene.said(*RIGHTS).values():
        assert rest == ["done 0000000000000000", "done 0000000000000000", "done 1", "done 2", "refused PermissionError"]
        number = int(user.split()[1])
        if scene.identity == ORDINARY_USER:
            assert number == USER_ID
        else:
            assert (number == 0) == (scene.identity == ROOT), user


def test_a_client_app_without_network_reaches_nobody_and_a_server_app_does(scene):
    assert scene.said(*network(scene)) == {"client": ["refused PermissionError"] * 2, "server": ["done"] * 2}


def test_the_level_is_told(scene):
    told = scene.node.status().content["sandbox"]
    assert (told["mode"], told["level"], told["network"]) == ("required", "full", "none")
    assert told["separate_user"] == (scene.identity == ROOT_WITH_APP_USERS)
    assert scene.node.metrics()['trellis_node_sandbox{level="full"}'] == 1


def test_apps_leave_nothing_on_the_node(scene):
    scene.node.process.stop()
    scratch = scene.node.state_dir / "scratch"
    assert list(scratch.glob("worker-*")) == []
    scene.node.start().wait_connected()
    assert list(scratch.glob("run-*")) == []


def test_without_the_sandbox_the_same_attempts_succeed(pytestconfig):
    """The attempts are real: only the sandbox makes them fail."""
    with staged(pytestconfig, ROOT, OLDEST, PER_MESSAGE, mode="off") as scene:
        for directory in (scene.link_state / "apps" / str(scene.earlier_run) / "work", scene.node.state_dir / "scratch"):
            directory.mkdir(parents=True)
            (directory / "outcomes.json").write_text("{}")
        # These end the federation, or stop it until they are over.
        fatal = [word for word in scene.attempts if word.startswith("trace:")]
        fatal += [word for word in secrets(scene) if word.startswith(("empty:", "remove:"))]
        expected = {word: "done" for word in scene.attempts if word not in fatal}
        expected |= {"user": "done 0", "status:NoNewPrivs": "done 0", "status:Seccomp": "done 0"}
        for unlike in ("status:CapEff", "status:CapPrm", "unshare", "variable:TRELLIS_SANDBOX_POLICY"):
            del expected[unlike]
        for app in ("client", "server"):
            (scene.root / "elsewhere" / "file").write_text("content")
            scripts = {"client": "honest", "server": "honest"} | {app: " ".join(expected)}
            assert outcomes(scene.federation, submit(scene.federation, **scripts))[app] == expected
        Path("/tmp/intruder").unlink()
