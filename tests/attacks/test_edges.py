"""Attacks by files: a malicious join Secret, a YAML bomb, a state directory that other users can read or own."""

import base64
import json
import os
import resource
import shutil
import socket
import stat
import subprocess
from pathlib import Path

import pytest

from harness.ports import free_port
from harness.waiting import wait_for
from harness.workspace import Workspace, trellis_binary

pytestmark = [pytest.mark.trellis_only, pytest.mark.quick]

COMMAND_LIMIT_S = 60.0
# A node that refuses a file needs far less; the parser without limits took 2.5 GB for the bomb.
MAX_MEMORY_KB = 200_000
STRANGER = 54_321


def call(workspace: Workspace, *words: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [str(trellis_binary()), *words],
        env=workspace.env(),
        cwd=workspace.root,
        capture_output=True,
        text=True,
        timeout=COMMAND_LIMIT_S,
        check=False,
    )


def secret(entries: dict[str, str]) -> str:
    data = {name: base64.b64encode(text.encode()).decode() for name, text in entries.items()}
    return json.dumps({"apiVersion": "v1", "kind": "Secret", "data": data})


@pytest.mark.parametrize("mode", [[], ["--print-config"]])
@pytest.mark.parametrize("name", ["../../escaped", "{root}/escaped", "..", "a/b"])
def test_a_join_secret_writes_no_file_outside_of_the_state_directory(workspace, name, mode):
    name = name.format(root=workspace.root)
    settings = f'superlink = "localhost:1"\ninsecure = true\nauth-supernode-private-key = {json.dumps(name)}\n'
    file = workspace.root / "lab.json"
    file.write_text(secret({"node-0.toml": settings, name: "stolen"}))
    before = {path for path in workspace.root.rglob("*")}

    answer = call(workspace, "supernode", "--join", str(file), "--state-dir", str(workspace.root / "a" / "b" / "state"), *mode)

    assert answer.returncode == 2, answer.stderr
    assert "has no name that a Secret can have" in answer.stderr
    assert {path for path in workspace.root.rglob("*")} == before


def test_an_honest_join_secret_still_works_and_a_look_at_it_leaves_nothing(workspace):
    file = workspace.root / "lab.json"
    file.write_text(secret({"address": "far:1", "node-0.toml": 'superlink = "far:1"\ninsecure = true\n'}))
    state = workspace.states / "state"

    answer = call(workspace, "supernode", "--join", str(file), "--state-dir", str(state), "--print-config")

    assert answer.returncode == 0, answer.stderr
    assert 'superlink' in answer.stdout and '"far:1"' in answer.stdout
    assert str(state / "join" / "node-0.toml") in answer.stdout
    assert not state.exists()


def bomb() -> str:
    lines = ['a: &a ["lol","lol","lol","lol","lol","lol","lol","lol","lol"]']
    for name, inner in zip("bcdefghi", "abcdefgh", strict=True):
        lines.append(f"{name}: &{name} [{','.join([f'*{inner}'] * 9)}]")
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("flag", ["--join", "--trusted-entities"])
def test_a_yaml_bomb_is_refused_with_little_memory(workspace, flag):
    text = bomb()
    assert len(text) < 600
    file = workspace.root / "bomb.yaml"
    file.write_text(text)
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss

    answer = call(workspace, "supernode", "--insecure", "--superlink", "localhost:1", flag, str(file))

    assert answer.returncode == 2, answer.stderr
    assert "including repetitions by aliases" in answer.stderr
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    assert peak < max(before, MAX_MEMORY_KB), f"{peak} KB"


class Service:
    """A running program with a state directory. A SuperNode has no SuperLink to connect to."""

    def __init__(self, workspace: Workspace, program: str, state: Path):
        self.log = workspace.root / f"{program}.log"
        port = free_port()
        if program == "supernode":
            words = ["--insecure", "--superlink", f"127.0.0.1:{port}", "--state-dir", str(state)]
            self.is_up = lambda: connects(state / "node.sock")
        elif program == "superlink":
            apis = ("serverappio", "fleet", "control")
            words = ["--insecure", "--state-dir", str(state), "--port", str(port)]
            words += [word for api in apis for word in (f"--{api}-api-address", f"127.0.0.1:{free_port()}")]
            self.is_up = lambda: connects(("127.0.0.1", port))
        else:
            words = ["--home", str(state), "--listen", f"127.0.0.1:{port}"]
            self.is_up = lambda: connects(("127.0.0.1", port))
        with self.log.open("w") as log:
            argv = [str(trellis_binary()), program, *words]
            self.process = subprocess.Popen(argv, env=workspace.env(), stdout=log, stderr=log)

    def __enter__(self) -> None:
        def probe() -> bool:
            assert self.process.poll() is None, self.log.read_text()
            return self.is_up()

        wait_for("the program to serve", probe, COMMAND_LIMIT_S)

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait(COMMAND_LIMIT_S)


def connects(address: Path | tuple[str, int]) -> bool:
    is_path = isinstance(address, Path)
    with socket.socket(socket.AF_UNIX if is_path else socket.AF_INET) as probe:
        return probe.connect_ex(str(address) if is_path else address) == 0


def readable_by_others(directory: Path) -> list[str]:
    found = [directory, *directory.rglob("*")]
    return [str(path) for path in found if not path.is_symlink() and path.stat().st_mode & 0o077]


def test_the_state_of_a_node_is_for_its_user_alone(workspace):
    state = workspace.states / "new"
    with Service(workspace, "supernode", state):
        assert stat.S_IMODE(state.stat().st_mode) == 0o700
        data = [state / name for name in ("node.db", "node.db-wal", "node.db-shm", "lock", "node.key")]
        assert {path.name: stat.S_IMODE(path.stat().st_mode) for path in data} == {path.name: 0o600 for path in data}
        assert stat.S_IMODE((state / "objects").stat().st_mode) == 0o700


@pytest.mark.parametrize("program", ["supernode", "superlink", "server"])
def test_a_state_directory_of_an_earlier_release_is_closed_at_the_start(workspace, program):
    state = workspace.states / "old"
    with Service(workspace, program, state):
        pass
    # Keys and tokens were private in earlier releases, too.
    closed = [path for path in state.rglob("*") if path.suffix in (".key", ".token")]
    for path in [state, *state.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    for path in closed:
        path.chmod(0o600)

    with Service(workspace, program, state):
        assert readable_by_others(state) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
@pytest.mark.parametrize("program", ["supernode", "superlink", "server"])
def test_a_state_directory_of_another_user_is_refused(workspace, program):
    state = workspace.states / "theirs"
    state.mkdir(mode=0o700)
    shutil.chown(state, STRANGER)
    words = {
        "supernode": ["supernode", "--insecure", "--superlink", "localhost:1", "--state-dir", str(state)],
        "superlink": ["superlink", "--insecure", "--state-dir", str(state)],
        "server": ["server", "--home", str(state), "--listen", "127.0.0.1:0"],
    }[program]

    answer = call(workspace, *words)

    assert answer.returncode != 0
    assert f"belongs to the user with id {STRANGER}" in answer.stdout + answer.stderr
    assert list(state.iterdir()) == []
