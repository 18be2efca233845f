"""Keys that `trellis` makes, and nodes that join with a token, in the hands of official SuperNodes."""

import subprocess

import pytest

from harness.credentials import NodeKey
from harness.federation import TLS_AUTH
from harness.supernode import Supernode
from harness.trellis_cli import COMMAND_LIMIT_S, TrellisCli
from harness.waiting import wait_for
from harness.workspace import trellis_binary

pytestmark = pytest.mark.trellis_only

REFUSED_LIMIT_S = 5.0
# What a node of each release says of itself: that of 1.25 does not tell its version.
CLIENTS = [
    pytest.param("1.25", "grpc", marks=pytest.mark.quick),
    ("1.31", "grpc 1.31"),
    ("1.36", "grpc 1.36"),
    ("1.39", "grpc 1.39"),
    ("1.40", "http 1.40"),
    ("1.41", "http 1.41"),
    pytest.param("1.42", "http 1.42", marks=pytest.mark.quick),
]


def events(trellis: TrellisCli) -> list[str]:
    """What the audit log tells, oldest first."""
    return [entry["event"] for entry in trellis.json("audit")["entries"]]


@pytest.mark.parametrize(("version", "client"), CLIENTS)
def test_a_node_that_joins_with_a_token_takes_part_until_it_is_revoked(federation, workspace, version, client):
    fed = federation(security=TLS_AUTH, nodes=0, fleet=(version,)).start()
    trellis = TrellisCli(workspace, fed.superlink)
    token = trellis.run("node", "token", "--label", "edge")
    key = NodeKey(workspace.root / "node.key", workspace.root / "node.key.pub")

    joined = trellis.run("node", "join", "--key", str(key.private), "--name", "edge-7", "--token-file", "-", stdin=token)
    node = Supernode(workspace, fed.superlink, 0, 1, key, version).start()

    assert node.wait_connected() == int(joined)
    node.wait_settled()
    [shown] = trellis.json("nodes")["nodes"]
    assert (shown["id"], shown["name"], shown["status"]) == (joined.strip(), "edge-7", "online")
    assert shown["client"].startswith(client), shown

    trellis.run("node", "revoke", joined.strip())

    assert trellis.json("nodes")["nodes"] == []
    # Some releases do not end by themselves when they are refused; what counts is that they are.
    wait_for("the revoked node to be refused", lambda: "call-refused" in events(trellis), REFUSED_LIMIT_S)
    told = [event for event in events(trellis) if event.startswith("node-")]
    assert told == ["node-registered-by-token", "node-activated", "node-revoked"]


@pytest.mark.parametrize("version", ["1.25", "1.42"])
def test_a_key_that_trellis_made_is_registered_by_the_official_command_line(federation, workspace, version):
    fed = federation(security=TLS_AUTH, nodes=0, fleet=(version,), cli=version).start()
    key = NodeKey(workspace.root / "node.key", workspace.root / "node.key.pub")
    make = [str(trellis_binary()), "node", "key", str(key.private)]
    subprocess.run(make, env=workspace.env(), capture_output=True, timeout=COMMAND_LIMIT_S, check=True)

    registered = fed.cli.json("supernode", "register", str(key.public), *fed.cli.here)["node-id"]
    node = Supernode(workspace, fed.superlink, 0, 1, key, version).start()

    assert node.wait_connected() == int(registered)
