"""Our SuperNode among official parts: the weights are those of an all-official federation."""

import pytest

from harness.federation import OFFICIAL, PLAIN, PROCESS, SUBPROCESS, TLS_AUTH, Federation
from harness.matrix import RELEASES
from harness.own_supernode import AUTO, PER_MESSAGE, WARM, OwnNode
from harness.process import peak_memory_bytes
from harness.release import GRPC, HTTP

ROUNDS = 3
OLDEST, NEWEST = "1.25", "1.42"
# More than a node needs for the parts of a model that are under way at once, about 80 MB.
MODEL_BYTES = 200_000_000

pytestmark = pytest.mark.trellis_only

# A release of the official SuperLink, the port that our nodes are given, and what they are told to speak.
OFFICIAL_LINKS = [
    ("1.25", GRPC, AUTO),
    ("1.25", GRPC, GRPC),
    ("1.39", GRPC, AUTO),
    ("1.42", HTTP, AUTO),
    ("1.42", HTTP, HTTP),
    ("1.42", GRPC, AUTO),
]
OUR_PORTS = [(GRPC, AUTO), (GRPC, GRPC), (HTTP, AUTO), (HTTP, HTTP)]


def at_official(version: str) -> dict:
    """A federation with an official SuperLink of some release, and its ServerApp and command line."""
    return {"kind": OFFICIAL, "official": version, "runtime": version, "cli": version}


def spoken(fed: Federation) -> list[str]:
    """The transports that nodes of ours say they use."""
    return [node.status().transport for node in fed.nodes]


@pytest.mark.parametrize(("version", "port", "transport"), OFFICIAL_LINKS)
def test_our_nodes_with_an_official_superlink(federation, expected_digest, weights, version, port, transport):
    node = OwnNode(python=version, port=port, transport=transport)
    fed = federation(fleet=(node,), **at_official(version)).start()

    assert weights(fed, num_server_rounds=ROUNDS) == expected_digest(num_server_rounds=ROUNDS)
    assert spoken(fed) == [port, port]


@pytest.mark.parametrize(("port", "transport"), OUR_PORTS)
def test_our_nodes_with_our_superlink(federation, expected_digest, weights, port, transport):
    fed = federation(fleet=(OwnNode(port=port, transport=transport),)).start()

    assert weights(fed, num_server_rounds=ROUNDS) == expected_digest(num_server_rounds=ROUNDS)
    assert fed.dead_nodes() == []
    if transport != AUTO:
        assert spoken(fed) == [transport, transport]


@pytest.mark.quick
def test_official_nodes_and_ours_in_one_run(federation, reference, weights):
    """One of each transport, ours and theirs."""
    fleet = (OwnNode(port=GRPC), OLDEST, OwnNode(port=HTTP, python=NEWEST), NEWEST)
    fed = federation(nodes=len(fleet), fleet=fleet).start()

    assert weights(fed, num_server_rounds=1) == reference(rounds=1, nodes=len(fleet))
    assert fed.dead_nodes() == []


@pytest.mark.parametrize(("version", "port"), [("1.25", GRPC), ("1.39", GRPC), ("1.42", HTTP)])
def test_official_nodes_and_ours_at_an_official_superlink(federation, expected_digest, weights, version, port):
    fleet = (OwnNode(port=port), version)
    fed = federation(fleet=fleet, **at_official(version)).start()

    assert weights(fed, num_server_rounds=ROUNDS) == expected_digest(num_server_rounds=ROUNDS)
    assert fed.dead_nodes() == []


@pytest.mark.parametrize("version", [OLDEST, "1.30", "1.36", NEWEST])
@pytest.mark.parametrize("isolation", [SUBPROCESS, PROCESS])
def test_official_app_processes_under_our_node(federation, reference, weights, version, isolation):
    """A `flwr-clientapp` of that release for each message, by the node or by an operator's `flower-superexec`."""
    fed = federation(fleet=(OwnNode(python=version, isolation=isolation, lifecycle=PER_MESSAGE),)).start()

    assert weights(fed, num_server_rounds=2) == reference(rounds=2)
    assert fed.dead_nodes() == []


@pytest.mark.parametrize("version", RELEASES)
def test_warm_apps_on_the_flower_of_every_release(federation, reference, weights, version):
    fed = federation(fleet=(OwnNode(python=version, lifecycle=WARM),)).start()

    assert weights(fed, num_server_rounds=2) == reference(rounds=2)
    assert fed.dead_nodes() == []


@pytest.mark.parametrize("port", [GRPC, HTTP])
@pytest.mark.parametrize("lifecycle", [WARM, PER_MESSAGE])
def test_a_large_model_passes_without_being_held(federation, reference, weights, lifecycle, port):
    fed = federation(fleet=(OwnNode(port=port, lifecycle=lifecycle),)).start()
    size = {"array_count": 20, "array_length": MODEL_BYTES // 20 // 4}

    final = weights(fed, num_server_rounds=1, evaluate=False, **size)

    assert final == reference(rounds=1, count=size["array_count"], length=size["array_length"])
    for node in fed.nodes:
        assert peak_memory_bytes(node.process.pid) < MODEL_BYTES, "memory grew with the model"


@pytest.mark.parametrize("port", [GRPC, HTTP])
def test_tls_and_node_authentication_at_our_superlink(federation, expected_digest, weights, port):
    fed = federation(fleet=(OwnNode(port=port),), security=TLS_AUTH).start()

    assert weights(fed, num_server_rounds=ROUNDS) == expected_digest(num_server_rounds=ROUNDS)


@pytest.mark.parametrize(("version", "port"), [("1.25", GRPC), ("1.42", HTTP)])
def test_tls_and_node_authentication_at_an_official_superlink(federation, expected_digest, weights, version, port):
    fed = federation(fleet=(OwnNode(port=port), version), security=TLS_AUTH, **at_official(version)).start()

    assert weights(fed, num_server_rounds=ROUNDS) == expected_digest(num_server_rounds=ROUNDS)


@pytest.mark.parametrize("security", [PLAIN, TLS_AUTH])
def test_it_serves_under_the_name_of_the_official_program(federation, reference, weights, security):
    fed = federation(fleet=(OwnNode(as_official=True),), security=security).start()

    assert weights(fed, num_server_rounds=1) == reference(rounds=1)
