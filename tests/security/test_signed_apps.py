"""`trellis app sign`: nodes with `--trusted-entities`, official and ours, run the apps that a trusted key signed, and no others."""

import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519

from harness.federation import Federation
from harness.own_supernode import OwnNode, OwnSupernode
from harness.supernode import Supernode
from harness.trellis_run import TrellisRun
from harness.workspace import Workspace, trellis_binary

OLDEST, NEWEST = "1.25", "1.42"
LIMIT_S = 60.0

pytestmark = [pytest.mark.quick, pytest.mark.trellis_only]


def make_key(path: Path) -> Path:
    """An Ed25519 key, as ssh-keygen writes it."""
    private = ed25519.Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    path.write_bytes(private)
    path.chmod(0o600)
    return path


def sign(workspace: Workspace, app: Path) -> Path:
    """Sign an app; the file for `--trusted-entities`."""
    argv = [str(trellis_binary()), "app", "sign", str(app), "--key", str(make_key(workspace.root / "ada.key"))]
    done = subprocess.run(
        [*argv, "--name", "ada"], env=workspace.env(), capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert done.returncode == 0, done.stderr
    trusted = workspace.root / "trusted.yaml"
    trusted.write_text(done.stdout)
    return trusted


def answered_rounds(fed: Federation, name: str) -> int:
    """`flwr run` of one round on one node: in how many of them it answered with a model."""
    run_id = fed.cli.submit(nodes=1, num_server_rounds=1, evaluate=False, result_path=fed.result_path(name))
    fed.wait_finished(run_id)
    # A strategy without replies may end with an error, and then there is no result.
    return fed.result(name)["rounds"] if fed.result_path(name).exists() else 0


def change_one_byte(app: Path) -> None:
    path = app / "numpy_fedavg" / "client.py"
    content = bytearray(path.read_bytes())
    # The first letter of its docstring.
    content[3] ^= 0x20
    path.write_bytes(content)


@pytest.mark.parametrize("kind", [OLDEST, NEWEST, OwnNode(python=NEWEST)], ids=["1.25", "1.42", "ours"])
def test_a_node_runs_a_signed_app_and_refuses_a_changed_one(federation, workspace, kind):
    version = kind.python if isinstance(kind, OwnNode) else kind
    fed = federation(nodes=0, cli=version, runtime=version).start()
    trusted = sign(workspace, fed.cli.app)
    flags = ("--trusted-entities", str(trusted))
    if isinstance(kind, OwnNode):
        node = OwnSupernode(workspace, fed.superlink, 0, 1, None, OwnNode(python=kind.python, flags=flags))
    else:
        node = Supernode(workspace, fed.superlink, 0, 1, None, kind, flags)
    fed.nodes.append(node.start())
    fed.superlink.control.wait_nodes_online(1, LIMIT_S)

    assert answered_rounds(fed, "signed") == 1
    change_one_byte(fed.cli.app)
    assert answered_rounds(fed, "changed") == 0
    node.process.wait_line("does not match" if isinstance(kind, OwnNode) else "FAB verification failed", LIMIT_S)


def test_native_nodes_and_trellis_run(federation, workspace):
    """A node with an app of its own checks who sent the run, too; `trellis run` delivers signatures as `flwr run` does."""
    fed = federation(nodes=0).start()
    app = workspace.root / "native-app"
    app.mkdir()
    (app / "pyproject.toml").write_text(
        '[project]\nname = "signed"\nversion = "1"\n[tool.flwr.app]\npublisher = "ada"\n'
        '[tool.flwr.app.components]\nserverapp = "trellis:native"\nclientapp = "trellis:logistic"\n'
        "[tool.flwr.app.config]\nnum-server-rounds = 1\n"
        "min-train-nodes = 1\nmin-evaluate-nodes = 1\nmin-available-nodes = 1\n"
    )
    flags = ("--trusted-entities", str(sign(workspace, app)))
    node = OwnSupernode(workspace, fed.superlink, 0, 1, None, OwnNode(native="logistic", flags=flags))
    fed.nodes.append(node.start())
    fed.superlink.control.wait_nodes_online(1, LIMIT_S)

    assert TrellisRun(workspace, app, superlink=fed.superlink).wait_ended()["status"] == "completed"
    one_node = ("--min-train-nodes", "1", "--min-evaluate-nodes", "1", "--min-available-nodes", "1", "--rounds", "1")
    unsigned = TrellisRun(workspace, "native:logistic", *one_node, superlink=fed.superlink)
    assert "no trusted entity signed it (ada)" in unsigned.wait_ended(code=1)["details"]
