"""Links that are silent for longer than a firewall remembers them survive with default settings."""

import json
import re

import pytest

from harness.outer_superlink import get
from network.silence import LOST_AFTER_S

pytestmark = pytest.mark.trellis_only

ROUNDS = 2
# On a forgotten connection TCP would go on trying for a quarter of an hour.
PROMPTLY_S = 60.0
# What official SuperNodes say when a call fails and is tried again.
TROUBLE = r"(?i)retry|reconnect|attempt failed|unavailable|timed? ?out"


def test_the_firewall_has_forgotten_a_connection_that_nobody_keeps(silence):
    """The control: without it, the other tests could pass because the firewall does nothing."""
    assert not silence.firewall.knows(silence.plain.getsockname()[1])

    silence.plain.sendall(b"late")

    with pytest.raises(TimeoutError):
        silence.plain_peer.recv(16)
    assert re.search(r"counter packets [1-9]\d* bytes \d+ drop", silence.firewall.rules())


def test_a_silent_grpc_channel_carries_the_next_call(silence):
    assert all(silence.firewall.knows(port) for port in silence.kept.grpc_ports)

    assert silence.second_call(silence.kept) == "OK"

    assert silence.firewall.inner.connections(silence.superlink.control_address) == silence.kept.grpc_ports


def test_a_silent_http_connection_carries_the_next_request(silence):
    assert silence.firewall.knows(silence.kept.http_port)

    assert get(silence.kept.http, "/health") == '{"status":"ok"}'


def test_links_that_are_pinged_every_ten_minutes_are_lost(silence):
    """What keeps the others is the default interval; and whoever sets this one is warned."""
    assert not any(silence.firewall.knows(port) for port in {*silence.lost.grpc_ports, silence.lost.http_port})

    assert silence.second_call(silence.lost) == "DEADLINE_EXCEEDED"
    with pytest.raises(TimeoutError):
        get(silence.lost.http, "/health", LOST_AFTER_S)

    assert re.search(r"WARN.*keepalive.*60", silence.slow_superlink.process.output())
    assert "keepalive" not in silence.superlink.process.output()


def test_nodes_that_were_idle_train_at_once_and_never_reconnected(silence, reference):
    result = silence.train(PROMPTLY_S, num_server_rounds=ROUNDS)

    assert json.loads(result.read_text())["sha256"] == reference(rounds=ROUNDS)
    assert [node.process.alive for node in silence.nodes] == [True, True]
    assert silence.superlink.calls("ActivateNode") == silence.activations == len(silence.nodes)
    # Over gRPC a node has one connection, and it is the same as before; over HTTP it opens new ones as it goes.
    assert len(silence.node_ports) == 1
    assert silence.firewall.inner.connections(silence.superlink.fleet_address) == silence.node_ports
    for said in silence.said_since():
        assert "Sent successfully" in said and re.findall(TROUBLE, said) == []
