"""Fixtures of the attack suite: a SuperLink with all protections enabled, and its addresses and keys for attackers."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from flwr.proto.control_pb2 import RegisterNodeRequest, RegisterNodeResponse
from flwr.proto.fleet_pb2 import ActivateNodeRequest

from attacks.intruder import Signer, call, protobuf
from harness.accounts import Api, administrator
from harness.credentials import make_tls
from harness.superlink import LinkOptions, Superlink
from harness.workspace import Workspace


@dataclass
class Fortress:
    """A SuperLink with TLS, accounts and node authentication, its administrator, and one honest node."""

    grounds: Workspace
    superlink: Superlink
    admin: Api
    node: Signer
    node_id: int

    @property
    def bearer(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.admin.token}"}


@pytest.fixture(scope="module")
def fortress(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fortress]:
    grounds = Workspace(tmp_path_factory.mktemp("fortress"))
    tls = make_tls(grounds.root / "tls")
    options = LinkOptions(tls=tls, supernode_auth=True, flags=("--account-auth", "on"))
    superlink = Superlink(grounds, options).start()
    admin, node = administrator(superlink), Signer()
    yield Fortress(grounds, superlink, admin, node, enrol(superlink, admin, node))
    grounds.close()


def enrol(superlink: Superlink, admin: Api, node: Signer) -> int:
    """Registers the key of a node and activates the node. Returns its id."""
    headers = {"authorization": f"Bearer {admin.token}"} | protobuf()
    made = call(superlink, "v1/control/register-node", headers, RegisterNodeRequest(public_key=node.pem))
    assert made.status == 200, made
    request = ActivateNodeRequest(public_key=node.pem, heartbeat_interval=30.0)
    activated = call(superlink, "v1/fleet/activate-node", node.headers() | protobuf(), request)
    assert activated.status == 200, activated
    return RegisterNodeResponse.FromString(made.body).node_id
