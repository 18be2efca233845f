"""Attacks on the control plane: by callers with a low role, and by other users of the machine."""

import base64
import hashlib
import io
import json
import os
import socket
import ssl
import stat
import subprocess
import threading
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from harness.credentials import make_tls
from harness.federation import APPS
from harness.platform import Platform
from harness.release import flower
from harness.waiting import wait_for
from harness.workspace import Workspace, trellis_binary
from provision import CannotBeHad

pytestmark = [pytest.mark.trellis_only, pytest.mark.quick]

FEDERATION = "local"
PLANS = 60
ANSWER_LIMIT_S = 30.0
FLWR_LIMIT_S = 180.0
# Maximum additional memory of the server for a bundle; the limit of a bundle is 10 MiB.
BUNDLE_MEMORY_KB = 100_000
BOMB_FILES, BOMB_FILE_BYTES = 60, 10 << 20


class Refused(AssertionError):
    def __init__(self, status: int, text: str):
        super().__init__(f"{status}: {text}")
        self.status, self.text = status, text


class Server:
    """The control plane of `trellis up`, called with tokens of every role."""

    def __init__(self, platform: Platform):
        self.platform = platform
        self.url = json.loads((platform.home / "server.json").read_text())["url"]
        self.tokens = {"admin": (platform.home / "admin.token").read_text().strip()}
        for role in ("viewer", "runner"):
            self.tokens[role] = self.ask("admin", "POST", "/tokens", {"name": role, "role": role})["token"]

    @property
    def pid(self) -> int:
        [pid] = self.platform.processes("server")
        return pid

    def ask(self, role: str, method: str, path: str, body: dict | None = None) -> dict:
        headers = {"authorization": f"Bearer {self.tokens[role]}", "content-type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}/api/v1{path}", data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_LIMIT_S) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as refused:
            raise Refused(refused.code, refused.read().decode()) from refused


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    workspace = Workspace(tmp_path_factory.mktemp("control"))
    platform = Platform(workspace)
    try:
        platform.run("up", "--nodes", "1", "--detach")
        platform.wait_ready(FEDERATION)
        yield Server(platform)
    finally:
        workspace.close()


class Listener:
    """A loopback listener that counts connections."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self.connections = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                peer, _ = self._socket.accept()
            except OSError:
                return
            self.connections += 1
            peer.close()

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def listener() -> Iterator[Listener]:
    made = Listener()
    yield made
    made.close()


def documents(name: str, port: int, directory: Path) -> list[dict]:
    """Documents of an attacker: an endpoint with the server's credentials, any file, a program to run."""
    secret, config, ran = directory / "secret", directory / "kubeconfig", directory / "ran"
    secret.write_text("admin:hush")
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "touch", "args": [str(ran)]}}
    user["exec"]["interactiveMode"] = "Never"
    kubeconfig = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "clusters": [{"name": "k", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
    }
    config.write_text(json.dumps(kubeconfig))
    one = {"endpoint": f"http://127.0.0.1:{port}/RPC2", "network": "private"}
    drivers = [{"opennebula": one}, {"opennebula": one | {"authFile": str(secret)}}]
    drivers.append({"kubernetes": {"kubeconfig": str(config)}})
    spec = {"pools": [{"name": "edge", "count": 2}], "coordinator": {"endpoints": {"advertise": ["link.example.org"]}}}
    head = {"apiVersion": "trellis.dev/v1", "kind": "Federation", "metadata": {"name": name}}
    return [head | {"spec": spec | {"sites": [{"name": "far"} | driver]}} for driver in drivers]


def files_below(directory: Path) -> set[str]:
    return {str(Path(root) / name) for root, _, names in os.walk(directory) for name in names}


def test_a_plan_makes_no_call_and_leaves_nothing(server, listener, tmp_path):
    home = server.platform.home

    def plan(name: str) -> None:
        for document in documents(name, listener.port, tmp_path):
            report = server.ask("viewer", "POST", "/plan", document)
            assert any("not observed" in why["text"] for why in report["report"]), report["report"]
            assert report["actions"], "the plan says what would be done all the same"

    plan("first")
    # The first plan may open descriptors that stay open; files of the running federation change on their own.
    kept = {path for path in files_below(home) if f"/{FEDERATION}/" not in path}
    descriptors = len(os.listdir(f"/proc/{server.pid}/fd"))
    for number in range(PLANS):
        plan(f"plan-{number}")
    assert {path for path in files_below(home) if f"/{FEDERATION}/" not in path} == kept
    # A poll of the running federation may have descriptors open.
    assert len(os.listdir(f"/proc/{server.pid}/fd")) < descriptors + PLANS
    assert listener.connections == 0
    assert not (tmp_path / "ran").exists()


def test_large_plans_are_refused(server):
    document = documents("large", 1, server.platform.workspace.root)[0]
    document["spec"] = {"pools": [{"name": "edge", "count": 100_000}]}
    with pytest.raises(Refused) as refused:
        server.ask("viewer", "POST", "/plan", document)
    assert refused.value.status == 403 and "5000 nodes" in refused.value.text


def peak_kb(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))


def bomb() -> bytes:
    project = (
        "[project]\nname='bomb'\nversion='1.0'\n[tool.flwr.app]\npublisher='me'\n"
        "[tool.flwr.app.components]\nserverapp='trellis:native'\nclientapp='a.c:app'\n"
    )
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("pyproject.toml", project)
        for number in range(BOMB_FILES):
            archive.writestr(f"{number}.bin", bytes(BOMB_FILE_BYTES))
    return packed.getvalue()


def test_a_bundle_that_unpacks_to_much_costs_little(server):
    content = bomb()
    assert len(content) < 1 << 20
    bundle = {"content": base64.b64encode(content).decode(), "sha256": hashlib.sha256(content).hexdigest()}
    # Resets the peak, so that memory of earlier tests does not count.
    Path(f"/proc/{server.pid}/clear_refs").write_text("5")
    before = peak_kb(server.pid)
    with pytest.raises(Refused) as refused:
        run = {"bundle": bundle, "settings": {"num-server-rounds": 1}}
        server.ask("runner", "POST", f"/federations/{FEDERATION}/runs", run)
    assert refused.value.status == 422 and "unpacked" in refused.value.text, refused.value.text
    assert peak_kb(server.pid) - before < BUNDLE_MEMORY_KB


def test_other_users_of_the_machine_are_refused_on_every_port(server):
    connection = server.ask("admin", "GET", f"/federations/{FEDERATION}/connection")
    certificates = Path(connection["root_certificates_path"]).read_bytes()
    context = ssl.create_default_context(cadata=certificates.decode())
    for call, body in [("create-join-token", {"ttl_s": 60, "label": "thief"}), ("list-nodes", {}), ("list-accounts", {})]:
        url = f"https://{connection['http']}/v1/trellis/{call}"
        request = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json"})
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request, timeout=ANSWER_LIMIT_S, context=context)
        assert refused.value.code == 401, call
    for port in ("control", "http"):
        with grpc.secure_channel(connection[port], grpc.ssl_channel_credentials(certificates)) as channel:
            for call in ("ListRuns", "StartRun", "ListNodes"):
                with pytest.raises(grpc.RpcError) as refused:
                    channel.unary_unary(f"/flwr.proto.Control/{call}")(b"", timeout=ANSWER_LIMIT_S)
                assert refused.value.code() == grpc.StatusCode.UNAUTHENTICATED, (port, call)
    token = Path(connection["token_path"])
    assert stat.S_IMODE(token.stat().st_mode) == 0o600
    assert stat.S_IMODE(server.platform.home.stat().st_mode) & 0o077 == 0


def test_other_users_of_the_machine_cannot_join_as_nodes(server):
    state = server.platform.workspace.states / "thief"
    connection = server.ask("admin", "GET", f"/federations/{FEDERATION}/connection")
    argv = server.platform.argv("supernode", "--superlink", connection["http"], "--state-dir", str(state))
    argv += ["--root-certificates", connection["root_certificates_path"], "--name", "thief", "--max-retries", "1"]
    thief = server.platform.workspace.start("thief", argv)
    assert thief.wait_exit(ANSWER_LIMIT_S) != 0 and "does not know this node" in thief.output(), thief.output()
    nodes = server.ask("admin", "GET", f"/federations/{FEDERATION}/nodes")["items"]
    assert [node["name"] for node in nodes] == ["nodes-0"], nodes


def test_browsers_must_use_tls_from_then_on(workspace):
    tls, platform = make_tls(workspace.root / "tls"), Platform(workspace)
    files = ("--certificate", str(tls.cert), "--key", str(tls.key), "--trust", str(tls.ca))
    workspace.start("server", platform.argv("server", "--listen", "127.0.0.1:0", *files), platform.env())
    serving = platform.home / "server.json"
    wait_for("the server to serve", serving.exists, ANSWER_LIMIT_S)
    url, context = json.loads(serving.read_text())["url"], ssl.create_default_context(cafile=str(tls.ca))
    assert url.startswith("https://")
    for path in ("/", "/api/v1/me", "/api/v1/openapi.json", "/api/v1/nothing", "/metrics"):
        try:
            answer = urllib.request.urlopen(url + path, timeout=ANSWER_LIMIT_S, context=context)
        except urllib.error.HTTPError as refused:
            answer = refused
        with answer:
            assert answer.headers.get("strict-transport-security", "").startswith("max-age="), path


class Owner:
    """A user who runs `trellis up` in an app, with one release of Flower on PATH."""

    def __init__(self, workspace: Workspace, version: str):
        self.release = flower(version)
        self.workspace = workspace
        self.app = workspace.copy_app(APPS / "faulty", f"faulty-{version}")

    def run(self, argv: list[str], home: str = "owner") -> subprocess.CompletedProcess:
        env = self.workspace.env(self.release, home, TRELLIS_HOME=str(self.workspace.root / "home"))
        told = {"capture_output": True, "text": True, "timeout": FLWR_LIMIT_S, "check": False}
        return subprocess.run(argv, cwd=self.app, env=env, stdin=subprocess.DEVNULL, **told)

    def flwr(self, *words: str, home: str = "owner") -> subprocess.CompletedProcess:
        return self.run([self.release.command("flwr"), *words], home)

    @property
    def credentials(self) -> Path:
        if self.release.cli_reads_home:
            return self.workspace.home("owner") / "credentials.yaml"
        return self.app / ".flwr" / ".credentials" / f"{FEDERATION}.json"


@pytest.mark.parametrize("version", ["1.25", "1.39", "1.42"])
@pytest.mark.parametrize("tls", ["auto", "none"])
def test_flwr_of_the_owner_needs_no_login_and_that_of_others_is_refused(workspace, version, tls):
    try:
        owner = Owner(workspace, version)
    except CannotBeHad as why:
        pytest.skip(str(why))
    spec = {"security": {"tls": {"mode": tls}}, "pools": [{"name": "edge", "count": 1}]}
    head = {"apiVersion": "trellis.dev/v1", "kind": "Federation", "metadata": {"name": FEDERATION}}
    (owner.app / "federation.yaml").write_text(json.dumps(head | {"spec": spec}))
    before = (owner.app / "pyproject.toml").read_text()
    trellis = str(trellis_binary())
    up = owner.run([trellis, "up", "--detach", "-f", "federation.yaml"])
    assert up.returncode == 0, up.stdout + up.stderr
    assert stat.S_IMODE(owner.credentials.stat().st_mode) == 0o600

    ran = owner.flwr("run", ".", FEDERATION, "--stream")
    assert ran.returncode == 0 and "faulty: nothing to do" in ran.stdout + ran.stderr, ran.stdout + ran.stderr

    # Another user knows the address but has no token.
    if owner.release.cli_reads_home:
        theirs = workspace.home("thief")
        theirs.mkdir()
        (theirs / "config.toml").write_text((workspace.home("owner") / "config.toml").read_text())
    else:
        owner.credentials.rename(workspace.root / "aside.json")
    stolen = owner.flwr("run", ".", FEDERATION, home="thief")
    if not owner.release.cli_reads_home:
        (workspace.root / "aside.json").rename(owner.credentials)
    # 1.25 exits with 0 nevertheless.
    assert "login" in stolen.stdout + stolen.stderr, stolen.stdout + stolen.stderr
    where = (FEDERATION,) if owner.release.cli_reads_home else (".", FEDERATION)
    listed = json.loads(owner.flwr("ls", *where, "--format", "json").stdout)
    assert [run["status"] for run in listed["runs"]] == ["finished:completed"]

    down = owner.run([trellis, "down", FEDERATION])
    assert down.returncode == 0, down.stdout + down.stderr
    assert not owner.credentials.exists()
    assert (owner.app / "pyproject.toml").read_text() == before
