"""Only registered nodes take part, and one that is unregistered is out at once and for good."""

import pytest

from harness.accounts import Api
from harness.credentials import make_node_key
from harness.federation import TLS_AUTH, Federation
from harness.supernode import Supernode

pytestmark = pytest.mark.trellis_only

REFUSED_LIMIT_S = 30.0
ENDED_LIMIT_S = 2.0
OLD, NEW = "1.25", "1.42"


def nodeless(federation, version: str) -> Federation:
    """A SuperLink that accepts registered nodes only, and has none; and a command line of the same release."""
    return federation(security=TLS_AUTH, nodes=0, fleet=(version,), cli=version).start()


def assert_refused(node: Supernode) -> None:
    """It ends by itself, with an error, and never had a node id."""
    code = node.process.wait_exit(REFUSED_LIMIT_S)
    assert code != 0, node.process.output()
    assert "SuperNode ID" not in node.process.output()


def audit(fed: Federation) -> list[dict]:
    """Accounts are off for a SuperLink that only this machine reaches, so no token is needed."""
    return Api(fed.superlink).audit()


@pytest.mark.parametrize("version", [pytest.param(OLD, marks=pytest.mark.quick), NEW])
def test_a_node_that_nobody_registered_is_refused(federation, workspace, version):
    fed = nodeless(federation, version)
    unknown = make_node_key(workspace.root / "keys", "unknown")
    nodes = [
        Supernode(workspace, fed.superlink, partition, 2, key, version).start()
        for partition, key in enumerate([unknown, None])
    ]

    for node in nodes:
        assert_refused(node)

    assert fed.superlink.control.nodes() == {}


@pytest.mark.parametrize("version", [OLD, NEW])
def test_a_refused_node_is_in_the_audit_log(federation, workspace, version):
    fed = nodeless(federation, version)
    unknown = make_node_key(workspace.root / "keys", "unknown")
    assert_refused(Supernode(workspace, fed.superlink, 0, 1, unknown, version).start())

    refused = [entry["actor"] for entry in audit(fed) if entry["event"] == "call-refused"]

    assert len(refused) == 1 and refused[0].startswith("key "), audit(fed)


@pytest.mark.parametrize("version", [pytest.param(version, marks=pytest.mark.quick) for version in (OLD, NEW)])
def test_a_registered_node_takes_part_until_it_is_unregistered(federation, workspace, version):
    fed = nodeless(federation, version)
    key = make_node_key(workspace.root / "keys", "known")
    registered = int(fed.cli.json("supernode", "register", str(key.public), *fed.cli.here)["node-id"])
    node = Supernode(workspace, fed.superlink, 0, 1, key, version).start()
    node.wait_settled()
    assert fed.superlink.control.online_nodes() == [registered]

    fed.cli.json("supernode", "unregister", str(registered), *fed.cli.here)

    node.process.wait_exit(ENDED_LIMIT_S)
    assert fed.superlink.control.online_nodes() == []
    assert [entry["event"] for entry in audit(fed)[:3]] == [
        "node-registered-by-user",
        "node-activated",
        "node-revoked",
    ]


@pytest.mark.parametrize("version", [OLD, NEW])
def test_neither_a_node_nor_an_operator_brings_an_unregistered_key_back(federation, workspace, version):
    fed = nodeless(federation, version)
    key = make_node_key(workspace.root / "keys", "known")
    node_id = fed.cli.json("supernode", "register", str(key.public), *fed.cli.here)["node-id"]
    fed.cli.json("supernode", "unregister", str(node_id), *fed.cli.here)

    again = fed.cli.run_command("supernode", "register", str(key.public), *fed.cli.here)
    node = Supernode(workspace, fed.superlink, 0, 1, key, version).start()

    assert "already in use" in again.text
    assert_refused(node)
    assert fed.superlink.control.online_nodes() == []
